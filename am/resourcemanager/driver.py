"""ResourceManagerDriver: how a ResourceManager gets TaskExecutor processes, and loses them.

Owner: called on the ResourceManager's loop, and calls its handler there. Must not know slots or jobs.
"""

from __future__ import annotations

from typing import Protocol

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile


class TaskExecutorStartError(YarrowError):
    """A TaskExecutor could not be started; the message says why."""


class ResourceEventHandler(Protocol):
    """What a driver tells."""

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        """A process that the driver started has ended, released or not."""
        ...

    def on_task_executors_delayed(self, explanation: str) -> None:
        """Why those that were requested do not come; "" = nothing is waited for (any more)."""
        ...


class ResourceManagerDriver(Protocol):
    """Starts and ends TaskExecutors."""

    @property
    def can_request(self) -> bool:
        """False = TaskExecutors come by themselves: `request_task_executor` is never called."""
        ...

    @property
    def living(self) -> tuple[ResourceID, ...]:
        """Those that were started, under earlier leaderships of this process too, and neither ended nor released."""
        ...

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """Called before all else, and again at each new leadership of this process.

        The driver keeps the processes it started. TaskExecutors register at `leader` from now on.
        """
        ...

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        """Starts a TaskExecutor that can serve slots of `profile`, and returns its name.

        Raises TaskExecutorStartError.
        """
        ...

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """Ends one; no effect when the driver does not know it."""
        ...

    def refusal(self, resource_id: ResourceID) -> str:
        """Why one that registers must not serve: whoever gave it its place does not count it any more. "" = it may."""
        ...

    async def await_end(self, resource_id: ResourceID) -> None:
        """A TaskExecutor said that it ends by force.

        Returns once the handler was told why, or when waiting is not worth it. Returns at once if nobody
        knows more than the TaskExecutor does, and after a second or two at the latest.
        """
        ...

    async def terminate(self) -> None:
        """Ends all that the driver started; returns when nothing of it is left."""
        ...


class StandaloneDriver:
    """TaskExecutors are started by somebody else and register by themselves."""

    @property
    def can_request(self) -> bool:
        return False

    @property
    def living(self) -> tuple[ResourceID, ...]:
        """Others know."""
        return ()

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """Nothing to prepare."""

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        raise TaskExecutorStartError(
            "a standalone cluster starts no TaskExecutors by itself: start more with `yarrow taskmanager`"
        )

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """A standalone TaskExecutor stays, to register again."""

    def refusal(self, resource_id: ResourceID) -> str:
        """Whoever comes is welcome."""
        return ""

    async def await_end(self, resource_id: ResourceID) -> None:
        """Nobody knows more than it said."""

    async def terminate(self) -> None:
        """Nothing was started."""
