"""ServiceContainers: the containers of one Skein service that a master requests, watches and gives back.

Owner: the ResourceManager's loop; the object's own threads make the gateway's calls. It keeps no container without a
request, requests no more than it is told to, and says why one does not come. Must not know what runs in a container.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from yarrow.am.yarn.requested_containers import EndedContainer, RequestedContainers
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.yarn.gateways import ContainerShape, ContainerStatus, YarnError, YarnMasterGateway
from yarrow.runtime.yarn.layout import KV_WAITING_FOR

T = TypeVar("T")

#: Seconds between two looks at the containers while the end of one is awaited.
_SOON: Final = 0.1
#: Most concurrent calls to YARN.
_CALLS_AT_ONCE: Final = 4
_log = logging.getLogger(__name__)

#: Says why so many containers of a shape are not granted, "" = unknown; blocking.
ExplainWaiting = Callable[[ContainerShape, int], str]
#: Reads a container's last output from its node's web address and its id; blocking, raises YarnError.
ReadOutput = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class YarnDriverSettings:
    """Settings of the containers of one service; times are seconds."""

    #: Number of the application's attempt: part of the names of what runs in containers.
    attempt: int
    #: Shape of each container.
    shape: ContainerShape
    #: Seconds between two looks at the containers while there are any.
    poll_interval: float = 0.5
    #: Seconds without an answer after which the reason is asked for, and seconds between two such questions.
    patience: float = 3.0
    #: Seconds to wait for ended containers at the end.
    grace: float = 5.0
    #: Seconds to wait for YARN's reason of a container's end. It comes after the kill's delay of 0.25 s, with
    #: the next heartbeats of the node and of the ApplicationMaster.
    end_patience: float = 1.5


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """What runs in the containers of a service, in words for people."""

    #: Skein's name of the service.
    service: str
    #: As "TaskExecutor".
    noun: str
    #: What to do about a container that used too much memory.
    memory_remedy: str


class PublishedDelays:
    """What the application waits for, in its key-value store; any thread, blocking."""

    def __init__(self, gateway: YarnMasterGateway) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    def publish(self, service: str, text: str) -> None:
        """Publishes the text about a service beside those about others; "" = it waits for none. Raises YarnError."""
        with self._lock:
            self._texts[service] = text
            self._gateway.publish(KV_WAITING_FOR, "; ".join(filter(None, self._texts.values())))


class ContainerEvents:
    """What the owner of the containers hears; it overrides what it needs."""

    def on_container_ended(self, ended: EndedContainer) -> None:
        """A container has ended, given back or not."""

    def on_containers_delayed(self, explanation: str) -> None:
        """Says why containers do not come; "" = none is delayed any more."""


class ServiceContainers:
    """The containers of one service in one attempt of the application. Call `start` before any other method."""

    def __init__(
        self,
        kind: ContainerKind,
        gateway: YarnMasterGateway,
        settings: YarnDriverSettings,
        clock: Clock,
        events: ContainerEvents,
        explain_waiting: ExplainWaiting | None,
        read_output: ReadOutput | None,
        delays: PublishedDelays,
    ) -> None:
        self._kind = kind
        self._gateway = gateway
        self._settings = settings
        self._clock = clock
        self._events = events
        self._explain = explain_waiting
        self._read_output = read_output
        self._delays = delays
        self.known = RequestedContainers(settings.shape.memory_mb, kind.memory_remedy)
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="yarn")
        self._polling: asyncio.Task[None] | None = None
        self._something_to_poll = asyncio.Event()
        #: Ends of containers that are about to end, for those who wait.
        self._ends: dict[ResourceID, asyncio.Event] = {}
        self._end_awaited = asyncio.Event()
        #: Number of requests without an answer: their containers are no strays.
        self._asking = 0
        self._waiting_for = ""
        #: For whom the text above was told.
        self._waiting: frozenset[ResourceID] = frozenset()
        self._asked_why_at = float("-inf")
        self._failed_to_poll = False

    def start(self) -> None:
        """Begins to watch; may be repeated."""
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(
                self._poll_for_ever(), name=f"poll containers of {self._kind.service}"
            )

    def container_of(self, resource_id: ResourceID) -> str:
        """YARN's id of a container; empty if there is none."""
        container = self.known.find(resource_id)
        return container.container_id if container is not None else ""

    async def request(self, resource_id: ResourceID, environment: Mapping[str, str]) -> None:
        """Asks YARN for a container for a process of that name. Raises YarnError."""
        self._asking += 1
        try:
            handle = await self.call(
                partial(self._gateway.request_container, self._kind.service, environment)
            )
        finally:
            self._asking -= 1
            # After a failure too: YARN may have accepted a request whose answer was lost.
            self._something_to_poll.set()
        self.known.requested(resource_id, handle, self._clock.monotonic())
        _log.info("asked YARN for a container of %d MB for %s", self._settings.shape.memory_mb, resource_id)

    async def release(self, resource_id: ResourceID) -> None:
        """Gives a container back; no effect if there is none."""
        container = self.known.find(resource_id)
        if container is None or container.released:
            return
        container.released = True
        container.still_to_release = not await self._release(container.handle)

    async def await_end(self, resource_id: ResourceID, patience: float) -> bool:
        """Waits until YARN has told the end of a container; False if it has not within `patience` seconds."""
        if self.known.find(resource_id) is None:
            return True
        ended = self._ends.setdefault(resource_id, asyncio.Event())
        self._end_awaited.set()
        try:
            await asyncio.wait_for(ended.wait(), patience)
        except TimeoutError:
            return False
        finally:
            self._ends.pop(resource_id, None)
            if not self._ends:
                self._end_awaited.clear()
        return True

    async def terminate(self) -> None:
        """Gives all containers back; returns when they have ended, or the grace is over."""
        polling, self._polling = self._polling, None
        if polling is not None:
            await self._give_all_back(polling)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _give_all_back(self, polling: asyncio.Task[None]) -> None:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await asyncio.gather(*(self.release(one.resource_id) for one in self.known.living))
        deadline = self._clock.monotonic() + self._settings.grace
        while self.known.living and self._clock.monotonic() < deadline:
            await self._poll()
            if self.known.living:
                await asyncio.sleep(min(0.1, self._settings.poll_interval))
        for left in self.known.living:
            _log.warning(
                "the container of %s %s has not ended: it ends with the application",
                self._kind.noun,
                left.resource_id,
            )

    # Answers of YARN.

    async def _poll_for_ever(self) -> None:
        while True:
            await self._something_to_poll.wait()
            await self._pause()
            try:
                await self._poll()
                await self._say_what_is_waited_for()
            except Exception:
                # The ends of containers must be noticed, whatever went wrong with one.
                _log.exception("the look at the containers of %s failed", self._kind.service)
            if not self.known.living:
                self._something_to_poll.clear()

    async def _pause(self) -> None:
        """Waits until the next look at the containers; only briefly while the end of one is awaited."""
        try:
            await asyncio.wait_for(self._end_awaited.wait(), self._settings.poll_interval)
        except TimeoutError:
            return
        await asyncio.sleep(min(_SOON, self._settings.poll_interval))

    async def _poll(self) -> None:
        asking = self._asking
        try:
            statuses = await self.call(partial(self._gateway.containers, self._kind.service))
        except YarrowError as error:
            if not self._failed_to_poll:
                _log.warning("YARN does not report the state of the containers: %s", error)
            self._failed_to_poll = True
            return
        self._failed_to_poll = False
        await self._take(statuses)
        for container in self.known.living:
            if container.still_to_release:
                container.still_to_release = not await self._release(container.handle)
        if asking == 0 == self._asking:
            await self._release_strays(statuses)

    async def _take(self, statuses: Iterable[ContainerStatus]) -> None:
        unexplained = []
        for ended in self.known.take(statuses):
            if ended.container_id and self._read_output is not None:
                unexplained.append(ended)
            else:
                self._tell_end(ended)
        for ended in await asyncio.gather(*map(self._with_output, unexplained)):
            self._tell_end(ended)

    async def _with_output(self, ended: EndedContainer) -> EndedContainer:
        """Adds the container's output. Its node answers at once, or is not worth waiting for."""
        assert self._read_output is not None
        try:
            async with asyncio.timeout(self._settings.end_patience):
                output = await self.call(partial(self._read_output, ended.node, ended.container_id))
        except (YarrowError, TimeoutError) as error:
            _log.info(
                "the last output of container %s cannot be read: %s", ended.container_id, error or "no answer"
            )
            return ended
        return ended.with_output(output) if output else ended

    def _tell_end(self, ended: EndedContainer) -> None:
        level = logging.INFO if ended.released else logging.WARNING
        _log.log(level, "%s %s ended: %s", self._kind.noun, ended.resource_id, ended.cause)
        self._events.on_container_ended(ended)
        if ended.resource_id in self._ends:
            self._ends[ended.resource_id].set()

    async def _release_strays(self, statuses: Iterable[ContainerStatus]) -> None:
        for handle in self.known.strays(statuses):
            _log.warning(
                ("YARN granted the container %s, which no request waits for: the driver gives it back"),
                handle,
            )
            await self._release(handle)

    async def _release(self, handle: str) -> bool:
        """Gives a container back; False = it failed and must be repeated."""
        try:
            await self.call(partial(self._gateway.release_container, handle))
        except YarnError as error:
            # It ends with the application at the latest.
            _log.warning("the container %s was not given back to YARN: %s", handle, error)
            return False
        return True

    # Delays.

    async def _say_what_is_waited_for(self) -> None:
        now = self._clock.monotonic()
        waiting = self.known.waiting(since=now - self._settings.patience)
        if waiting and now - self._asked_why_at < self._settings.patience:
            return
        text = ""
        if waiting:
            self._asked_why_at = now
            text = await self._why(len(waiting), now - waiting[0].requested_at)
        names = frozenset(one.resource_id for one in waiting)
        # The first part has the seconds of waiting, which always differ.
        if names != self._waiting or text.partition(";")[2] != self._waiting_for.partition(";")[2]:
            self._waiting = names
            await self._tell(text)

    async def _why(self, number: int, seconds: float) -> str:
        shape = self._settings.shape
        wanted = f"{number} containers of {shape.memory_mb} MB and {shape.vcores} cores"
        text = f"YARN has not granted {wanted} for {seconds:.0f} s"
        reason = ""
        if self._explain is not None:
            try:
                reason = await self.call(partial(self._explain, shape, number))
            except YarrowError as error:
                reason = f"the ResourceManager of YARN cannot be asked for the reason: {error}"
        return f"{text}; {reason or 'YARN gives no reason'}"

    async def _tell(self, text: str) -> None:
        if text:
            _log.warning("%s", text)
        elif self._waiting_for:
            _log.info(
                "the application waits for no container any more: YARN granted all, or the requests "
                "were given up"
            )
        self._waiting_for = text
        self._events.on_containers_delayed(text)
        try:
            await self.call(partial(self._delays.publish, self._kind.service, text))
        except YarnError as error:
            _log.warning("the list of containers that the application waits for was not published: %s", error)

    async def call(self, work: Callable[[], T]) -> T:
        """Runs a blocking call to YARN in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
