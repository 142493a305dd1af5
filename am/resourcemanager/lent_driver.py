"""LentDriver: one driver for the ResourceManagers of all leaderships of a process.

Owner: the control plane's loop. A ResourceManager that leads no more must end no TaskExecutor: they go on under the
next one, which may be of this process. Who has made the driver ends it.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.am.resourcemanager.driver import (
    ResourceEventHandler,
    ResourceManagerDriver,
    TaskExecutorStartError,
)
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile


class LentDriver:
    """The ResourceManagerDriver of one leadership."""

    def __init__(self, driver: ResourceManagerDriver, leads: Callable[[], bool]) -> None:
        """`leads` tells whether the leadership lasts at this very moment."""
        self._driver = driver
        self._leads = leads
        self._handler: ResourceEventHandler | None = None

    @property
    def can_request(self) -> bool:
        """See ResourceManagerDriver."""
        return self._driver.can_request

    @property
    def living(self) -> tuple[ResourceID, ...]:
        """See ResourceManagerDriver."""
        return self._driver.living

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """See ResourceManagerDriver."""
        self._handler = handler
        await self._driver.initialize(self, leader)

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        """See ResourceManagerDriver."""
        if not self._leads():
            raise TaskExecutorStartError("this master leads no more: it asks for no TaskExecutors")
        return await self._driver.request_task_executor(profile)

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """See ResourceManagerDriver; nothing is released by one that leads no more."""
        if self._leads():
            await self._driver.release_task_executor(resource_id)

    def refusal(self, resource_id: ResourceID) -> str:
        """See ResourceManagerDriver."""
        return self._driver.refusal(resource_id)

    async def await_end(self, resource_id: ResourceID) -> None:
        """See ResourceManagerDriver."""
        await self._driver.await_end(resource_id)

    async def terminate(self) -> None:
        """The leadership is over; TaskExecutors stay."""
        self._handler = None

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        """See ResourceEventHandler."""
        if self._handler is not None:
            self._handler.on_task_executor_terminated(resource_id, cause)

    def on_task_executors_delayed(self, explanation: str) -> None:
        """See ResourceEventHandler."""
        if self._handler is not None:
            self._handler.on_task_executors_delayed(explanation)
