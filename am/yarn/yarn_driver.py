"""YarnDriver: TaskExecutors in containers that YARN grants.

Owner: the ResourceManager's loop. The containers themselves are `ServiceContainers`. Must not know slots.
"""

from __future__ import annotations

import logging
from typing import Final

from yarrow.am.resourcemanager.driver import ResourceEventHandler, TaskExecutorStartError
from yarrow.am.yarn.requested_containers import EndedContainer
from yarrow.am.yarn.service_containers import (
    ContainerEvents,
    ContainerKind,
    ExplainWaiting,
    PublishedDelays,
    ReadOutput,
    ServiceContainers,
    YarnDriverSettings,
)
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import DelegationTokens, ResourceProfile
from yarrow.runtime.yarn.gateways import YarnError, YarnMasterGateway
from yarrow.runtime.yarn.layout import (
    RESOURCE_ID,
    RESOURCE_MANAGER_ADDRESS,
    RESOURCE_MANAGER_ID,
    TASK_EXECUTOR_SERVICE,
)

_KIND: Final = ContainerKind(
    TASK_EXECUTOR_SERVICE,
    "TaskExecutor",
    "Raise taskmanager.memory.process.size (-ytm), lower taskmanager.numberOfTaskSlots, or keep less state in the"
    " job.",
)
_log = logging.getLogger(__name__)


class YarnDriver(ContainerEvents):
    """The ResourceManagerDriver of YARN."""

    def __init__(
        self,
        gateway: YarnMasterGateway,
        settings: YarnDriverSettings,
        clock: Clock,
        explain_waiting: ExplainWaiting | None = None,
        read_output: ReadOutput | None = None,
        delays: PublishedDelays | None = None,
    ) -> None:
        """`delays`: where drivers of several services say what they wait for."""
        self._settings = settings
        self._containers = ServiceContainers(
            _KIND,
            gateway,
            settings,
            clock,
            self,
            explain_waiting,
            read_output,
            delays or PublishedDelays(gateway),
        )
        self._handler: ResourceEventHandler | None = None
        self._leader: LeaderInformation | None = None
        self._number = 0
        #: The newest delegation tokens; RunningMaster sets them after each renewal.
        self.tokens: DelegationTokens | None = None
        #: Prefix of the names of this attempt's TaskExecutors.
        self._beginning = f"container_{settings.attempt}_"

    @property
    def can_request(self) -> bool:
        return True

    @property
    def living(self) -> tuple[ResourceID, ...]:
        return tuple(one.resource_id for one in self._containers.known.living if not one.released)

    def container_of(self, resource_id: ResourceID) -> str:
        """YARN's id of a TaskExecutor's container; empty if it has none."""
        return self._containers.container_of(resource_id)

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler
        self._leader = leader
        self._containers.start()

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        assert self._leader is not None, "initialize must be called before any other method"
        self._number += 1
        resource_id = ResourceID(f"{self._beginning}{self._number}")
        environment = {
            RESOURCE_ID: resource_id,
            RESOURCE_MANAGER_ADDRESS: self._leader.address,
            RESOURCE_MANAGER_ID: self._leader.leader_id,
        }
        try:
            await self._containers.request(resource_id, environment)
        except YarnError as error:
            raise TaskExecutorStartError(f"YARN refused the request for a container: {error}") from error
        return resource_id

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        await self._containers.release(resource_id)

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
        if self._containers.known.has_ended(resource_id):
            return "YARN says that its container has ended"
        container = self._containers.known.find(resource_id)
        return "the container was given back to YARN" if container is not None and container.released else ""

    async def await_end(self, resource_id: ResourceID) -> None:
        if not await self._containers.await_end(resource_id, self._settings.end_patience):
            _log.info("YARN has not said yet why the container of TaskExecutor %s ended", resource_id)

    async def terminate(self) -> None:
        await self._containers.terminate()

    # ContainerEvents.

    def on_container_ended(self, ended: EndedContainer) -> None:
        if self._handler is not None:
            self._handler.on_task_executor_terminated(ended.resource_id, ended.cause)

    def on_containers_delayed(self, explanation: str) -> None:
        if self._handler is not None:
            self._handler.on_task_executors_delayed(explanation)
