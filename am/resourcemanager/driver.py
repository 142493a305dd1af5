"""ResourceManagerDriver: how a ResourceManager starts TaskExecutor processes, and hears of their ends.

Owner: called on the ResourceManager's loop, on which it calls its handler. Must not know slots or jobs.
"""

from __future__ import annotations

from typing import Protocol

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import DelegationTokens, ResourceProfile


class TaskExecutorStartError(YarrowError):
    """A TaskExecutor could not be started; the message says why."""


class ResourceEventHandler(Protocol):
    """Receives a driver's events."""

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        """A process that the driver started has ended, released or not."""
        ...

    def on_task_executors_delayed(self, explanation: str) -> None:
        """Says why requested TaskExecutors do not come; "" = none are delayed any more."""
        ...


class ResourceManagerDriver(Protocol):
    """Starts and ends TaskExecutors."""

    @property
    def can_request(self) -> bool:
        """False = TaskExecutors come by themselves: `request_task_executor` is never called."""
        ...

    @property
    def living(self) -> tuple[ResourceID, ...]:
        """TaskExecutors of this process's leaderships, earlier ones included, that were neither ended nor released."""
        ...

    @property
    def tokens(self) -> DelegationTokens | None:
        """Hadoop's newest tokens for TaskExecutors.

        None = the tokens of the containers are the newest, or the processes need no tokens.
        """
        ...

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """Begins a leadership; called before all other methods, and again for each new leadership of this process.

        The driver keeps the processes that it started. From now on TaskExecutors register at `leader`.
        """
        ...

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        """Starts a TaskExecutor that can serve slots of `profile`, and returns its name.

        Raises TaskExecutorStartError.
        """
        ...

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """Ends a TaskExecutor; no effect if the driver does not know it."""
        ...

    def refusal(self, resource_id: ResourceID) -> str:
        """Why a registering TaskExecutor that its cluster has given up must not serve; "" = it may."""
        ...

    async def await_end(self, resource_id: ResourceID) -> None:
        """Waits for the cause after a TaskExecutor said that it ends by force.

        Returns once the handler has the cause, or when waiting is not worth it. That
        is at once if the TaskExecutor itself knows most, and after a second or two at the latest.
        """
        ...

    async def terminate(self) -> None:
        """Ends everything that the driver started; returns when nothing of it is left."""
        ...


class StandaloneDriver:
    """The driver of a cluster in which others start TaskExecutors, which register by themselves."""

    @property
    def can_request(self) -> bool:
        return False

    @property
    def living(self) -> tuple[ResourceID, ...]:
        """Returns none: this driver starts none."""
        return ()

    @property
    def tokens(self) -> DelegationTokens | None:
        """Returns none: each process logs in by itself."""
        return None

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """Nothing to prepare."""

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        raise TaskExecutorStartError(
            "a standalone cluster starts no TaskExecutors by itself: start more with `yarrow taskmanager`"
        )

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """A standalone TaskExecutor stays, to register again."""

    def refusal(self, resource_id: ResourceID) -> str:
        """Accepts every TaskExecutor."""
        return ""

    async def await_end(self, resource_id: ResourceID) -> None:
        """Returns at once: the TaskExecutor itself knows most."""

    async def terminate(self) -> None:
        """Does nothing: this driver started nothing."""
