"""LentDriver: one driver for the ResourceManagers of all leaderships of a process.

Owner: the control plane's loop. A ResourceManager that leads no more must end no TaskExecutor: they go on under the
next one, which may be of this process. Who has made the driver ends it. Whether this process leads can be doubtful for
a moment: what is to be released then waits until it is sure again, or until the next leadership, to which it is living.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from yarrow.am.resourcemanager.driver import (
    ResourceEventHandler,
    ResourceManagerDriver,
    TaskExecutorStartError,
)
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile

#: Seconds between two looks at whether it is sure again that this process leads.
_PAUSE = 0.5
_log = logging.getLogger(__name__)


class LentDriver:
    """The ResourceManagerDriver of one leadership."""

    def __init__(
        self, driver: ResourceManagerDriver, leads: Callable[[], bool], pause: float = _PAUSE
    ) -> None:
        """A driver that is lent to one leadership.

        `leads` tells whether the leadership lasts at this moment. Releases wait while it does not, and it is
        asked again every `pause` seconds.
        """
        self._driver = driver
        self._leads = leads
        self._pause = pause
        #: To be released, in that order; they serve nobody any more.
        self._kept: dict[ResourceID, None] = {}
        self._releasing: asyncio.Task[None] | None = None
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
        """See ResourceManagerDriver; nothing is released before it is sure that this process leads."""
        if self._leads():
            await self._driver.release_task_executor(resource_id)
        elif self._handler is not None:
            _log.info("%s is released once it is sure again that this master leads", resource_id)
            self._kept[resource_id] = None
            if self._releasing is None:
                self._releasing = asyncio.create_task(self._release_kept(), name="release TaskExecutors")

    async def _release_kept(self) -> None:
        try:
            while self._kept:
                await asyncio.sleep(self._pause)
                while self._kept and self._leads():
                    resource_id = next(iter(self._kept))
                    # Kept meanwhile: nobody takes it for one that may serve.
                    await self._driver.release_task_executor(resource_id)
                    self._kept.pop(resource_id, None)
        finally:
            self._releasing = None

    def refusal(self, resource_id: ResourceID) -> str:
        """See ResourceManagerDriver."""
        if resource_id in self._kept:
            return "it is about to be released"
        return self._driver.refusal(resource_id)

    async def await_end(self, resource_id: ResourceID) -> None:
        """See ResourceManagerDriver."""
        await self._driver.await_end(resource_id)

    async def terminate(self) -> None:
        """The leadership is over; TaskExecutors stay."""
        self._handler = None
        self._kept.clear()
        if self._releasing is not None:
            self._releasing.cancel()
            await asyncio.gather(self._releasing, return_exceptions=True)

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        """See ResourceEventHandler."""
        self._kept.pop(resource_id, None)
        if self._handler is not None:
            self._handler.on_task_executor_terminated(resource_id, cause)

    def on_task_executors_delayed(self, explanation: str) -> None:
        """See ResourceEventHandler."""
        if self._handler is not None:
            self._handler.on_task_executors_delayed(explanation)
