"""RequestedContainers: the containers that a driver requested from YARN, their states, and texts about them.

Owner: the driver's loop. Pure: times and states are passed in. A container is known by its handle from the
request on. A container without a known request (the answer was lost) is a stray, and is given back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.yarn.gateways import ContainerStatus

#: YARN's words for a container that used too much memory, as the NodeManager and Skein phrase them.
_OVER_MEMORY = re.compile(r"memory limit|(physical|virtual) memory used", re.IGNORECASE)
#: Skein's words for a container whose process ended with a non-zero exit status.
_SAYS_NOTHING = "Container failed during execution"
#: Most quoted characters of YARN's text: a dump of processes follows.
_MOST_QUOTED = 600


@dataclass(slots=True)
class RequestedContainer:
    """A container that was requested or granted."""

    resource_id: ResourceID
    handle: str
    requested_at: float
    container_id: str = ""
    node: str = ""
    released: bool = False
    #: An attempt to give it back failed, and must be repeated.
    still_to_release: bool = False

    @property
    def is_granted(self) -> bool:
        return bool(self.container_id)


@dataclass(frozen=True, slots=True)
class EndedContainer:
    """A container that has ended."""

    resource_id: ResourceID
    cause: str
    #: True = it was given back: nothing went wrong.
    released: bool
    #: The node with its output, if YARN says no more than that it failed; else empty.
    node: str = ""
    container_id: str = ""

    def with_output(self, output: str) -> EndedContainer:
        """A copy with the container's last output."""
        return replace(
            self, cause=f"{self.cause.partition(_SAYS_NOTHING)[0].rstrip(': ')}; its output ends: {output}"
        )


class RequestedContainers:
    """All requested containers of one attempt."""

    def __init__(self, memory_mb: int, memory_remedy: str) -> None:
        """For texts: the memory of each container, and what to do when it is not enough."""
        self._memory_mb = memory_mb
        self._memory_remedy = memory_remedy
        self._living: dict[str, RequestedContainer] = {}
        self._ended: set[str] = set()
        self._ended_executors: set[ResourceID] = set()

    @property
    def living(self) -> tuple[RequestedContainer, ...]:
        """Containers that have not ended, in the order of their requests."""
        return tuple(self._living.values())

    def requested(self, resource_id: ResourceID, handle: str, now: float) -> RequestedContainer:
        """Notes a request to YARN."""
        container = self._living[handle] = RequestedContainer(resource_id, handle, now)
        return container

    def find(self, resource_id: ResourceID) -> RequestedContainer | None:
        """The living container of a TaskExecutor."""
        return next((one for one in self._living.values() if one.resource_id == resource_id), None)

    def has_ended(self, resource_id: ResourceID) -> bool:
        """Whether YARN has reported the end of a TaskExecutor's container."""
        return resource_id in self._ended_executors

    def take(self, statuses: Iterable[ContainerStatus]) -> list[EndedContainer]:
        """Takes YARN's report on all containers; returns those that have ended since the last report."""
        ended = []
        for status in statuses:
            container = self._living.get(status.handle)
            if container is None:
                continue
            container.container_id = status.container_id or container.container_id
            container.node = status.node or container.node
            if status.has_ended:
                del self._living[status.handle]
                self._ended.add(status.handle)
                self._ended_executors.add(container.resource_id)
                ended.append(self._end_of(container, status))
        return ended

    def strays(self, statuses: Iterable[ContainerStatus]) -> list[str]:
        """Handles of present or future containers that this driver does not know."""
        known = self._living.keys() | self._ended
        return [status.handle for status in statuses if not status.has_ended and status.handle not in known]

    def waiting(self, since: float) -> list[RequestedContainer]:
        """Containers that are not granted and were requested at `since` or before."""
        return [
            one
            for one in self._living.values()
            if not one.is_granted and not one.released and one.requested_at <= since
        ]

    def _end_of(self, container: RequestedContainer, status: ContainerStatus) -> EndedContainer:
        cause = self._cause(container, status)
        if container.released or _SAYS_NOTHING not in cause:
            return EndedContainer(container.resource_id, cause, container.released)
        return EndedContainer(container.resource_id, cause, False, container.node, container.container_id)

    def _cause(self, container: RequestedContainer, status: ContainerStatus) -> str:
        if container.released:
            return "the container was released"
        where = f"its container {container.container_id or container.handle}"
        if container.node:
            where += f" on {container.node}"
        said = shortened(status.exit_message)
        if _OVER_MEMORY.search(status.exit_message):
            return (
                f"{where} was killed by YARN because it used more memory than its limit of "
                f"{self._memory_mb} MB. {self._memory_remedy} YARN says: {said}"
            )
        how = {"SUCCEEDED": "has ended", "KILLED": "was killed", "FAILED": "failed"}[status.state]
        return f"{where} {how}{f': {said}' if said else ''}"


def shortened(message: str) -> str:
    """YARN's words on one line, without the dump of processes behind them."""
    text = " ".join(message.partition("Dump of the process-tree")[0].split())
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]} ..."
