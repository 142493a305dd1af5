"""LentDriver: one driver for the ResourceManagers of all leaderships of a process.

Owner: the control plane's loop. A ResourceManager that leads no more must not end TaskExecutors: they serve
the next one, which may be in this process. The maker of the driver ends it. Leadership can be doubtful for a
moment. Releases then wait until it is certain again, or until the next leadership, which finds the
TaskExecutors in `living`.
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
from yarrow.runtime.rpc.messages import DelegationTokens, ResourceProfile

#: Seconds between two looks whether this process certainly leads again.
_PAUSE = 0.5
_log = logging.getLogger(__name__)


class LentDriver:
    """The ResourceManagerDriver of one leadership."""

    def __init__(
        self, driver: ResourceManagerDriver, leads: Callable[[], bool], pause: float = _PAUSE
    ) -> None:
        """Lends a driver to one leadership.

        `leads` says whether the leadership certainly lasts. Releases wait while it does not, and `leads` is
        asked again every `pause` seconds.
        """
        self._driver = driver
        self._leads = leads
        self._pause = pause
        #: TaskExecutors to release, in that order; they serve no job any more.
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

    @property
    def tokens(self) -> DelegationTokens | None:
        """See ResourceManagerDriver."""
        return self._driver.tokens

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        """See ResourceManagerDriver."""
        self._handler = handler
        await self._driver.initialize(self, leader)

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        """See ResourceManagerDriver."""
        if not self._leads():
            raise TaskExecutorStartError("this master does not lead any more and asks for no TaskExecutors")
        return await self._driver.request_task_executor(profile)

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        """See ResourceManagerDriver; releases nothing before this process certainly leads."""
        if self._leads():
            await self._driver.release_task_executor(resource_id)
        elif self._handler is not None:
            _log.info("TaskExecutor %s is released when this master is known to lead again", resource_id)
            self._kept[resource_id] = None
            if self._releasing is None:
                self._releasing = asyncio.create_task(self._release_kept(), name="release TaskExecutors")

    async def _release_kept(self) -> None:
        try:
            while self._kept:
                await asyncio.sleep(self._pause)
                while self._kept and self._leads():
                    resource_id = next(iter(self._kept))
                    # Kept meanwhile, so that nobody uses it.
                    await self._driver.release_task_executor(resource_id)
                    self._kept.pop(resource_id, None)
        finally:
            self._releasing = None

    def refusal(self, resource_id: ResourceID) -> str:
        """See ResourceManagerDriver."""
        if resource_id in self._kept:
            return "the TaskExecutor is about to be released"
        return self._driver.refusal(resource_id)

    async def await_end(self, resource_id: ResourceID) -> None:
        """See ResourceManagerDriver."""
        await self._driver.await_end(resource_id)

    async def terminate(self) -> None:
        """Ends the loan; TaskExecutors stay."""
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
