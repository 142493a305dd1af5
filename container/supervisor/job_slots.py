"""JobSlots: a TaskExecutor's slots, the workers in them, and the JobMasters that they serve.

Owner: the TaskExecutor's event loop. Must not speak with the ResourceManager: it tells `SlotObserver` which
slots became free and which JobMasters to watch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from yarrow.container.launch.worker_launcher import WorkerExit
from yarrow.container.protocol.errors import (
    EngineNotImportedError,
    SlotNotFoundError,
    UnfitInterpreterError,
    WorkerStartError,
)
from yarrow.container.protocol.worker_protocol import (
    MessageFromWorker,
    TaskStateChanged,
)
from yarrow.container.supervisor.job_checkpoints import JobCheckpoints
from yarrow.container.supervisor.job_connection import FailedSlot, JobConnection
from yarrow.container.supervisor.lost_worker import lost_worker_cause
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.supervisor.slot_table import SlotTable, TaskExecutorSlot, TaskExecutorSlotState
from yarrow.container.supervisor.slot_tasks import SlotTasks
from yarrow.container.supervisor.slot_workers import SlotWorkers
from yarrow.container.supervisor.worker_handle import WorkerHandle, WorkerListener
from yarrow.container.supervisor.worker_reports import WorkerReports
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.ha.services import epoch_of_token
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, SlotRequest, TaskExecutionStateUpdate

#: A slot in which so many workers died within so many seconds gets no other: it is freed.
DEATHS_UNTIL_FREED = 3
DEATHS_WITHIN = 60.0
_log = logging.getLogger(__name__)


class SlotObserver(Protocol):
    """Reacts to changes of slots; the TaskExecutor."""

    def connect_job(self, request: SlotRequest) -> JobConnection:
        """Makes the connection to the JobMaster that a slot request names; not started yet."""
        ...

    def on_job_opened(self, job_id: JobID) -> None: ...

    def on_job_closed(self, job_id: JobID) -> None: ...

    def on_slot_freed(self, slot_index: int, allocation_id: AllocationID) -> None: ...

    def on_files_gone(self, error: FileNotFoundError) -> None:
        """Takes note that a worker could not be started because files of every worker are missing."""
        ...


class SlotTimeouts(msgspec.Struct, frozen=True):
    """Time limits in a slot."""

    #: From the offer of a slot to its acceptance.
    acceptance_seconds: float
    #: From a task's cancellation to its end; 0 = for ever.
    cancellation_seconds: float
    #: From a slot's release to its worker's end.
    release_seconds: float


class JobSlots:
    """All slots of one TaskExecutor, with their jobs and workers."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        table: SlotTable,
        observer: SlotObserver,
        files: OutputFiles,
        clock: Clock,
        timers: Timers,
        timeouts: SlotTimeouts,
        workers: Callable[[WorkerListener], SlotWorkers],
    ) -> None:
        """`workers` makes the workers of the slots; they report to this object."""
        self.table = table
        self.reports = WorkerReports(endpoint, files, self)
        self.checkpoints = JobCheckpoints(table)
        self.tasks = SlotTasks(self, endpoint.name, clock, timers, timeouts.cancellation_seconds)
        #: The workers of the slots.
        self.workers = workers(self)
        self._endpoint = endpoint
        self._observer = observer
        self._clock = clock
        self._timers = timers
        self._slot_timeout = timeouts.acceptance_seconds
        self._release_grace = timeouts.release_seconds
        self._jobs: dict[JobID, JobConnection] = {}
        #: Monotonic seconds at which the last workers of each slot died by themselves.
        self._deaths: dict[int, deque[float]] = {}

    # Jobs

    def job(self, job_id: JobID, job_master_id: JobMasterID) -> JobConnection:
        """The connection of a job.

        Raises FencingTokenError if there is none, or it belongs to another JobMaster.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise FencingTokenError(
                f"{self._endpoint.name} has no slot for the job {job_id}, whose JobMaster was silent for too"
                " long or has disconnected: request slots again"
            )
        if job.job_master_id != job_master_id:
            raise FencingTokenError(
                f"{self._endpoint.name} serves the job {job_id} for the JobMaster {job.job_master_id}, and "
                f"refuses a message of {job_master_id}"
            )
        return job

    def find_job(self, job_id: JobID) -> JobConnection | None:
        """The connection of a job, whoever its JobMaster."""
        return self._jobs.get(job_id)

    def jobs(self) -> tuple[JobConnection, ...]:
        """All connections."""
        return tuple(self._jobs.values())

    def close_job(self, job_id: JobID, cause: str) -> None:
        """Ends the job's tasks and frees its slots, because the JobMaster is done or lost."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        _log.info("job %s: disconnected from its JobMaster: %s", job_id, cause)
        job.close()
        self.checkpoints.job_closed(job_id)
        for slot in self.table.of_job(job_id):
            assert slot.owner is not None
            self.free(slot.owner.allocation_id, cause)
        self._endpoint.spawn(job.files.close(), f"remove-files-{job_id}")
        self._observer.on_job_closed(job_id)

    def on_job_master_registered(self, job: JobConnection) -> None:
        _log.info("job %s: registered at its JobMaster", job.job_id)

    def on_job_master_lost(self, job: JobConnection, cause: str) -> None:
        if self._jobs.get(job.job_id) is job:
            self.close_job(job.job_id, cause)

    # Slots

    def request(self, request: SlotRequest) -> None:
        """Allocates a slot and starts its worker. Raises SlotNotAvailableError if the slot is taken."""
        known = self._jobs.get(request.job_id)
        if known is not None and known.job_master_id != request.job_master_id:
            if epoch_of_token(request.job_master_id) < epoch_of_token(known.job_master_id):
                raise FencingTokenError(
                    f"{self._endpoint.name} serves the job {request.job_id} for the JobMaster"
                    f" {known.job_master_id}, and refuses {request.job_master_id}, which does not lead any"
                    " more"
                )
            self.close_job(
                request.job_id, f"the JobMaster {request.job_master_id} has replaced the former one"
            )
        if not self.table.allocate(request.slot_id.index, request.job_id, request.allocation_id):
            return
        if request.job_id not in self._jobs:
            job = self._jobs[request.job_id] = self._observer.connect_job(request)
            job.start()
            self._observer.on_job_opened(request.job_id)
        self._endpoint.spawn(
            self._bring_up(request.slot_id.index, request.job_id, request.allocation_id),
            f"slot-{request.slot_id.index}",
        )

    async def _bring_up(self, index: int, job_id: JobID, allocation_id: AllocationID) -> None:
        try:
            interpreter = await self._own_interpreter(job_id, allocation_id)
            address = await self.workers.start(index, interpreter)
        except (WorkerStartError, OSError) as error:
            self._start_failed(index, job_id, allocation_id, error)
            return
        slot = self.table.find(allocation_id)
        worker = self.workers.get(index)
        if worker is None or slot is None:
            return
        if slot.state is not TaskExecutorSlotState.ALLOCATED:
            worker.handle.stop("the slot was given up before its worker was ready", self._release_grace)
            return
        job = self._jobs[job_id]
        job.offer(
            SlotOffer(
                allocation_id=allocation_id,
                slot_index=index,
                profile=self.table.profile,
                worker=address,
            )
        )
        self._timers.call_later(self._slot_timeout, lambda: self._check_accepted(allocation_id))

    async def _own_interpreter(self, job_id: JobID, allocation_id: AllocationID) -> str:
        """The job's own interpreter, once it is ready; "" = the common one. Raises WorkerStartError."""
        job = self._jobs.get(job_id)
        if job is None or job.interpreter is None:
            return ""
        path = await job.interpreter.path()
        slot = self.table.find(allocation_id)
        if slot is None or slot.state is not TaskExecutorSlotState.ALLOCATED:
            raise WorkerStartError("the slot was given up before its interpreter was ready")
        return path

    def _start_failed(self, index: int, job_id: JobID, allocation_id: AllocationID, error: Exception) -> None:
        slot = self.table.find(allocation_id)
        if slot is None:
            return  # Its worker had been launched and has ended, which did everything.
        job = self._jobs.get(job_id)
        unwanted = slot.state is TaskExecutorSlotState.RELEASING
        _log.log(logging.INFO if unwanted else logging.ERROR, "slot %d: %s", index, error)
        if not unwanted and job is not None:
            job.report(FailedSlot(allocation_id, self._start_cause(error)))
        self.table.release(allocation_id, str(error))
        if self.workers.get(index) is None:
            self._freed(allocation_id)
        if isinstance(error, FileNotFoundError):
            self._observer.on_files_gone(error)

    def _start_cause(self, error: Exception) -> FailureCause:
        kind = type(error) if isinstance(error, WorkerStartError) else WorkerStartError
        name = f"{kind.__module__}.{kind.__qualname__}"
        output = error.output.strip() if isinstance(error, EngineNotImportedError) else ""
        return FailureCause(
            exception_name=name,
            message=str(error),
            stacktrace="\n".join(filter(None, [output, f"{name}: {error}"])),
            is_final=self._would_fail_anywhere(error),
        )

    def _would_fail_anywhere(self, error: Exception) -> bool:
        """Whether no other slot would help. On another host the environment might be whole."""
        is_everywhere = isinstance(error, EngineNotImportedError) and self.workers.are_of_one_client
        return is_everywhere or isinstance(error, UnfitInterpreterError)

    def _check_accepted(self, allocation_id: AllocationID) -> None:
        slot = self.table.find(allocation_id)
        if slot is not None and slot.state is TaskExecutorSlotState.ALLOCATED:
            self.free(
                allocation_id,
                f"the JobMaster did not accept the slot within {self._slot_timeout:g} s"
                " (taskmanager.slot.timeout)",
            )

    def on_slots_accepted(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None:
        for allocation_id in allocations:
            slot = self.table.find(allocation_id)
            if slot is not None and slot.state is TaskExecutorSlotState.ALLOCATED:
                self.table.activate(allocation_id)

    def on_slots_rejected(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None:
        for allocation_id in allocations:
            self.free(allocation_id, "the JobMaster has no use for the slot")

    def free(self, allocation_id: AllocationID, cause: str) -> None:
        """Gives a slot up: its worker ends, then the slot is free; no effect on a free slot."""
        slot = self.table.find(allocation_id)
        if slot is None or not self.table.release(allocation_id, cause):
            return
        assert slot.owner is not None
        job = self._jobs.get(slot.owner.job_id)
        if job is not None:
            job.withdraw(allocation_id)
        worker = self.workers.get(slot.index)
        if worker is not None:
            worker.handle.stop(cause, self._release_grace)

    def _freed(self, allocation_id: AllocationID) -> None:
        slot = self.table.free(allocation_id)
        self._observer.on_slot_freed(slot.index, allocation_id)

    # Workers

    def on_worker_message(self, worker: WorkerHandle, message: MessageFromWorker) -> None:
        slot_worker = self.workers.get(worker.slot_index)
        if slot_worker is not None and slot_worker.handle is worker:
            self.reports.handle(self.slot_at(worker.slot_index), slot_worker, message)
            if isinstance(message, TaskStateChanged) and message.update.threads_left:
                self._end_polluted(worker, message.update)

    @staticmethod
    def _end_polluted(worker: WorkerHandle, ended: TaskExecutionStateUpdate) -> None:
        """Ends a worker in which threads of a failed task live on.

        Such threads may write what the next attempt writes, and only the end of the process ends them. The
        JobMaster sees them in the report and gives the worker up too.
        """
        if ended.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
            worker.kill(
                f"the task {ended.attempt_id} is {ended.state.value} and left the threads "
                f"{', '.join(ended.threads_left)} running"
            )

    def slot_at(self, index: int) -> TaskExecutorSlot:
        """The slot of that index."""
        return next(slot for slot in self.table if slot.index == index)

    def on_worker_ended(self, worker: WorkerHandle, end: WorkerExit) -> None:
        slot = self.slot_at(worker.slot_index)
        slot_worker = self.workers.get(worker.slot_index)
        if slot_worker is None or slot.owner is None:
            return
        call, tail = slot_worker.evidence()
        self.workers.forget(worker.slot_index)
        self.reports.forget(slot)
        allocation_id = slot.owner.allocation_id
        job = self._jobs.get(slot.owner.job_id)
        failed = (
            None
            if worker.is_ready
            else EngineNotImportedError.told_by(f"the worker of slot {slot.index}", tail)
        )
        if failed is not None:
            cause = self._start_cause(failed)
        else:
            cause = lost_worker_cause(slot.index, end, slot.tasks, call, tail, worker.end_cause)
        if slot.state is TaskExecutorSlotState.ACTIVE or slot.tasks:
            _log.log(logging.WARNING if slot.tasks else logging.INFO, "%s", cause.message)
        if job is not None:
            self._report_lost(slot, job, cause)
            replaced = slot.state is TaskExecutorSlotState.ACTIVE and not worker.stopped
            if replaced and not self._dies_too_often(slot.index):
                self._replace_worker(slot.index, job, allocation_id, cause.message)
                return
        self.table.release(allocation_id, cause.message)
        self._freed(allocation_id)

    def _dies_too_often(self, index: int) -> bool:
        """Notes the death of a slot's worker; a slot whose workers die too often returns to the ResourceManager."""
        deaths = self._deaths.setdefault(index, deque(maxlen=DEATHS_UNTIL_FREED))
        deaths.append(self._clock.monotonic())
        return len(deaths) == deaths.maxlen and deaths[-1] - deaths[0] <= DEATHS_WITHIN

    def _replace_worker(
        self, index: int, job: JobConnection, allocation_id: AllocationID, cause: str
    ) -> None:
        """Starts a new worker in the job's slot at once; the slot is offered after the report of the loss."""
        self.table.lose_worker(allocation_id, cause)
        self._endpoint.spawn(self._bring_up(index, job.job_id, allocation_id), f"slot-{index}")

    def _report_lost(self, slot: TaskExecutorSlot, job: JobConnection, cause: FailureCause) -> None:
        assert slot.owner is not None
        if slot.state is not TaskExecutorSlotState.RELEASING:
            job.report(FailedSlot(slot.owner.allocation_id, cause))
            return
        now = self._clock.epoch_ms()
        for attempt in slot.tasks:
            job.report(
                TaskExecutionStateUpdate(
                    attempt_id=attempt, state=ExecutionState.FAILED, timestamp_ms=now, cause=cause
                )
            )

    def running(self, job_id: JobID) -> tuple[ExecutionAttemptID, ...]:
        """Attempts whose end the JobMaster does not know yet.

        Some are running, and the end of others is being reported.
        """
        attempts = {attempt for slot in self.table.of_job(job_id) for attempt in slot.tasks}
        job = self._jobs.get(job_id)
        return tuple(sorted(attempts | (job.unreported() if job is not None else set())))

    def compare(self, job: JobConnection, reported: dict[AllocationID, int]) -> None:
        """Compares slots with the JobMaster's view, to repair the effects of lost messages."""
        surplus, unknown = self.table.compare(job.job_id, reported)
        for allocation_id in surplus:
            self.free(allocation_id, "the JobMaster does not know the slot")
        for allocation_id in unknown:
            error = SlotNotFoundError(f"{self._endpoint.name} has no slot of the allocation {allocation_id}")
            name = f"{SlotNotFoundError.__module__}.{SlotNotFoundError.__qualname__}"
            cause = FailureCause(exception_name=name, message=str(error), stacktrace=f"{name}: {error}")
            job.report(FailedSlot(allocation_id, cause))
