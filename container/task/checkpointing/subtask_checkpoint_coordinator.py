"""SubtaskCheckpointCoordinator: makes the cut of one task: operators flush, the barrier is sent, state is frozen.

Owner: the task thread; a cut happens in one mail or at one element, and must be short. worker_checkpoints.py
writes the frozen state. The gate's BarrierHandler decides when to cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.chain.pending_snapshot import (
    OperatorPart,
    PendingSubtaskSnapshot,
    TaskName,
    discard_parts,
)
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.operators.base import TaskEnvironment
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.task.checkpointing.feedback_gathering import FeedbackGathering
from yarrow.container.task.checkpointing.records_in_flight import RecordsInFlight
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import CheckpointBarrier, ControlElement
from yarrow.runtime.rpc.messages import CheckpointMetrics

_log = logging.getLogger(__name__)

#: Options of a barrier without any, which only tests send.
_INLINE_OPTIONS = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))


class SnapshotReceiver(Protocol):
    """Takes frozen state; any thread. WorkerCheckpoints is one."""

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None: ...

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None: ...


class BeforeCut(Protocol):
    """Settles records that a source has given and the chain has not run: SourceReading.before_cut."""

    def __call__(self, *, drains: bool) -> None: ...


class NoSnapshots:
    """A SnapshotReceiver for fragments without a worker: it takes part in no checkpoint."""

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        """Drops the snapshot."""
        snapshot.discard()
        snapshot.settled()

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        """Ignores the refusal."""
        _log.info("checkpoint %d of %s: %s", checkpoint_id, task.name, error)


class SubtaskCheckpointCoordinator:
    """Makes a task's cuts, and remembers them."""

    def __init__(
        self,
        environment: TaskEnvironment,
        chain: OperatorChain,
        receiver: SnapshotReceiver,
        *,
        broadcast: Callable[[ControlElement], None],
        before_cut: BeforeCut,
    ) -> None:
        self._environment = environment
        self._chain = chain
        self._receiver = receiver
        self._broadcast = broadcast
        self._before_cut = before_cut
        self.name = TaskName(
            JobID(environment.job_id),
            environment.attempt_id,
            environment.attempt_number,
            environment.task_name,
            environment.subtask,
        )
        self.latest_cut = environment.restored.checkpoint_id
        self._announced = self.latest_cut
        self._latest_declined = -1
        #: Number of parts that were handed over, and neither acknowledged nor declined nor dropped.
        self.unsettled = 0
        self._completed = environment.restored.checkpoint_id
        #: Parts that wait for the feedback of a loop.
        self.gathering = FeedbackGathering(chain, receiver.deliver, self.decline)
        if chain.head.emits_again:
            chain.head.tell_gathered = self.gathering.proceed

    # ------------------------------------------------------------------ the cut

    def announce(self, barrier: CheckpointBarrier) -> None:
        """Takes the announcement of a checkpoint; a repeated one has no effect."""
        if barrier.checkpoint_id > max(self._announced, self.latest_cut):
            self._announced = barrier.checkpoint_id
            self._chain.announce_checkpoint(barrier.checkpoint_id)

    @property
    def latest(self) -> int:
        """The latest checkpoint that the task has cut or declined; -1 = none."""
        return max(self.latest_cut, self._latest_declined)

    def decline(self, checkpoint_id: int, error: BaseException) -> None:
        """Declines a checkpoint."""
        self._latest_declined = max(self._latest_declined, checkpoint_id)
        self._receiver.decline(self.name, checkpoint_id, error)

    def cut(
        self,
        ready: ReadyCheckpoint,
        *,
        finished: bool,
        drain: Callable[[], None] | None = None,
        in_flight: RecordsInFlight | None = None,
    ) -> bool:
        """Cuts; False if nothing was handed over: the checkpoint is over already, or state could not be frozen.

        `drain` is called behind the last record of a source if the job will not continue after this cut. An
        exception before the barrier is sent fails the task, because some rows may already have been emitted.
        """
        barrier = ready.barrier
        number = barrier.checkpoint_id
        if number <= self.latest_cut:
            return False
        started = perf_counter()
        self.latest_cut = number
        detail = self.name.detail(number)
        fault_points.reach("checkpoint.before-snapshot", **detail)
        source = self._chain.source
        try:
            # What a batch at work has not brought forth yet belongs before the barrier.
            self._chain.flow_out()
            if source is not None and not finished:
                self._before_cut(drains=drain is not None)
            if drain is not None:
                drain()
            self._chain.prepare_snapshot(number)
            if in_flight is None:
                self._broadcast(barrier)
            else:
                in_flight.send_barrier(barrier)
            parts = self._freeze(number, barrier.options or _INLINE_OPTIONS, detail)
        finally:
            if source is not None:
                source.after_cut(number)
        if parts is None:
            return False
        self._hand_over(
            ready,
            started,
            parts,
            finished=finished or drain is not None,
            in_flight=in_flight,
        )
        return True

    def cut_ended(self, barrier: CheckpointBarrier) -> None:
        """Hands over the part of a task that had ended before the restored checkpoint: its sinks' open commits."""
        number = barrier.checkpoint_id
        if number <= self.latest_cut:
            return
        started = perf_counter()
        self.latest_cut = number
        parts = self._freeze(number, barrier.options or _INLINE_OPTIONS, self.name.detail(number))
        if parts is not None:
            ready = ReadyCheckpoint(barrier, 0.0, 0.0, 0)
            self._hand_over(ready, started, parts, finished=True)

    def _hand_over(
        self,
        ready: ReadyCheckpoint,
        started: float,
        parts: list[OperatorPart],
        *,
        finished: bool,
        in_flight: RecordsInFlight | None = None,
    ) -> None:
        barrier = ready.barrier
        sync_seconds = perf_counter() - started
        self.unsettled += 1
        snapshot = PendingSubtaskSnapshot(
            self.name,
            barrier,
            barrier.options or _INLINE_OPTIONS,
            parts,
            CheckpointMetrics(
                sync_ms=1000 * sync_seconds,
                alignment_ms=1000 * ready.alignment_seconds,
                start_delay_ms=1000 * ready.start_delay_seconds,
                processed_bytes=ready.processed_bytes,
            ),
            finished=finished,
            settled=self._settled,
            channels=in_flight,
        )
        deliver = self.gathering.hold if self._chain.head.gathers_behind_cut else self._receiver.deliver
        if in_flight is None:
            deliver(snapshot)
        else:
            in_flight.hand_over(snapshot, deliver)

    def _settled(self) -> None:
        """Notes that a part was acknowledged, declined or dropped. Any thread."""
        self._environment.post(self._count_settled)

    def _count_settled(self) -> None:
        self.unsettled -= 1

    def _freeze(
        self, number: int, options: CheckpointOptions, detail: dict[str, object]
    ) -> list[OperatorPart] | None:
        """The frozen state of all operators; None, after declining the checkpoint, if one cannot be frozen."""
        parts: list[OperatorPart] = []
        try:
            for index in self._chain.operators_in_use:
                if index == 0 and self._chain.head.gathers_behind_cut:
                    continue
                parts.append(self._chain.snapshot_operator(index, number, options))
                fault_points.reach("checkpoint.inside-snapshot", **detail)
            fault_points.reach("checkpoint.after-snapshot", **detail)
        except Exception as error:
            discard_parts(parts)
            if isinstance(error, OperatorFailure) and not isinstance(error.cause, Exception):
                raise  # SystemExit and the like do not concern the checkpoint
            self.decline(number, error)
            return None
        return parts

    # ------------------------------------------------------------------ outcomes

    def completed(self, checkpoint_id: int) -> bool:
        """Tells operators and backends, once for each checkpoint; False if they knew."""
        if checkpoint_id <= self._completed:
            return False
        self._completed = checkpoint_id
        fault_points.reach("checkpoint.before-notify", **self.name.detail(checkpoint_id))
        self._chain.checkpoint_completed(checkpoint_id)
        return True

    def aborted(self, checkpoint_id: int) -> None:
        """Tells operators and backends of an aborted checkpoint."""
        self.gathering.drop(checkpoint_id)
        if checkpoint_id > self._completed:
            self._chain.checkpoint_aborted(checkpoint_id)
