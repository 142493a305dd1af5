"""YarnDriver: TaskExecutors in containers that YARN grants, through YarnMasterGateway.

Owner: the ResourceManager's loop; the driver's own threads make the gateway's calls. It keeps no container
without a request, requests no more than it is told to, and says why one does not come. Must not know slots.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from yarrow.am.resourcemanager.driver import ResourceEventHandler, TaskExecutorStartError
from yarrow.am.yarn.requested_containers import EndedContainer, RequestedContainers
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile
from yarrow.runtime.yarn.gateways import ContainerShape, ContainerStatus, YarnError, YarnMasterGateway
from yarrow.runtime.yarn.layout import (
    KV_WAITING_FOR,
    RESOURCE_ID,
    RESOURCE_MANAGER_ADDRESS,
    RESOURCE_MANAGER_ID,
)

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
    """Settings of a YarnDriver; times are seconds."""

    #: Number of the application's attempt: part of its TaskExecutors' names.
    attempt: int
    #: Shape of each container.
    shape: ContainerShape
    #: Seconds between two looks at the containers while there are any.
    poll_interval: float = 0.5
    #: Seconds without an answer after which the driver asks why, and seconds between two such questions.
    patience: float = 3.0
    #: Seconds to wait for ended containers at the end.
    grace: float = 5.0
    #: Seconds to wait for YARN's reason of a container's end. It comes after the kill's delay of 0.25 s, with
    #: the next heartbeats of the node and of the ApplicationMaster.
    end_patience: float = 1.5


class YarnDriver:
    """The ResourceManagerDriver of YARN."""

    def __init__(
        self,
        gateway: YarnMasterGateway,
        settings: YarnDriverSettings,
        clock: Clock,
        explain_waiting: ExplainWaiting | None = None,
        read_output: ReadOutput | None = None,
    ) -> None:
        self._gateway = gateway
        self._settings = settings
        self._clock = clock
        self._explain = explain_waiting
        self._read_output = read_output
        self._containers = RequestedContainers(settings.shape.memory_mb)
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="yarn")
        self._handler: ResourceEventHandler | None = None
        self._leader: LeaderInformation | None = None
        self._polling: asyncio.Task[None] | None = None
        self._something_to_poll = asyncio.Event()
        #: Ends of containers that are about to end, for those who wait.
        self._ends: dict[ResourceID, asyncio.Event] = {}
        self._end_awaited = asyncio.Event()
        self._number = 0
        #: Prefix of the names of this attempt's TaskExecutors.
        self._beginning = f"container_{settings.attempt}_"
        #: Number of requests without an answer: their containers are no strays.
        self._asking = 0
        self._waiting_for = ""
        self._asked_why_at = float("-inf")
        self._failed_to_poll = False

    @property
    def can_request(self) -> bool:
        return True

    @property
    def living(self) -> tuple[ResourceID, ...]:
        return tuple(one.resource_id for one in self._containers.living if not one.released)

    def container_of(self, resource_id: ResourceID) -> str:
        """YARN's id of a TaskExecutor's container; empty if it has none."""
        container = self._containers.find(resource_id)
        return container.container_id if container is not None else ""

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler
        self._leader = leader
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(
                self._poll_for_ever(), name="poll containers"
            )

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        assert self._leader is not None, "initialize must be called before any other method"
        self._number += 1
        resource_id = ResourceID(f"{self._beginning}{self._number}")
        environment = {
            RESOURCE_ID: resource_id,
            RESOURCE_MANAGER_ADDRESS: self._leader.address,
            RESOURCE_MANAGER_ID: self._leader.leader_id,
        }
        self._asking += 1
        try:
            handle = await self._call(partial(self._gateway.request_container, environment))
        except YarnError as error:
            raise TaskExecutorStartError(f"YARN refused the request for a container: {error}") from error
        finally:
            self._asking -= 1
            # After a failure too: YARN may have accepted a request whose answer was lost.
            self._something_to_poll.set()
        self._containers.requested(resource_id, handle, self._clock.monotonic())
        _log.info("asked YARN for a container of %d MB for %s", self._settings.shape.memory_mb, resource_id)
        return resource_id

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        container = self._containers.find(resource_id)
        if container is None or container.released:
            return
        container.released = True
        container.still_to_release = not await self._release(container.handle)

    def refusal(self, resource_id: ResourceID) -> str:
        """Refuses processes that have outlived their containers.

        A NodeManager that was lost and returns removes the files of its containers. YARN does not end such a
        process any more nor count its memory, and Skein hands no container on to the next attempt.
        """
        if not resource_id.startswith(self._beginning):
            return (
                "the TaskExecutor belongs to another attempt of the application; this is attempt "
                f"{self._settings.attempt}"
            )
        if self._containers.has_ended(resource_id):
            return "YARN says that its container has ended"
        container = self._containers.find(resource_id)
        return "the container was given back to YARN" if container is not None and container.released else ""

    async def await_end(self, resource_id: ResourceID) -> None:
        if self._containers.find(resource_id) is None:
            return
        ended = self._ends.setdefault(resource_id, asyncio.Event())
        self._end_awaited.set()
        try:
            await asyncio.wait_for(ended.wait(), self._settings.end_patience)
        except TimeoutError:
            _log.info("YARN has not said yet why the container of TaskExecutor %s ended", resource_id)
        finally:
            self._ends.pop(resource_id, None)
            if not self._ends:
                self._end_awaited.clear()

    async def terminate(self) -> None:
        polling, self._polling = self._polling, None
        if polling is None:
            return
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await asyncio.gather(
            *(self.release_task_executor(one.resource_id) for one in self._containers.living)
        )
        deadline = self._clock.monotonic() + self._settings.grace
        while self._containers.living and self._clock.monotonic() < deadline:
            await self._poll()
            if self._containers.living:
                await asyncio.sleep(min(0.1, self._settings.poll_interval))
        for left in self._containers.living:
            _log.warning(
                "the container of TaskExecutor %s has not ended: it ends with the application",
                left.resource_id,
            )
        self._threads.shutdown(wait=False, cancel_futures=True)

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
                _log.exception("the driver failed while it looked at the containers")
            if not self._containers.living:
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
            statuses = await self._call(self._gateway.containers)
        except YarrowError as error:
            if not self._failed_to_poll:
                _log.warning("YARN does not report the state of the containers: %s", error)
            self._failed_to_poll = True
            return
        self._failed_to_poll = False
        await self._take(statuses)
        for container in self._containers.living:
            if container.still_to_release:
                container.still_to_release = not await self._release(container.handle)
        if asking == 0 == self._asking:
            await self._release_strays(statuses)

    async def _take(self, statuses: Iterable[ContainerStatus]) -> None:
        unexplained = []
        for ended in self._containers.take(statuses):
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
                output = await self._call(partial(self._read_output, ended.node, ended.container_id))
        except (YarrowError, TimeoutError) as error:
            _log.info(
                "the last output of container %s cannot be read: %s", ended.container_id, error or "no answer"
            )
            return ended
        return ended.with_output(output) if output else ended

    def _tell_end(self, ended: EndedContainer) -> None:
        level = logging.INFO if ended.released else logging.WARNING
        _log.log(level, "TaskExecutor %s ended: %s", ended.resource_id, ended.cause)
        if self._handler is not None:
            self._handler.on_task_executor_terminated(ended.resource_id, ended.cause)
        if ended.resource_id in self._ends:
            self._ends[ended.resource_id].set()

    async def _release_strays(self, statuses: Iterable[ContainerStatus]) -> None:
        for handle in self._containers.strays(statuses):
            _log.warning(
                ("YARN granted the container %s, which no request waits for: the driver gives it back"),
                handle,
            )
            await self._release(handle)

    async def _release(self, handle: str) -> bool:
        """Gives a container back; False = it failed and must be repeated."""
        try:
            await self._call(partial(self._gateway.release_container, handle))
        except YarnError as error:
            # It ends with the application at the latest.
            _log.warning("the container %s was not given back to YARN: %s", handle, error)
            return False
        return True

    # Delays.

    async def _say_what_is_waited_for(self) -> None:
        now = self._clock.monotonic()
        waiting = self._containers.waiting(since=now - self._settings.patience)
        if waiting and now - self._asked_why_at < self._settings.patience:
            return
        text = ""
        if waiting:
            self._asked_why_at = now
            text = await self._why(len(waiting), now - waiting[0].requested_at)
        if text.partition(";")[2] != self._waiting_for.partition(";")[2] or bool(text) != bool(
            self._waiting_for
        ):
            await self._tell(text)

    async def _why(self, number: int, seconds: float) -> str:
        shape = self._settings.shape
        wanted = f"{number} containers of {shape.memory_mb} MB and {shape.vcores} cores"
        text = f"YARN has not granted {wanted} for {seconds:.0f} s"
        reason = ""
        if self._explain is not None:
            try:
                reason = await self._call(partial(self._explain, shape, number))
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
        if self._handler is not None:
            self._handler.on_task_executors_delayed(text)
        try:
            await self._call(partial(self._gateway.publish, KV_WAITING_FOR, text))
        except YarnError as error:
            _log.warning("the list of containers that the application waits for was not published: %s", error)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
