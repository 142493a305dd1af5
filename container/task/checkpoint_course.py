"""CheckpointCourse: the checkpoints of a task: its cuts, their outcomes, and savepoints that stop the job.

Owner: the task thread. SubtaskCheckpointCoordinator makes the cut; the gate's BarrierHandler decides when
barriers are complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.network.input_gate import InputGate
from yarrow.container.protocol.errors import CheckpointRefusedError, NotReadyForCheckpointError
from yarrow.container.task.checkpointing.records_in_flight import InFlightRecorder
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import SubtaskCheckpointCoordinator
from yarrow.container.task.source_reading import SourceReading
from yarrow.container.task.task_inputs import TaskInputs
from yarrow.container.task.task_life import TaskLife, TaskStage
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import CheckpointBarrier, EndOfData


class CheckpointCourse:
    """The part of one task in all checkpoints; the BarrierListener of its gate."""

    def __init__(
        self,
        life: TaskLife,
        chain: OperatorChain,
        gate: InputGate,
        inputs: TaskInputs,
        reading: SourceReading,
        outputs: TaskOutputs,
        coordinator: SubtaskCheckpointCoordinator,
        in_flight: InFlightRecorder,
    ) -> None:
        self._life = life
        self._chain = chain
        self._gate = gate
        self._barriers = gate.barriers
        self._inputs = inputs
        self._reading = reading
        self._outputs = outputs
        self._coordinator = coordinator
        self._in_flight = in_flight
        #: The savepoint at whose cut the task is suspended, and the task's former stage.
        self._stopping: tuple[CheckpointBarrier, TaskStage] | None = None
        #: The savepoint for which the job is drained, while its cut waits for results of the head.
        self._awaiting_results: ReadyCheckpoint | None = None
        self._barriers.listener = self

    # ------------------------------------------------------------------ BarrierListener

    def checkpoint_announced(self, barrier: CheckpointBarrier) -> None:
        """Takes the first sign of a checkpoint, a barrier or an announcement of the worker: its cut will follow."""
        if self._life.is_working:
            self._coordinator.announce(barrier)

    def alignment_given_up(self, barrier: CheckpointBarrier, reason: str) -> None:
        """Declines a checkpoint whose barriers will never be complete here."""
        self._coordinator.decline(barrier.checkpoint_id, NotReadyForCheckpointError(reason))

    # ------------------------------------------------------------------ the cut

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """Begins a checkpoint at this task."""
        if self._life.skipped:
            self._cut_skipped(barrier)
            return
        if self._life.is_working:
            self.cut(self._barriers.trigger(barrier))
            return
        reason = f"the task is {self._life.stage.value}"
        if self._stopping is not None:
            if barrier.checkpoint_id <= self._stopping[0].checkpoint_id:
                return  # Ignore a trigger that is a duplicate or older than the last one.
            reason = "the task stands at a savepoint that stops the job"
        self._coordinator.decline(barrier.checkpoint_id, NotReadyForCheckpointError(reason))

    def cut(self, checkpoints: Sequence[ReadyCheckpoint]) -> None:
        """Cuts for these checkpoints; suspends the task if one of them stops the job.

        If the job is drained, the cut waits until the head has emitted all results.
        """
        for ready in checkpoints:
            finished = self._life.finished
            kind = _kind(ready.barrier)
            drains = kind is SnapshotKind.SAVEPOINT_TERMINATE and not finished
            if drains and self._chain.awaits_results:
                self._awaiting_results = ready
                self._chain.head.await_end()
                continue
            in_flight = self._in_flight.begin(ready, self._inputs.at_hand(ready.barrier.checkpoint_id))
            is_cut = self._coordinator.cut(
                ready, finished=finished, drain=self._drain if drains else None, in_flight=in_flight
            )
            if in_flight is not None and not is_cut:
                self._in_flight.drop()
            if kind.stops_job and self._life.is_working:
                self._stopping = (ready.barrier, self._life.stage)
                self._stand(TaskStage.SUSPENDED)

    # ------------------------------------------------------------------ barriers that overtake

    def look(self) -> bool:
        """Looks at barriers that wait in queues, here or at outputs; True if the task has cut."""
        cuts = 0
        if self._inputs.take_announcements():
            for position, entry in enumerate(self._gate.channels):
                while (barrier := entry.channel.next_announced()) is not None:
                    cuts += self._cut_if_any(self._barriers.announced(position, barrier))
        cuts += self._cut_if_any(self._barriers.timed_out())
        if self._awaiting_results is not None and not self._chain.awaits_results:
            ready, self._awaiting_results = self._awaiting_results, None
            cuts += self._cut_if_any((ready,))
        self._gather()
        return cuts > 0

    def _cut_if_any(self, checkpoints: Sequence[ReadyCheckpoint]) -> int:
        self.cut(checkpoints)
        return len(checkpoints)

    def _gather(self) -> None:
        in_flight = self._in_flight
        try:
            in_flight.proceed()
        except CheckpointRefusedError as error:
            number = in_flight.present
            assert number is not None
            in_flight.drop()
            self._coordinator.decline(number, error)

    @property
    def due_ms(self) -> int | None:
        """Epoch ms at which `look` is due; None = only after an event."""
        times = [t for t in (self._barriers.next_timeout_ms, self._in_flight.timeout_ms) if t is not None]
        return min(times, default=None)

    def _cut_skipped(self, barrier: CheckpointBarrier) -> None:
        """Cuts for a task that had ended before the job began: the checkpoint notes it as ended."""
        self._coordinator.cut_ended(barrier)
        if _kind(barrier).stops_job:
            self._stopping = (barrier, TaskStage.FINISHING)

    def _drain(self) -> None:
        """Ends event time for a job that will not continue: all timers fire, and operators finish."""
        if self._chain.source is not None:
            self._chain.time.end()
        if self._life.begin_to_finish():
            self._chain.finish()

    # ------------------------------------------------------------------ outcomes

    def completed(self, checkpoint_id: int) -> None:
        """Takes the completion of a checkpoint, and of all before it."""
        if not self._life.is_live:
            return
        if not self._life.skipped:
            self._barriers.abort(checkpoint_id)
            self._in_flight.drop(checkpoint_id)
            self._coordinator.completed(checkpoint_id)
        stopping = self._stopping
        if stopping is not None and stopping[0].checkpoint_id <= checkpoint_id:
            self._stopping = None
            self._end(stopping[1])

    def aborted(self, checkpoint_id: int) -> None:
        """Takes the end of a checkpoint that will never complete."""
        if not self._life.is_live:
            return
        self._barriers.abort(checkpoint_id)
        self._in_flight.drop(checkpoint_id)
        awaiting = self._awaiting_results
        if awaiting is not None and awaiting.barrier.checkpoint_id == checkpoint_id:
            self._awaiting_results = None
        self._coordinator.aborted(checkpoint_id)
        stopping = self._stopping
        if stopping is not None and stopping[0].checkpoint_id == checkpoint_id:
            self._stopping = None
            self._go_on(*stopping)

    def _end(self, stage: TaskStage) -> None:
        """Ends the task: the savepoint that stops the job is complete."""
        if stage is TaskStage.RUNNING:
            self._outputs.broadcast(EndOfData())
        if self._chain.source is not None:
            self._chain.source.stopped()
        self._life.finished = True
        if self._life.stage is TaskStage.SUSPENDED:
            self._life.enter(TaskStage.FINISHING)

    def _go_on(self, barrier: CheckpointBarrier, stage: TaskStage) -> None:
        """Resumes the task: the savepoint that was to stop the job has failed."""
        if _kind(barrier) is SnapshotKind.SAVEPOINT_TERMINATE and stage is TaskStage.RUNNING:
            raise CheckpointRefusedError(
                f"savepoint {barrier.checkpoint_id} failed after the job had been drained for it: the job"
                " restarts from its last checkpoint"
            )
        self._stand(stage)
        self._reading.wake()

    def _stand(self, stage: TaskStage) -> None:
        """Suspends the task at the savepoint, or resumes it; a suspended source is not polled."""
        self._life.enter(stage)
        if self._chain.source is not None and not self._life.skipped:
            self._reading.tell_source()


def _kind(barrier: CheckpointBarrier) -> SnapshotKind:
    return SnapshotKind.CHECKPOINT if barrier.options is None else barrier.options.kind
