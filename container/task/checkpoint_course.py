"""What checkpoints mean for the course of a task: when it cuts, what it is told, and savepoints that stop the job.

Owner: the task thread. The cut itself is that of SubtaskCheckpointCoordinator; when barriers are complete is decided by
the gate's BarrierHandler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.protocol.errors import CheckpointRefusedError, NotReadyForCheckpointError
from yarrow.container.task.task_stage import TaskStage
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import CheckpointBarrier, EndOfData

if TYPE_CHECKING:
    from yarrow.container.task.stream_task import StreamTask

#: Stages in which a task hears of checkpoints.
_LIVE = (TaskStage.RUNNING, TaskStage.FINISHING, TaskStage.SUSPENDED)


class CheckpointCourse:
    """The part of one task in all checkpoints; the BarrierListener of its gate."""

    def __init__(self, task: StreamTask) -> None:
        self._task = task
        #: The savepoint at whose cut the task stands still, and the stage it had before.
        self._stopping: tuple[CheckpointBarrier, TaskStage] | None = None
        task.gate.barriers.listener = self

    # ------------------------------------------------------------------ BarrierListener

    def checkpoint_announced(self, barrier: CheckpointBarrier) -> None:
        """The first sign of a checkpoint, be it a barrier or a word of the worker: its cut will come."""
        if self._task.stage in (TaskStage.RUNNING, TaskStage.FINISHING):
            self._task.checkpoints.announce(barrier)

    def alignment_given_up(self, barrier: CheckpointBarrier, reason: str) -> None:
        """The barriers of this checkpoint will never be complete here."""
        self._task.checkpoints.decline(barrier.checkpoint_id, NotReadyForCheckpointError(reason))

    # ------------------------------------------------------------------ the cut

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """The checkpoint begins here."""
        task = self._task
        if task.skipped:
            self._cut_skipped(barrier)
            return
        if task.stage in (TaskStage.RUNNING, TaskStage.FINISHING):
            self.cut(task.gate.barriers.trigger(barrier))
            return
        reason = f"the task is {task.stage.value}"
        if self._stopping is not None:
            if barrier.checkpoint_id <= self._stopping[0].checkpoint_id:
                return  # The word that came has come again, or one that it has overtaken.
            reason = "the task stands at a savepoint that stops the job"
        task.checkpoints.decline(barrier.checkpoint_id, NotReadyForCheckpointError(reason))

    def cut(self, checkpoints: Sequence[ReadyCheckpoint]) -> None:
        """The task stands at the cut of these; behind one that stops the job it stands still."""
        task = self._task
        for ready in checkpoints:
            kind = _kind(ready.barrier)
            drains = kind is SnapshotKind.SAVEPOINT_TERMINATE and not task.finished
            in_flight = task.in_flight.begin(ready, task.inputs.at_hand(ready.barrier.checkpoint_id))
            is_cut = task.checkpoints.cut(
                ready,
                finished=task.finished,
                settled=self._settled,
                drain=self._drain if drains else None,
                in_flight=in_flight,
            )
            if in_flight is not None and not is_cut:
                task.in_flight.drop()
            if kind.stops_job and task.stage in (TaskStage.RUNNING, TaskStage.FINISHING):
                self._stopping = (ready.barrier, task.stage)
                self._stand(TaskStage.SUSPENDED)

    # ------------------------------------------------------------------ barriers that overtake

    def look(self) -> bool:
        """Looks at barriers that wait in queues, here or behind outputs; True when the task has cut."""
        gate, cuts = self._task.gate, 0
        if self._task.inputs.take_announcements():
            for position, entry in enumerate(gate.channels):
                while (barrier := entry.channel.next_announced()) is not None:
                    cuts += self._cut_if_any(gate.barriers.announced(position, barrier))
        cuts += self._cut_if_any(gate.barriers.timed_out())
        self._gather()
        return cuts > 0

    def _cut_if_any(self, checkpoints: Sequence[ReadyCheckpoint]) -> int:
        self.cut(checkpoints)
        return len(checkpoints)

    def _gather(self) -> None:
        in_flight = self._task.in_flight
        try:
            in_flight.proceed()
        except CheckpointRefusedError as error:
            number = in_flight.present
            assert number is not None
            in_flight.drop()
            self._task.checkpoints.decline(number, error)

    def seconds_until_due(self) -> float | None:
        """Until `look` has something to do by the clock."""
        task = self._task
        times = [t for t in (task.gate.barriers.next_timeout_ms, task.in_flight.timeout_ms) if t is not None]
        return (min(times) - task.environment.clock.epoch_ms()) / 1000 if times else None

    def _cut_skipped(self, barrier: CheckpointBarrier) -> None:
        """The task had ended before the job began: it is part of the checkpoint as one that has ended."""
        self._task.checkpoints.cut_ended(barrier, settled=self._settled)
        if _kind(barrier).stops_job:
            self._stopping = (barrier, TaskStage.FINISHING)

    def _drain(self) -> None:
        """The end of time, for a job that will not go on: all timers fire, operators finish."""
        if self._task.chain.source is not None:
            self._task.chain.time.end()
        self._task.finish_operators()

    def _settled(self) -> None:
        """Any thread."""
        self._task.post(self._count_settled)

    def _count_settled(self) -> None:
        self._task.checkpoints.unsettled -= 1

    # ------------------------------------------------------------------ what became of it

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and so are all before it."""
        task = self._task
        if task.stage not in _LIVE:
            return
        if not task.skipped:
            task.gate.barriers.abort(checkpoint_id)
            task.in_flight.drop(checkpoint_id)
            task.checkpoints.completed(checkpoint_id)
        stopping = self._stopping
        if stopping is not None and stopping[0].checkpoint_id <= checkpoint_id:
            self._stopping = None
            self._end(stopping[1])

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never be complete."""
        task = self._task
        if task.stage not in _LIVE:
            return
        task.gate.barriers.abort(checkpoint_id)
        task.in_flight.drop(checkpoint_id)
        task.checkpoints.aborted(checkpoint_id)
        stopping = self._stopping
        if stopping is not None and stopping[0].checkpoint_id == checkpoint_id:
            self._stopping = None
            self._go_on(*stopping)

    def _end(self, stage: TaskStage) -> None:
        """The savepoint that stops the job is complete."""
        task = self._task
        if stage is TaskStage.RUNNING:
            task.broadcast(EndOfData())
        if task.chain.source is not None:
            task.chain.source.stopped()
        task.finished = True
        task.stage = TaskStage.FINISHING

    def _go_on(self, barrier: CheckpointBarrier, stage: TaskStage) -> None:
        """The savepoint that was to stop the job has failed."""
        if _kind(barrier) is SnapshotKind.SAVEPOINT_TERMINATE and stage is TaskStage.RUNNING:
            raise CheckpointRefusedError(
                f"savepoint {barrier.checkpoint_id}, which was to stop the job, was given up after the job had been "
                "drained: it goes on from its last checkpoint"
            )
        self._stand(stage)
        self._task.woken = True

    def _stand(self, stage: TaskStage) -> None:
        """Stands still at the savepoint, or goes on as before; a source is not asked for rows meanwhile."""
        task = self._task
        task.stage = stage
        if task.chain.source is not None and not task.skipped:
            task.reading.tell_source()


def _kind(barrier: CheckpointBarrier) -> SnapshotKind:
    return SnapshotKind.CHECKPOINT if barrier.options is None else barrier.options.kind
