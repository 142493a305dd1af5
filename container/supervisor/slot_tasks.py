"""SlotTasks: passes tasks, cancels and events to the workers of the slots.

Owner: the TaskExecutor's event loop. Slots and workers belong to JobSlots; must not allocate or free any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from yarrow.container.protocol.errors import (
    FrameError,
    SlotNotAvailableError,
    TaskNotFoundError,
    TaskSubmissionError,
)
from yarrow.container.protocol.worker_protocol import (
    CancelTasks,
    DeliverOperatorEvent,
    DeliverWatermarkBounds,
    SubmitTasks,
)
from yarrow.container.supervisor.job_checkpoints import JobCheckpoints, slot_of_attempt
from yarrow.container.supervisor.job_connection import JobConnection
from yarrow.container.supervisor.slot_table import (
    SlotTable,
    SubtaskName,
    TaskExecutorSlot,
    TaskExecutorSlotState,
)
from yarrow.container.supervisor.slot_workers import SlotWorker, SlotWorkers
from yarrow.container.supervisor.worker_handle import WorkerHandle
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID, JobVertexID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    Deployment,
    OperatorEvent,
    TaskDeploymentDescriptor,
    TaskExecutionStateUpdate,
    WatermarkBounds,
)
from yarrow.runtime.rpc.restored_tasks import with_restored


class SlotsOfJobs(Protocol):
    """The slots of these tasks, and their JobMasters; JobSlots is one."""

    @property
    def table(self) -> SlotTable: ...

    @property
    def checkpoints(self) -> JobCheckpoints: ...

    @property
    def workers(self) -> SlotWorkers: ...

    def job(self, job_id: JobID, job_master_id: JobMasterID) -> JobConnection:
        """The connection of a job.

        Raises FencingTokenError if there is none, or it belongs to another JobMaster.
        """
        ...


class SlotTasks:
    """The tasks of all slots of one TaskExecutor."""

    def __init__(
        self, slots: SlotsOfJobs, name: str, clock: Clock, timers: Timers, cancellation_timeout: float
    ) -> None:
        """`name` is the TaskExecutor's. `cancellation_timeout`: seconds to a cancelled task's end, 0 = for ever."""
        self._slots = slots
        self._name = name
        self._clock = clock
        self._timers = timers
        self._cancellation_timeout = cancellation_timeout

    async def submit(self, deployment: Deployment) -> None:
        """Passes tasks to their workers.

        A refused deployment has started nothing. A repeated deployment starts nothing again.
        """
        job = self._slots.job(deployment.job_id, deployment.job_master_id)
        fresh = tuple(task for task in deployment.tasks if not self._is_known(job, task.attempt_id))
        if not fresh:
            return
        deployment = msgspec.structs.replace(deployment, tasks=fresh)
        attempts = {task.attempt_id for task in fresh}
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
            if deployment.restored_blob_key:
                deployment = await _with_restored(job, deployment)
            paths = await job.files.fetch(file.blob_key for file in graph.user_code.files)
            # Both may have changed while files were fetched.
            job = self._slots.job(deployment.job_id, deployment.job_master_id)
            for slot, tasks in self._slots_of(deployment):
                wanted = tuple(task for task in tasks if task.attempt_id not in job.cancelled_early)
                self._start_tasks(slot, deployment, graph, graph_bytes, wanted, paths)
            for attempt in attempts & job.cancelled_early:
                self._report_cancelled(job, attempt)
        finally:
            job.deploying -= attempts
            job.cancelled_early -= attempts

    def _is_known(self, job: JobConnection, attempt: ExecutionAttemptID) -> bool:
        """Whether the attempt is starting or has started; attempts are used once."""
        slots = self._slots.table.of_job(job.job_id)
        return attempt in job.deploying or slot_of_attempt(slots, attempt, hosted=True) is not None

    def _slots_of(
        self, deployment: Deployment
    ) -> list[tuple[TaskExecutorSlot, list[TaskDeploymentDescriptor]]]:
        found: dict[AllocationID, tuple[TaskExecutorSlot, list[TaskDeploymentDescriptor]]] = {}
        for task in deployment.tasks:
            if task.allocation_id not in found:
                slot = self._slots.table.get(task.allocation_id)
                owned = slot.owner is not None and slot.owner.job_id == deployment.job_id
                worker = self._slots.workers.get(slot.index)
                if (
                    not owned
                    or slot.state is TaskExecutorSlotState.RELEASING
                    or worker is None
                    or not worker.handle.is_ready
                ):
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
        slot: TaskExecutorSlot,
        deployment: Deployment,
        graph: JobGraph,
        graph_bytes: bytes,
        tasks: tuple[TaskDeploymentDescriptor, ...],
        paths: dict[str, str],
    ) -> None:
        worker = self._slots.workers.get(slot.index)
        if not tasks or worker is None:
            return
        names = {}
        for task in tasks:
            vertex = graph.vertex(task.vertex_id)
            names[task.attempt_id] = SubtaskName(vertex.id, vertex.name, task.subtask, vertex.parallelism)
        part = msgspec.structs.replace(deployment, job_graph=graph_bytes, job_graph_blob_key="", tasks=tasks)
        # The JobMaster's acceptance may still be on its way when its tasks arrive.
        self._slots.table.activate(tasks[0].allocation_id)
        try:
            worker.handle.send(SubmitTasks(deployment=part, file_paths=paths))
        except FrameError as error:
            raise TaskSubmissionError(str(error)) from error
        slot.tasks.update(names)
        slot.hosted.update(names)
        self._slots.checkpoints.tasks_started(graph, tasks)

    def cancel(self, job: JobConnection, attempts: Iterable[ExecutionAttemptID]) -> None:
        """Cancels tasks; a worker whose tasks do not end in time is killed."""
        wanted = set(attempts)
        job.cancelled_early |= wanted & job.deploying
        wanted -= job.deploying
        for slot in self._slots.table.of_job(job.job_id):
            here = wanted & slot.tasks.keys()
            worker = self._slots.workers.get(slot.index)
            if here and worker is not None:
                wanted -= here
                worker.handle.send(CancelTasks(attempts=tuple(sorted(here))))
                self._watch_cancellation(slot, worker, here)
        for attempt in sorted(wanted):
            # It never arrived, or has ended. In the latter case the JobMaster has its end already, and
            # ignores this.
            self._report_cancelled(job, attempt)

    def _watch_cancellation(
        self, slot: TaskExecutorSlot, worker: SlotWorker, attempts: set[ExecutionAttemptID]
    ) -> None:
        timeout = self._cancellation_timeout
        if timeout <= 0:
            return

        def check() -> None:
            stuck = [str(name) for attempt, name in slot.tasks.items() if attempt in attempts]
            if stuck and self._slots.workers.get(slot.index) is worker:
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

    def bound(self, bounds: WatermarkBounds) -> None:
        """Passes bounds to the workers of the readers; a reader that has ended needs none."""
        for slot in self._slots.table.of_job(bounds.job_id):
            worker = self._slots.workers.get(slot.index)
            if worker is not None and bounds.bounds.keys() & slot.tasks.keys():
                worker.handle.send(DeliverWatermarkBounds(bounds=bounds))

    def deliver(self, event: OperatorEvent) -> None:
        """Passes an event to the worker of its subtask; a coordinator lives beside subtask 0."""
        target = max(event.target_subtask, 0)
        slots = self._slots.table.of_job(event.job_id)
        # A coordinator outlives the reader beside it.
        slot = slot_of_attempt(slots, event.target_attempt, hosted=event.target_subtask < 0)
        if not event.target_attempt:
            slot = _slot_of_subtask(slots, event.vertex_id, target)
        worker = None if slot is None else self._slots.workers.get(slot.index)
        if worker is not None:
            worker.handle.send(DeliverOperatorEvent(event=event))
            return
        raise TaskNotFoundError(
            f"subtask {target} of the vertex {event.vertex_id} does not run in {self._name}: "
            "an event for it cannot be delivered"
        )


async def _with_restored(job: JobConnection, deployment: Deployment) -> Deployment:
    try:
        return with_restored(deployment, await job.files.read(deployment.restored_blob_key))
    except msgspec.MsgspecError as error:
        raise TaskSubmissionError(
            f"the state that tasks of the job {deployment.job_id} restore cannot be read: {error}"
        ) from error


def _check_worker(deployment: Deployment, task: TaskDeploymentDescriptor, worker: WorkerHandle) -> None:
    """Refuses a deployment for a worker that has died meanwhile: it must not start in the next worker."""
    for placement in deployment.placements:
        if placement.vertex_id == task.vertex_id:
            meant = deployment.workers[placement.workers[task.subtask]].worker_id
            if meant != worker.worker_id:
                raise SlotNotAvailableError(
                    f"the task {task.attempt_id} was meant for the worker {meant}, which has ended; its slot"
                    f" has the worker {worker.worker_id} now: deploy the task again"
                )


def _slot_of_subtask(
    slots: tuple[TaskExecutorSlot, ...], vertex_id: JobVertexID, subtask: int
) -> TaskExecutorSlot | None:
    """The slot that runs a subtask, else one that ran it."""

    def named(tasks: Mapping[ExecutionAttemptID, SubtaskName]) -> bool:
        return any(name.vertex_id == vertex_id and name.subtask == subtask for name in tasks.values())

    running = [slot for slot in slots if named(slot.tasks)] or [slot for slot in slots if named(slot.hosted)]
    return running[0] if running else None
