"""JobConnection: a TaskExecutor's connection to one JobMaster: registration, slot offers, and reports in order.

Owner: the TaskExecutor's event loop. Must not touch slots: it tells its listener which ones the JobMaster
took or refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

import msgspec

from yarrow.container.supervisor.job_files import JobFiles
from yarrow.container.supervisor.job_interpreter import OwnInterpreter
from yarrow.container.supervisor.output_forwarder import OutputGate
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID, ResourceID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import MessageTooLargeError, RpcUnavailableError
from yarrow.runtime.rpc.gateway_type import JOB_MASTER
from yarrow.runtime.rpc.gateways import JobMasterGateway
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CollectConfirmation,
    CollectRows,
    DeclineCheckpoint,
    FailureCause,
    OperatorEvent,
    RegistrationRejection,
    RegistrationSuccess,
    SlotOffer,
    TaskExecutionStateUpdate,
    WatermarkReport,
)
from yarrow.runtime.rpc.registration import LeaderConnection, Registration, RegistrationSettings
from yarrow.runtime.rpc.service import RpcService

#: Most updates in one message.
MAX_BATCH = 200
_log = logging.getLogger(__name__)


class JobListener(Protocol):
    """Hears the JobMaster's answers."""

    def on_job_master_registered(self, job: JobConnection) -> None: ...

    def on_slots_accepted(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None: ...

    def on_slots_rejected(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None: ...

    def on_job_master_lost(self, job: JobConnection, cause: str) -> None: ...


class FailedSlot(msgspec.Struct, frozen=True):
    """A slot whose worker is gone: a report that keeps its place among the task states."""

    allocation_id: AllocationID
    cause: FailureCause


class EndReport(msgspec.Struct, frozen=True):
    """A task has emitted all its records and waits for its last checkpoint."""

    attempt_id: ExecutionAttemptID


Report = (
    TaskExecutionStateUpdate
    | OperatorEvent
    | FailedSlot
    | EndReport
    | AcknowledgeCheckpoint
    | AcknowledgeCoordinator
    | DeclineCheckpoint
    | WatermarkReport
)


class Registrant(msgspec.Struct, frozen=True):
    """The TaskExecutor as it registers with JobMasters."""

    resource_id: ResourceID
    #: Address of its gateway.
    address: str
    host: str


class JobOfSlots(msgspec.Struct, frozen=True):
    """A job that has slots here."""

    job_id: JobID
    leader: LeaderInformation
    files: JobFiles
    #: None = the job's workers use the common interpreter.
    interpreter: OwnInterpreter | None = None


class ConnectionServices(msgspec.Struct, frozen=True):
    """The RPC service, timers and settings that a JobConnection uses."""

    rpc: RpcService
    timers: Timers
    #: Pauses between attempts to register and to send reports.
    registration: RegistrationSettings
    output: OutputGate


class JobConnection:
    """The connection to one JobMaster, from the job's first slot until the JobMaster is done or lost."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        services: ConnectionServices,
        listener: JobListener,
        registrant: Registrant,
        job: JobOfSlots,
    ) -> None:
        leader = job.leader
        self.job_id = job.job_id
        #: None = the job's workers use the common interpreter.
        self.interpreter = job.interpreter
        self.job_master_id = JobMasterID(leader.leader_id)
        self.files = job.files
        #: Attempts whose deployment is being prepared here.
        self.deploying: set[ExecutionAttemptID] = set()
        #: Of these, the ones cancelled meanwhile: they must not start.
        self.cancelled_early: set[ExecutionAttemptID] = set()
        self._endpoint = endpoint
        self._timers = services.timers
        self._listener = listener
        self._resource_id = registrant.resource_id
        self._output = services.output
        self._retry_pause = services.registration.initial_pause
        self._reports: deque[Report] = deque()
        self._offers: dict[AllocationID, SlotOffer] = {}
        self._wake = asyncio.Event()
        self._offer_wake = asyncio.Event()
        self._closed = False
        #: Calls at this address carry the JobMaster's token.
        self.gateway: JobMasterGateway = self.gateway_of(services.rpc, leader)

        async def register(gateway: JobMasterGateway) -> RegistrationSuccess | RegistrationRejection:
            return await gateway.register_task_executor(
                registrant.resource_id, registrant.address, registrant.host
            )

        self._registration = LeaderConnection(
            endpoint,
            services.rpc,
            JOB_MASTER,
            AnnouncedLeader(leader),
            Registration(register=register, on_registered=self._registered, on_rejected=self._rejected),
            services.timers,
            services.registration,
        )
        self._work: list[asyncio.Task[None]] = []

    @staticmethod
    def gateway_of(service: RpcService, leader: LeaderInformation) -> JobMasterGateway:
        """A client of that JobMaster."""
        return service.connect(leader.address, JOB_MASTER, leader.leader_id)

    def start(self) -> None:
        """Registers, with retries until it is accepted, refused or closed."""
        self._registration.start()

    @property
    def is_registered(self) -> bool:
        """True when the JobMaster has accepted this TaskExecutor."""
        return bool(self._work)

    def close(self) -> None:
        """Stops sending."""
        if self._closed:
            return
        self._closed = True
        self._registration.stop()
        for task in self._work:
            task.cancel()

    def offer(self, offer: SlotOffer) -> None:
        """Offers a slot, repeated until the JobMaster has answered; the listener hears the answer."""
        self._offers[offer.allocation_id] = offer
        self._offer_wake.set()

    def withdraw(self, allocation_id: AllocationID) -> None:
        """Stops offering the slot."""
        self._offers.pop(allocation_id, None)

    def report(self, report: Report) -> None:
        """Queues a report; reports reach the JobMaster in this order, at least once."""
        self._reports.append(report)
        self._wake.set()

    def report_watermark(self, report: WatermarkReport) -> None:
        """Queues the event time of a reader, in place of an earlier one of it that waits."""
        for position, waiting in enumerate(self._reports):
            # The first report may be on its way.
            if position and isinstance(waiting, WatermarkReport) and waiting.attempt_id == report.attempt_id:
                self._reports[position] = report
                return
        self.report(report)

    def unreported(self) -> set[ExecutionAttemptID]:
        """Attempts with unreported states."""
        return {each.attempt_id for each in self._reports if isinstance(each, TaskExecutionStateUpdate)}

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation | None:
        """Sends rows to the JobMaster, and waits for room for the next.

        Returns None if the JobMaster does not take them any more.
        """
        while not self._closed:
            try:
                return await self.gateway.push_collected(rows)
            except RpcUnavailableError as error:
                _log.info(
                    "job %s: the JobMaster did not take collected rows, the TaskExecutor sends them"
                    " again: %s",
                    self.job_id,
                    error,
                )
                await self._pause()
            except YarrowError as error:
                _log.warning("job %s: the JobMaster refused collected rows: %s", self.job_id, error)
                return None
        return None

    def _registered(self, gateway: JobMasterGateway, success: RegistrationSuccess) -> None:
        if not self._work:
            self._work = [
                self._endpoint.spawn(self._send_reports(), f"reports-{self.job_id}"),
                self._endpoint.spawn(self._send_offers(), f"offers-{self.job_id}"),
            ]
        self._offer_wake.set()
        self._listener.on_job_master_registered(self)

    def _rejected(self, reason: str) -> None:
        self._listener.on_job_master_lost(self, f"the JobMaster refused this TaskExecutor: {reason}")

    async def _pause(self) -> None:
        passed = asyncio.Event()
        timer = self._timers.call_later(self._retry_pause, passed.set)
        try:
            await passed.wait()
        finally:
            timer.cancel()

    async def _send_offers(self) -> None:
        registered_anew = False
        while True:
            await self._offer_wake.wait()
            self._offer_wake.clear()
            if self._registration.gateway is None:
                # The next registration wakes this loop.
                continue
            # A slot with a new worker is offered only after the JobMaster knows that the old worker is gone.
            lost = {report.allocation_id for report in self._reports if isinstance(report, FailedSlot)}
            offers = tuple(offer for offer in self._offers.values() if offer.allocation_id not in lost)
            if not offers:
                continue
            offered = tuple(offer.allocation_id for offer in offers)
            try:
                taken = set(await self.gateway.offer_slots(self._resource_id, offers))
            except RpcUnavailableError as error:
                _log.info(
                    ("job %s: the JobMaster did not answer a slot offer, the TaskExecutor offers again: %s"),
                    self.job_id,
                    error,
                )
                await self._pause()
                self._offer_wake.set()
                continue
            except YarrowError as error:
                if not registered_anew and not isinstance(error, FencingTokenError):
                    # It may have given this TaskExecutor up and forgotten the registration.
                    _log.info(
                        "job %s: a slot offer failed, the TaskExecutor registers again: %s",
                        self.job_id,
                        error,
                    )
                    registered_anew = True
                    self._registration.reconnect()
                    continue
                _log.warning("job %s: the JobMaster refused a slot offer: %s", self.job_id, error)
                taken = set()
            else:
                self._registration.confirm()
            registered_anew = False
            # A slot that was given up during the offer is not ours any more.
            current = tuple(each for each in offered if self._offers.pop(each, None) is not None)
            accepted = tuple(each for each in current if each in taken)
            rejected = tuple(each for each in current if each not in taken)
            if accepted:
                self._listener.on_slots_accepted(self, accepted)
            if rejected:
                self._listener.on_slots_rejected(self, rejected)

    async def _send_reports(self) -> None:
        while True:
            while not self._reports:
                self._wake.clear()
                await self._wake.wait()
            # The client must have a task's output before it hears that the task has ended.
            await self._output.drained()
            sent = await self._send_first()
            for _ in range(sent):
                if isinstance(self._reports.popleft(), FailedSlot):
                    self._offer_wake.set()

    async def _send_first(self) -> int:
        """Sends the first reports, state updates in a batch; returns how many reports are done."""
        first = self._reports[0]
        try:
            if isinstance(first, TaskExecutionStateUpdate):
                batch = self._first_updates()
                await self._send_updates(batch)
                return len(batch)
            try:
                await self._send_one(first)
            except MessageTooLargeError as error:
                await self._send_one(_as_decline(first, error))
        except RpcUnavailableError as error:
            _log.info(
                "job %s: the JobMaster did not answer a report, the TaskExecutor sends it again: %s",
                self.job_id,
                error,
            )
            await self._pause()
            return 0
        except FencingTokenError as error:
            self._listener.on_job_master_lost(self, f"the JobMaster does not lead any more: {error}")
        except YarrowError as error:
            _log.error(
                "job %s: the JobMaster refused a report (%s): %s", self.job_id, type(first).__name__, error
            )
        return 1

    async def _send_one(self, report: Report) -> None:
        gateway = self.gateway
        match report:
            case FailedSlot():
                await gateway.fail_slot(self._resource_id, report.allocation_id, report.cause)
            case EndReport():
                await gateway.notify_end_of_data(self.job_id, (report.attempt_id,))
            case OperatorEvent():
                await gateway.send_operator_event(report)
            case WatermarkReport():
                await gateway.report_watermark(report)
            case AcknowledgeCheckpoint():
                await gateway.acknowledge_checkpoint(report)
            case AcknowledgeCoordinator():
                await gateway.acknowledge_coordinator(report)
            case DeclineCheckpoint():
                await gateway.decline_checkpoint(report)
            case TaskExecutionStateUpdate():
                await gateway.update_task_execution_states((report,))

    def _first_updates(self) -> tuple[TaskExecutionStateUpdate, ...]:
        batch: list[TaskExecutionStateUpdate] = []
        for report in self._reports:
            if not isinstance(report, TaskExecutionStateUpdate) or len(batch) == MAX_BATCH:
                break
            batch.append(report)
        return tuple(batch)

    async def _send_updates(self, batch: tuple[TaskExecutionStateUpdate, ...]) -> None:
        try:
            await self.gateway.update_task_execution_states(batch)
        except MessageTooLargeError as error:
            if len(batch) > 1:
                # After a later failure a part may be sent twice, which is harmless: states only move forward.
                middle = len(batch) // 2
                await self._send_updates(batch[:middle])
                await self._send_updates(batch[middle:])
                return
            await self.gateway.update_task_execution_states((_without_payload(batch[0], str(error)),))


def _as_decline(report: Report, error: MessageTooLargeError) -> Report:
    """Replaces an acknowledgement above the message limit by a declined checkpoint with the reason."""
    if not isinstance(report, AcknowledgeCheckpoint | AcknowledgeCoordinator):
        raise error
    name = f"{MessageTooLargeError.__module__}.{MessageTooLargeError.__qualname__}"
    message = (
        f"{error}; this message carries the state that stays in the master process. Use a"
        " FileSystemCheckpointStorage (execution.checkpointing.dir), or a smaller"
        " execution.checkpointing.data-inline-threshold"
    )
    attempt = report.attempt_id if isinstance(report, AcknowledgeCheckpoint) else ExecutionAttemptID("")
    cause = FailureCause(exception_name=name, message=message, stacktrace=f"{name}: {message}")
    return DeclineCheckpoint(
        job_id=report.job_id, checkpoint_id=report.checkpoint_id, attempt_id=attempt, cause=cause
    )


def _without_payload(update: TaskExecutionStateUpdate, reason: str) -> TaskExecutionStateUpdate:
    """The update as a failure that fits into a message, without its accumulators, metrics or late records."""
    if update.cause is not None:
        # Causes were cut where they were caught.
        return msgspec.structs.replace(update, accumulators={}, metrics={}, late_records=())
    name = f"{MessageTooLargeError.__module__}.{MessageTooLargeError.__qualname__}"
    message = f"the task ended, but its accumulators could not be reported: {reason}"
    return msgspec.structs.replace(
        update,
        state=ExecutionState.FAILED,
        cause=FailureCause(exception_name=name, message=message, stacktrace=f"{name}: {message}"),
        accumulators={},
        metrics={},
        late_records=(),
    )
