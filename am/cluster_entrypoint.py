"""ControlPlane: Dispatcher, ResourceManager and RPC of one cluster, assembled on one event loop.

Owner: the loop on which `start` ran. No signal handlers, no threads, no process exit here: standalone
masters, the embedded cluster and the ApplicationMaster each wrap it in their own way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointRecovery
from yarrow.am.dispatcher.blob_store import BlobStore
from yarrow.am.dispatcher.dispatcher import Dispatcher, DispatcherSettings
from yarrow.am.dispatcher.job_graph_store import InMemoryJobGraphStore, JobGraphStore
from yarrow.am.jobmaster.job_master import JobMasterServices
from yarrow.am.resourcemanager.driver import ResourceManagerDriver
from yarrow.am.resourcemanager.resource_manager import ResourceManager, ResourceManagerSettings
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.common.timers import LoopTimers, Timers
from yarrow.runtime.rpc.gateway_type import DISPATCHER, RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import DispatcherGateway, ResourceManagerGateway
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)


class WebEndpoint(Protocol):
    """The REST server, as far as the control plane cares."""

    async def stop(self) -> None:
        """Takes no more requests and closes its port."""
        ...


#: Starts the REST server for a running control plane.
StartWebEndpoint = Callable[["ControlPlane"], Awaitable[WebEndpoint]]


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """Settings of the components."""

    #: Folder of the blob store; made when needed, removed by whoever chose it.
    blob_directory: str
    dispatcher: DispatcherSettings = field(default_factory=DispatcherSettings)
    resource_manager: ResourceManagerSettings = field(default_factory=ResourceManagerSettings)


@dataclass(frozen=True, slots=True)
class ControlPlaneServices:
    """Time, ids and storage, so that tests can bring their own."""

    clock: Clock = field(default_factory=SystemClock)
    timers: Timers = field(default_factory=LoopTimers)
    ids: IdFactory = field(default_factory=RandomIdFactory)
    job_graphs: JobGraphStore = field(default_factory=InMemoryJobGraphStore)
    checkpoint_recovery: CheckpointRecovery = field(default_factory=InMemoryCheckpointRecovery)


class ControlPlane:
    """The master of one cluster."""

    def __init__(
        self,
        rpc: RpcService,
        driver: ResourceManagerDriver,
        settings: ControlPlaneSettings,
        services: ControlPlaneServices | None = None,
        start_web: StartWebEndpoint | None = None,
    ) -> None:
        """The control plane starts and stops `rpc`; the driver is started and ended by its
        ResourceManager."""
        services = services or ControlPlaneServices()
        self.rpc = rpc
        self.blobs = BlobStore(settings.blob_directory)
        self._start_web = start_web
        self._web: WebEndpoint | None = None
        #: Who leads the ResourceManagers, for the components of this process.
        self.resource_manager_retrieval = AnnouncedLeader()
        self.resource_manager = ResourceManager(
            rpc, driver, settings.resource_manager, services.clock, services.timers, services.ids
        )
        job_services = JobMasterServices(
            rpc=rpc,
            resource_manager=self.resource_manager_retrieval,
            blobs=self.blobs,
            clock=services.clock,
            timers=services.timers,
            ids=services.ids,
            checkpoint_recovery=services.checkpoint_recovery,
        )
        self.dispatcher = Dispatcher(job_services, services.job_graphs, settings.dispatcher)
        self._shut_down = asyncio.Event()
        self.dispatcher.on_shut_down = self._shut_down.set

    async def start(self) -> None:
        """Returns when jobs can be submitted; on an error nothing is left running."""
        try:
            await self.rpc.start()
            await self.resource_manager.start()
            self.resource_manager_retrieval.announce(self.resource_manager.leader)
            await self.dispatcher.start()
            if self._start_web is not None:
                self._web = await self._start_web(self)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends REST, jobs, TaskExecutors of the driver, RPC, in this order. A second call does nothing."""
        if self._web is not None:
            web, self._web = self._web, None
            await web.stop()
        await self.dispatcher.stop()
        await self.resource_manager.stop()
        await self.rpc.stop()

    async def wait_for_shut_down(self) -> None:
        """Returns when a client has asked for the end of the cluster; the caller then stops it."""
        await self._shut_down.wait()

    @property
    def dispatcher_leader(self) -> LeaderInformation:
        """Where clients submit."""
        return self.dispatcher.leader

    @property
    def resource_manager_leader(self) -> LeaderInformation:
        """Where TaskExecutors register."""
        return self.resource_manager.leader

    def dispatcher_gateway(self) -> DispatcherGateway:
        """A client of the Dispatcher for callers in this process."""
        return self.rpc.connect(self.dispatcher.address, DISPATCHER, self.dispatcher.leader_id)

    def resource_manager_gateway(self) -> ResourceManagerGateway:
        """A client of the ResourceManager for callers in this process."""
        leader = self.resource_manager.leader
        return self.rpc.connect(leader.address, RESOURCE_MANAGER, leader.leader_id)
