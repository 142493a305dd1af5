"""ResourceManagerLink: the registration of a JobMaster with the ResourceManager.

It declares the slots that the job needs, and answers heartbeats.

Owner: the JobMaster's loop. Must not decide how many slots are needed (job_scheduler.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobMasterID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.interpreters.job_interpreter import interpreter_of
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.gateway_type import RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.messages import (
    JobMasterRegistration,
    RegistrationRejection,
    RegistrationSuccess,
    ResourceProfile,
    ResourceRequirement,
    ResourceRequirements,
)
from yarrow.runtime.rpc.registration import LeaderConnection, Registration
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)
_TARGET = "resourcemanager"


class ResourceManagerServices(msgspec.Struct, frozen=True):
    """The RPC service, clock and timers that a ResourceManagerLink uses."""

    rpc: RpcService
    resource_manager: LeaderRetrieval
    clock: Clock
    timers: Timers


class ResourceManagerLink:
    """The ResourceManager as a JobMaster sees it.

    The link finds it again whenever it is lost, until `leave`.
    """

    def __init__(
        self,
        owner: RpcEndpoint,
        job: JobGraph,
        leader_id: JobMasterID,
        services: ResourceManagerServices,
        settings: JobMasterSettings,
        on_rejected: Callable[[str], None],
    ) -> None:
        """`on_rejected` gets the reason when the ResourceManager has refused the job for good."""
        self._owner = owner
        self._job_id = job.job_id
        self._leader_id = leader_id
        self._address = ""
        self._required = 0
        #: Description of the interpreter of the job's workers, if the job brings its own.
        self._interpreter = interpreter_of(job)
        self._left = False
        #: Why the job does not get its slots, as the registered ResourceManager explains it.
        self._said = ""
        self._beats: HeartbeatMonitor[str] = HeartbeatMonitor(settings.heartbeat, services.clock)
        self._connection: LeaderConnection[ResourceManagerGateway] = LeaderConnection(
            owner,
            services.rpc,
            RESOURCE_MANAGER,
            services.resource_manager,
            Registration(register=self._register, on_registered=self._registered, on_rejected=on_rejected),
            services.timers,
            settings.registration,
        )

    @property
    def is_registered(self) -> bool:
        """True while a ResourceManager knows the job."""
        return self._connection.gateway is not None

    @property
    def explanation(self) -> str:
        """Why slots are missing; "" = there is nothing to say."""
        if not self.is_registered:
            return "the JobMaster is not registered with a ResourceManager yet"
        return f"ResourceManager: {self._said}" if self._said else ""

    def heard(self, explanation: str) -> None:
        """Takes the ResourceManager's reason for missing slots; "" = the job lacks no slot any more."""
        self._said = explanation

    def start(self, address: str) -> None:
        """Registers; `address` is the JobMaster's own."""
        self._address = address
        self._connection.start()

    def stop(self) -> None:
        """Stops registering and sending."""
        self._left = True
        self._connection.stop()

    def declare(self, slots: int) -> None:
        """Declares how many slots the job needs in all; the present and every later leader hear of it."""
        self._required = slots
        gateway = self._connection.gateway
        if gateway is not None and slots:
            self._owner.spawn(self._declare(gateway), "declare requirements")

    def beat(self) -> None:
        """To be called every heartbeat interval."""
        if self._left:
            return
        if self._beats.tick().silent:
            _log.warning("%s: the ResourceManager is silent, the JobMaster registers again", self._owner.name)
            self._connection.reconnect()
        gateway = self._connection.gateway
        if gateway is not None:
            self._owner.spawn(self._beat(gateway), "heartbeat ResourceManager")

    async def leave(self, status: JobStatus) -> None:
        """Tells the ResourceManager that the job has ended; await it before any slot is freed.

        Otherwise the ResourceManager would give a freed slot to the job again.
        """
        gateway = self._connection.gateway
        self.stop()
        if gateway is not None:
            try:
                await gateway.disconnect_job_master(self._job_id, self._leader_id, status)
            except YarrowError as error:
                _log.info(
                    "%s: the ResourceManager did not hear of the end of the job: %s", self._owner.name, error
                )

    async def _register(self, gateway: ResourceManagerGateway) -> RegistrationSuccess | RegistrationRejection:
        registration = JobMasterRegistration(
            job_id=self._job_id, job_master_id=self._leader_id, address=self._address
        )
        return await gateway.register_job_master(registration)

    def _registered(self, gateway: ResourceManagerGateway, success: RegistrationSuccess) -> None:
        self._beats.monitor(_TARGET)
        # The next leader may have other reasons; it learns the requirements, and answers.
        self._said = ""
        self._owner.spawn(self._declare(gateway), "declare requirements")

    async def _declare(self, gateway: ResourceManagerGateway) -> None:
        requirement = ResourceRequirement(profile=ResourceProfile(), number_of_slots=self._required)
        requirements = ResourceRequirements(
            job_id=self._job_id,
            job_master_address=self._address,
            requirements=(requirement,) if self._required else (),
            interpreter=self._interpreter,
        )
        try:
            await gateway.declare_required_resources(self._leader_id, requirements)
        except YarrowError as error:
            self._start_over(gateway, error)
        else:
            self._connection.confirm()

    async def _beat(self, gateway: ResourceManagerGateway) -> None:
        try:
            await gateway.heartbeat_from_job_master(self._job_id, self._leader_id)
        except YarrowError as error:
            self._start_over(gateway, error)
        else:
            self._beats.heard(_TARGET)

    def _start_over(self, gateway: ResourceManagerGateway, error: YarrowError) -> None:
        """Registers anew after a failed message, because the registration may be invalid."""
        _log.info("%s: the JobMaster registers with the ResourceManager again: %s", self._owner.name, error)
        if not self._left and self._connection.gateway is gateway:
            self._connection.reconnect()
