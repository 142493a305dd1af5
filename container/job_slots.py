"""Slots, the workers in them and the JobMasters they serve: what a TaskExecutor does between its RPC calls.

Owner: the TaskExecutor's event loop. Must not speak with the ResourceManager: it tells `SlotObserver` which
slots became free and which JobMasters are to be watched.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from yarrow.container.errors import (
    FrameError,
    SlotNotAvailableError,
    SlotNotFoundError,
    TaskNotFoundError,
    TaskSubmissionError,
    WorkerStartError,
)
from yarrow.container.job_checkpoints import JobCheckpoints, slot_of_attempt
from yarrow.container.job_connection import FailedSlot, JobConnection
from yarrow.container.lost_worker import lost_worker_cause
from yarrow.container.output_files import OutputFiles
from yarrow.container.slot_table import Slot, SlotState, SlotTable, TaskName
from yarrow.container.slot_workers import SlotWorker, SlotWorkers
from yarrow.container.worker_handle import WorkerHandle
from yarrow.container.worker_launcher import WorkerExit
from yarrow.container.worker_protocol import (
    CancelTasks,
    DeliverOperatorEvent,
    MessageFromWorker,
    SubmitTasks,
    TaskStateChanged,
)
from yarrow.container.worker_reports import WorkerReports
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID, JobVertexID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    Deployment,
    FailureCause,
    OperatorEvent,
    SlotOffer,
    SlotRequest,
    TaskDeploymentDescriptor,
    TaskExecutionStateUpdate,
)

#: A slot in which so many workers died within so many seconds gets no other: it is given back.
DEATHS_UNTIL_FREED = 3
DEATHS_WITHIN = 60.0
_log = logging.getLogger(__name__)


class SlotObserver(Protocol):
    """What the TaskExecutor does about changes here."""

    def connect_job(self, request: SlotRequest) -> JobConnection:
        """Makes the connection to the JobMaster that a slot request names; not started yet."""
        ...

    def on_job_opened(self, job_id: JobID) -> None: ...

    def on_job_closed(self, job_id: JobID) -> None: ...

    def on_slot_freed(self, slot_index: int, allocation_id: AllocationID) -> None: ...


class JobSlots:
    """All slots with all that hangs on them."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        table: SlotTable,
        observer: SlotObserver,
        files: OutputFiles,
        clock: Clock,
        timers: Timers,
        *,
        slot_timeout: float,
        cancellation_timeout: float,
        release_grace: float,
    ) -> None:
        """Seconds: `slot_timeout` from the offer to its acceptance, `cancellation_timeout` from a task's
        cancellation to its end (0 = for ever), `release_grace` from a slot's release to its worker's end.
        """
        self.table = table
        self.reports = WorkerReports(endpoint, files, self)
        self.checkpoints = JobCheckpoints(table)
        self._endpoint = endpoint
        self._observer = observer
        self._clock = clock
        self._timers = timers
        self._slot_timeout = slot_timeout
        self._cancellation_timeout = cancellation_timeout
        self._release_grace = release_grace
        self._jobs: dict[JobID, JobConnection] = {}
        self._workers: SlotWorkers | None = None
        #: When the last workers of each slot died by themselves; monotonic seconds.
        self._deaths: dict[int, deque[float]] = {}

    def use_workers(self, workers: SlotWorkers) -> None:
        """Sets where workers come from; they report to this object, hence two steps."""
        self._workers = workers

    @property
    def workers(self) -> SlotWorkers:
        """The workers of the slots."""
        assert self._workers is not None
        return self._workers

    # Jobs

    def job(self, job_id: JobID, job_master_id: JobMasterID) -> JobConnection:
        """The connection of a job; FencingTokenError when it is none, or another JobMaster's."""
        job = self._jobs.get(job_id)
        if job is None:
            raise FencingTokenError(
                f"{self._endpoint.name} has no slot for the job {job_id}: its JobMaster was silent for too "
                "long or has disconnected; request slots again"
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
        """The JobMaster is done or lost: the job's tasks end and its slots become free."""
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
        """Allocates a slot and brings a worker up for it; SlotNotAvailableError when it is taken."""
        known = self._jobs.get(request.job_id)
        if known is not None and known.job_master_id != request.job_master_id:
            self.close_job(request.job_id, f"the JobMaster {request.job_master_id} has replaced it")
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
            address = await self.workers.start(index)
        except (WorkerStartError, OSError) as error:
            self._start_failed(index, job_id, allocation_id, error)
            return
        slot = self.table.find(allocation_id)
        worker = self.workers.get(index)
        if worker is None or slot is None:
            return
        if slot.state is not SlotState.ALLOCATED:
            worker.handle.stop("its slot was given up before it was ready", self._release_grace)
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

    def _start_failed(self, index: int, job_id: JobID, allocation_id: AllocationID, error: Exception) -> None:
        slot = self.table.find(allocation_id)
        if slot is None:
            return  # Its worker had been launched and has ended: all was done then.
        job = self._jobs.get(job_id)
        unwanted = slot.state is SlotState.RELEASING
        _log.log(logging.INFO if unwanted else logging.ERROR, "slot %d: %s", index, error)
        if not unwanted and job is not None:
            name = f"{WorkerStartError.__module__}.{WorkerStartError.__qualname__}"
            cause = FailureCause(exception_name=name, message=str(error), stacktrace=f"{name}: {error}")
            job.report(FailedSlot(allocation_id, cause))
        self.table.release(allocation_id, str(error))
        if self.workers.get(index) is None:
            self._freed(allocation_id)

    def _check_accepted(self, allocation_id: AllocationID) -> None:
        slot = self.table.find(allocation_id)
        if slot is not None and slot.state is SlotState.ALLOCATED:
            self.free(
                allocation_id,
                f"its JobMaster did not accept it within {self._slot_timeout:g} s (taskmanager.slot.timeout)",
            )

    def on_slots_accepted(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None:
        for allocation_id in allocations:
            slot = self.table.find(allocation_id)
            if slot is not None and slot.state is SlotState.ALLOCATED:
                self.table.activate(allocation_id)

    def on_slots_rejected(self, job: JobConnection, allocations: tuple[AllocationID, ...]) -> None:
        for allocation_id in allocations:
            self.free(allocation_id, "its JobMaster has no use for it")

    def free(self, allocation_id: AllocationID, cause: str) -> None:
        """Gives a slot up: its worker ends, then the slot is free; no effect on one that is free already."""
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

    # Tasks

    async def submit(self, deployment: Deployment) -> None:
        """Hands tasks to their workers; nothing of a deployment that is refused was started."""
        job = self.job(deployment.job_id, deployment.job_master_id)
        attempts = {task.attempt_id for task in deployment.tasks}
        self._slots_of(deployment)
        job.deploying |= attempts
        try:
            graph_bytes = deployment.job_graph or await job.files.read(deployment.job_graph_blob_key)
            try:
                graph = decode_job_graph(graph_bytes)
            except msgspec.MsgspecError as error:
                raise TaskSubmissionError(
                    f"the graph of the job {deployment.job_id} cannot be read: {error}"
                ) from error
            paths = await job.files.fetch(file.blob_key for file in graph.user_code.files)
            # Both may have changed while files were fetched.
            job = self.job(deployment.job_id, deployment.job_master_id)
            for slot, tasks in self._slots_of(deployment):
                wanted = tuple(task for task in tasks if task.attempt_id not in job.cancelled_early)
                self._start_tasks(slot, deployment, graph, graph_bytes, wanted, paths)
            for attempt in attempts & job.cancelled_early:
                self._report_cancelled(job, attempt)
        finally:
            job.deploying -= attempts
            job.cancelled_early -= attempts

    def _slots_of(self, deployment: Deployment) -> list[tuple[Slot, list[TaskDeploymentDescriptor]]]:
        found: dict[AllocationID, tuple[Slot, list[TaskDeploymentDescriptor]]] = {}
        for task in deployment.tasks:
            if task.allocation_id not in found:
                slot = self.table.get(task.allocation_id)
                owned = slot.owner is not None and slot.owner.job_id == deployment.job_id
                worker = self.workers.get(slot.index)
                if not owned or slot.state is SlotState.RELEASING or worker is None or not worker.handle.is_ready:
                    raise SlotNotAvailableError(
                        f"slot {slot.index} (allocation {task.allocation_id}) is being freed, or serves "
                        f"another job than {deployment.job_id}: request a slot again"
                    )
                _check_worker(deployment, task, worker.handle)
                found[task.allocation_id] = (slot, [])
            found[task.allocation_id][1].append(task)
        return list(found.values())

    def _start_tasks(
        self,
        slot: Slot,
        deployment: Deployment,
        graph: JobGraph,
        graph_bytes: bytes,
        tasks: tuple[TaskDeploymentDescriptor, ...],
        paths: dict[str, str],
    ) -> None:
        worker = self.workers.get(slot.index)
        if not tasks or worker is None:
            return
        names = {}
        for task in tasks:
            vertex = graph.vertex(task.vertex_id)
            names[task.attempt_id] = TaskName(vertex.id, vertex.name, task.subtask, vertex.parallelism)
        part = msgspec.structs.replace(deployment, job_graph=graph_bytes, job_graph_blob_key="", tasks=tasks)
        # The JobMaster's acceptance may still be on its way when its tasks come.
        self.table.activate(tasks[0].allocation_id)
        try:
            worker.handle.send(SubmitTasks(deployment=part, file_paths=paths))
        except FrameError as error:
            raise TaskSubmissionError(str(error)) from error
        slot.tasks.update(names)
        slot.hosted.update(names)
        self.checkpoints.tasks_started(graph, tasks)

    def cancel(self, job: JobConnection, attempts: Iterable[ExecutionAttemptID]) -> None:
        """Cancels; a worker whose tasks do not end in time is killed."""
        wanted = set(attempts)
        job.cancelled_early |= wanted & job.deploying
        wanted -= job.deploying
        for slot in self.table.of_job(job.job_id):
            here = wanted & slot.tasks.keys()
            worker = self.workers.get(slot.index)
            if here and worker is not None:
                wanted -= here
                worker.handle.send(CancelTasks(attempts=tuple(sorted(here))))
                self._watch_cancellation(slot, worker, here)
        for attempt in sorted(wanted):
            # Never arrived, or ended: then the JobMaster ignores this, for it has the end before it.
            self._report_cancelled(job, attempt)

    def _watch_cancellation(self, slot: Slot, worker: SlotWorker, attempts: set[ExecutionAttemptID]) -> None:
        timeout = self._cancellation_timeout
        if timeout <= 0:
            return

        def check() -> None:
            stuck = [str(name) for attempt, name in slot.tasks.items() if attempt in attempts]
            if stuck and self.workers.get(slot.index) is worker:
                worker.handle.kill(
                    f"{', '.join(stuck)} did not end within {timeout:g} s of being cancelled "
                    "(task.cancellation.timeout)"
                )

        self._timers.call_later(timeout, check)

    def _report_cancelled(self, job: JobConnection, attempt: ExecutionAttemptID) -> None:
        now = self._clock.epoch_ms()
        job.report(
            TaskExecutionStateUpdate(attempt_id=attempt, state=ExecutionState.CANCELED, timestamp_ms=now)
        )

    def deliver(self, event: OperatorEvent) -> None:
        """Hands an event to the worker of the subtask it is for; a coordinator lives beside subtask 0."""
        target = max(event.target_subtask, 0)
        slots = self.table.of_job(event.job_id)
        # A coordinator outlives the reader beside it.
        slot = slot_of_attempt(slots, event.target_attempt, hosted=event.target_subtask < 0)
        if not event.target_attempt:
            slot = _slot_of_subtask(slots, event.vertex_id, target)
        worker = None if slot is None else self.workers.get(slot.index)
        if worker is not None:
            worker.handle.send(DeliverOperatorEvent(event=event))
            return
        raise TaskNotFoundError(
            f"subtask {target} of the vertex {event.vertex_id} does not run in {self._endpoint.name}: "
            "an event for it cannot be delivered"
        )

    # Workers

    def on_worker_message(self, worker: WorkerHandle, message: MessageFromWorker) -> None:
        slot_worker = self.workers.get(worker.slot_index)
        if slot_worker is not None and slot_worker.handle is worker:
            self.reports.handle(self.slot_at(worker.slot_index), slot_worker, message)
            if isinstance(message, TaskStateChanged) and message.threads_left:
                self._end_polluted(worker, message)

    @staticmethod
    def _end_polluted(worker: WorkerHandle, ended: TaskStateChanged) -> None:
        """Threads of a task that failed may go on writing what its next attempt writes: only the end of the process
        ends them. The JobMaster reads the same in the report and gives the worker up too.
        """
        if ended.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
            worker.kill(
                f"the task {ended.attempt_id} is {ended.state.value} and left the threads "
                f"{', '.join(ended.threads_left)} running"
            )

    def slot_at(self, index: int) -> Slot:
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
        cause = lost_worker_cause(slot.index, end, slot.tasks, call, tail, worker.end_cause)
        if slot.state is SlotState.ACTIVE or slot.tasks:
            _log.log(logging.WARNING if slot.tasks else logging.INFO, "%s", cause.message)
        if job is not None:
            self._report_lost(slot, job, cause)
            replaced = slot.state is SlotState.ACTIVE and not worker.stopped
            if replaced and not self._dies_too_often(slot.index):
                self._replace_worker(slot.index, job, allocation_id, cause.message)
                return
        self.table.release(allocation_id, cause.message)
        self._freed(allocation_id)

    def _dies_too_often(self, index: int) -> bool:
        """Notes the death of a slot's worker; a slot that keeps killing them goes back to the ResourceManager."""
        deaths = self._deaths.setdefault(index, deque(maxlen=DEATHS_UNTIL_FREED))
        deaths.append(self._clock.monotonic())
        return len(deaths) == deaths.maxlen and deaths[-1] - deaths[0] <= DEATHS_WITHIN

    def _replace_worker(self, index: int, job: JobConnection, allocation_id: AllocationID, cause: str) -> None:
        """The job keeps the slot: a new worker is forked at once, and the slot offered behind the loss's report."""
        self.table.lose_worker(allocation_id, cause)
        self._endpoint.spawn(self._bring_up(index, job.job_id, allocation_id), f"slot-{index}")

    def _report_lost(self, slot: Slot, job: JobConnection, cause: FailureCause) -> None:
        assert slot.owner is not None
        if slot.state is not SlotState.RELEASING:
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
        """Attempts whose end the JobMaster does not know yet: those that run, and those whose end is on its
        way.
        """
        attempts = {attempt for slot in self.table.of_job(job_id) for attempt in slot.tasks}
        job = self._jobs.get(job_id)
        return tuple(sorted(attempts | (job.unreported() if job is not None else set())))

    def compare(self, job: JobConnection, reported: dict[AllocationID, int]) -> None:
        """Heals what lost messages made inconsistent with the JobMaster's view."""
        surplus, unknown = self.table.compare(job.job_id, reported)
        for allocation_id in surplus:
            self.free(allocation_id, "its JobMaster does not know it")
        for allocation_id in unknown:
            error = SlotNotFoundError(f"{self._endpoint.name} has no slot of the allocation {allocation_id}")
            name = f"{SlotNotFoundError.__module__}.{SlotNotFoundError.__qualname__}"
            cause = FailureCause(exception_name=name, message=str(error), stacktrace=f"{name}: {error}")
            job.report(FailedSlot(allocation_id, cause))


def _check_worker(deployment: Deployment, task: TaskDeploymentDescriptor, worker: WorkerHandle) -> None:
    """A deployment that was decided for a worker which has died meanwhile must not start in its successor."""
    for placement in deployment.placements:
        if placement.vertex_id == task.vertex_id:
            meant = deployment.workers[placement.workers[task.subtask]].worker_id
            if meant != worker.worker_id:
                raise SlotNotAvailableError(
                    f"the task {task.attempt_id} was meant for the worker {meant}, which has ended; its slot has "
                    f"the worker {worker.worker_id} now: deploy it again"
                )


def _slot_of_subtask(slots: tuple[Slot, ...], vertex_id: JobVertexID, subtask: int) -> Slot | None:
    """The slot that runs a subtask, else one that ran it."""

    def named(tasks: Mapping[ExecutionAttemptID, TaskName]) -> bool:
        return any(name.vertex_id == vertex_id and name.subtask == subtask for name in tasks.values())

    running = [slot for slot in slots if named(slot.tasks)] or [slot for slot in slots if named(slot.hosted)]
    return running[0] if running else None
