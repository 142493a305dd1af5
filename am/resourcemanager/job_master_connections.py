"""JobMasterConnections: the registered JobMasters, and the messages of the ResourceManager to them.

Owner: the ResourceManager's loop. JobMasters send heartbeats by themselves. This module names silent ones,
and the ResourceManager drops them. A lost message is not repeated: the next one, or a heartbeat, makes up for
it.
"""

from __future__ import annotations

import logging

import msgspec

from yarrow.am.resourcemanager.task_executor_connections import Spawn
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.gateway_type import JOB_MASTER
from yarrow.runtime.rpc.gateways import JobMasterGateway
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor, HeartbeatSettings
from yarrow.runtime.rpc.messages import JobMasterRegistration
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)


class _JobMaster(msgspec.Struct):
    registration: JobMasterRegistration
    gateway: JobMasterGateway
    #: Why its job waits for slots; to be sent.
    explanation: str = ""
    #: The number of slots that there can be; None = unknown.
    most_slots: int | None = None
    #: An explanation is being sent.
    telling: bool = False


class JobMasterConnections:
    """All registered JobMasters, until they are dropped."""

    def __init__(self, service: RpcService, heartbeat: HeartbeatSettings, clock: Clock, spawn: Spawn) -> None:
        self._service = service
        self._spawn = spawn
        self._masters: dict[JobID, _JobMaster] = {}
        self._beats: HeartbeatMonitor[JobID] = HeartbeatMonitor(heartbeat, clock)

    def register(self, registration: JobMasterRegistration) -> None:
        """Registers a JobMaster; a former one of the job is fenced off."""
        gateway = self._service.connect(registration.address, JOB_MASTER, registration.job_master_id)
        self._masters[registration.job_id] = _JobMaster(registration, gateway)
        self._beats.monitor(registration.job_id)

    def check(self, job_id: JobID, job_master_id: JobMasterID) -> None:
        """Raises FencingTokenError unless that JobMaster is the job's registered one."""
        master = self._masters.get(job_id)
        present = master.registration.job_master_id if master is not None else None
        if present != job_master_id:
            raise FencingTokenError(
                f"the JobMaster {job_master_id} of job {job_id} is not the registered one ({present}): the "
                "JobMaster must register again"
            )

    def drop(self, job_id: JobID) -> None:
        """Removes the job's JobMaster."""
        self._masters.pop(job_id, None)
        self._beats.unmonitor(job_id)

    def heard(self, job_id: JobID) -> None:
        """Notes a heartbeat of a registered JobMaster."""
        self._beats.heard(job_id)

    def silent(self) -> list[JobID]:
        """Jobs whose JobMaster was silent for heartbeat.timeout. Call it every heartbeat interval."""
        return list(self._beats.tick().silent)

    def tell_lost(self, resource_id: ResourceID, cause: str) -> None:
        """Tells all jobs that a TaskExecutor is gone, so that they need not wait for their own heartbeats."""
        for master in self._masters.values():
            self._spawn(self._tell_lost(master, resource_id, cause), "TaskExecutor lost")

    async def _tell_lost(self, master: _JobMaster, resource_id: ResourceID, cause: str) -> None:
        try:
            await master.gateway.disconnect_task_executor(resource_id, cause)
        except YarrowError as error:
            _log.info(
                "job %s did not hear that a TaskExecutor is lost: %s", master.registration.job_id, error
            )

    def explain(self, job_id: JobID, explanation: str, most_slots: int | None) -> None:
        """Tells the job why it waits for slots; "" = it lacks none any more."""
        master = self._masters.get(job_id)
        if master is None:
            return
        master.explanation, master.most_slots = explanation, most_slots
        if not master.telling:
            master.telling = True
            self._spawn(self._tell_explanation(master), "not enough resources")

    async def _tell_explanation(self, master: _JobMaster) -> None:
        """Sends one message at a time, so that the last explanation arrives last."""
        told = None
        try:
            while told != (master.explanation, master.most_slots):
                told = master.explanation, master.most_slots
                try:
                    await master.gateway.notify_not_enough_resources(*told)
                except YarrowError as error:
                    _log.info(
                        "job %s did not hear why it waits for slots: %s", master.registration.job_id, error
                    )
        finally:
            master.telling = False
