"""JobCheckpoints: forwards checkpoint messages of JobMasters to the workers concerned.

Owner: the TaskExecutor's event loop. Remembers where split enumerators began; must not know the parts of a
checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from yarrow.container.protocol.errors import NotReadyForCheckpointError
from yarrow.container.protocol.worker_protocol import BeginCheckpoint, CheckpointNotification, ResetReader
from yarrow.container.supervisor.job_connection import JobConnection
from yarrow.container.supervisor.slot_table import SlotTable, TaskExecutorSlot
from yarrow.container.supervisor.slot_workers import SlotWorker, SlotWorkers
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import (
    DeclineCheckpoint,
    FailureCause,
    NotifyCheckpoint,
    ResetSubtask,
    TaskDeploymentDescriptor,
    TriggerCheckpoint,
)


class JobCheckpoints:
    """Forwards messages.

    A trigger for an enumerator that does not run here is declined. Other messages for ended tasks are dropped: the
    JobMaster hears of their end.
    """

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        #: Attempt of subtask 0 with which an enumerator began.
        self._coordinators: dict[tuple[JobID, OperatorID], ExecutionAttemptID] = {}

    def tasks_started(self, graph: JobGraph, tasks: tuple[TaskDeploymentDescriptor, ...]) -> None:
        """Notes started tasks: with subtask 0 of a source an enumerator begins in the same worker."""
        for task in tasks:
            vertex = graph.vertex(task.vertex_id)
            if task.subtask == 0 and vertex.has_enumerator:
                self._coordinators[(graph.job_id, vertex.head.id)] = task.attempt_id

    def job_closed(self, job_id: JobID) -> None:
        """Forgets a job that does not run here any more."""
        for key in [key for key in self._coordinators if key[0] == job_id]:
            del self._coordinators[key]

    def trigger(self, job: JobConnection, workers: SlotWorkers, trigger: TriggerCheckpoint) -> None:
        """Sends each worker its own tasks and enumerators."""
        attempts: dict[int, list[ExecutionAttemptID]] = defaultdict(list)
        operators: dict[int, list[OperatorID]] = defaultdict(list)
        by_index = dict(self._workers(job.job_id, workers))
        for attempt in trigger.attempts:
            slot = slot_of_attempt(self._table.of_job(job.job_id), attempt, hosted=False)
            if slot is not None and slot.index in by_index:
                attempts[slot.index].append(attempt)
        for operator_id in trigger.coordinators:
            slot = self._slot_of_coordinator(job.job_id, operator_id)
            if slot is None or slot.index not in by_index:
                job.report(_declined(trigger, operator_id))
            else:
                operators[slot.index].append(operator_id)
        for index in attempts.keys() | operators.keys():
            part = msgspec.structs.replace(
                trigger, attempts=tuple(attempts[index]), coordinators=tuple(operators[index])
            )
            by_index[index].handle.send(BeginCheckpoint(trigger=part))

    def notify(self, job: JobConnection, workers: SlotWorkers, notification: NotifyCheckpoint) -> None:
        """Sends a notification to every worker of the job."""
        for _, worker in self._workers(job.job_id, workers):
            worker.handle.send(CheckpointNotification(notification=notification))

    def reset(self, job: JobConnection, workers: SlotWorkers, reset: ResetSubtask) -> None:
        """Sends a reset to the worker of the enumerator."""
        slot = self._slot_of_coordinator(job.job_id, reset.operator_id)
        worker = None if slot is None else workers.get(slot.index)
        if worker is not None:
            worker.handle.send(ResetReader(reset=reset))

    def _slot_of_coordinator(self, job_id: JobID, operator_id: OperatorID) -> TaskExecutorSlot | None:
        began = self._coordinators.get((job_id, operator_id))
        return None if began is None else slot_of_attempt(self._table.of_job(job_id), began, hosted=True)

    def _workers(self, job_id: JobID, workers: SlotWorkers) -> Iterator[tuple[int, SlotWorker]]:
        for slot in self._table.of_job(job_id):
            worker = workers.get(slot.index)
            if worker is not None:
                yield slot.index, worker


def slot_of_attempt(
    slots: tuple[TaskExecutorSlot, ...], attempt: ExecutionAttemptID, *, hosted: bool
) -> TaskExecutorSlot | None:
    """The slot that runs an attempt or, with `hosted`, ever ran it."""
    for slot in slots:
        if attempt in (slot.hosted if hosted else slot.tasks):
            return slot
    return None


def _declined(trigger: TriggerCheckpoint, operator_id: OperatorID) -> DeclineCheckpoint:
    name = f"{NotReadyForCheckpointError.__module__}.{NotReadyForCheckpointError.__qualname__}"
    what = f"the split enumerator of operator {operator_id}"
    message = f"checkpoint {trigger.checkpoint_id}: {what} has ended or never began"
    return DeclineCheckpoint(
        job_id=trigger.job_id,
        checkpoint_id=trigger.checkpoint_id,
        attempt_id=ExecutionAttemptID(""),
        cause=FailureCause(exception_name=name, message=message, stacktrace=f"{name}: {message}"),
        not_ready=True,
    )
