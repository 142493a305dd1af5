"""What a task's cut has frozen, and how it becomes handles: the hand-over from the task thread to the snapshot thread.

Owner: made on the task thread, written or discarded once by the snapshot thread. Must not know files, channels or who
is told of the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.state.backend import PendingKeyedSnapshot
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import CheckpointBarrier
from yarrow.runtime.rpc.messages import CheckpointMetrics
from yarrow.runtime.snapshot.handles import ChannelStateHandle, OperatorStateHandle, OperatorSubtaskState
from yarrow.runtime.snapshot.output import SnapshotOutput

_log = logging.getLogger(__name__)


class PendingOperatorStates(Protocol):
    """The frozen operator state (lists and broadcast maps) of one operator."""

    def write(self, output: SnapshotOutput) -> tuple[OperatorStateHandle, ...]:
        """Writes it. Snapshot thread."""
        ...

    def discard(self) -> None:
        """Lets go of it without writing. Any thread."""
        ...


class PendingChannelStates(Protocol):
    """Records in flight that belong to an unaligned checkpoint."""

    def write(self, output: SnapshotOutput) -> tuple[ChannelStateHandle, ...]:
        """Writes them. Snapshot thread."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """One operator's frozen state."""

    operator_id: OperatorID
    operator_name: str
    keyed: PendingKeyedSnapshot | None
    operator: PendingOperatorStates | None


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task in messages, and at fault points."""

    job_id: JobID
    attempt_id: ExecutionAttemptID
    attempt_number: int
    name: str
    subtask: int

    def detail(self, checkpoint_id: int) -> dict[str, object]:
        """What fault points are told."""
        return {
            "checkpoint_id": checkpoint_id,
            "task": self.name,
            "subtask": self.subtask,
            "attempt": self.attempt_number,
        }


class PendingSubtaskSnapshot:
    """All of one task for one checkpoint."""

    def __init__(
        self,
        task: TaskName,
        barrier: CheckpointBarrier,
        options: CheckpointOptions,
        parts: Sequence[OperatorPart],
        metrics: CheckpointMetrics,
        *,
        finished: bool,
        settled: Callable[[], None],
        channels: PendingChannelStates | None = None,
    ) -> None:
        self.task = task
        self.barrier = barrier
        self.options = options
        self.metrics = metrics
        self.finished = finished
        #: Any thread, once: the part is acknowledged, declined or dropped.
        self.settled = settled
        self.cut_at = perf_counter()
        #: Bytes of records in flight; known once it is written.
        self.persisted_bytes = 0
        self._parts = tuple(parts)
        self._channels = channels

    @property
    def checkpoint_id(self) -> int:
        """Of the checkpoint it belongs to."""
        return self.barrier.checkpoint_id

    def write(self, output: SnapshotOutput) -> dict[OperatorID, OperatorSubtaskState]:
        """Writes everything; operators without state are left out. Raises OperatorFailure naming the operator."""
        states: dict[OperatorID, OperatorSubtaskState] = {}
        for index, part in enumerate(self._parts):
            try:
                keyed = part.keyed.write(output) if part.keyed is not None else ()
                operator = part.operator.write(output) if part.operator is not None else ()
                in_flight = self._channels.write(output) if self._channels is not None and index == 0 else ()
            except Exception as error:
                raise OperatorFailure(part.operator_name, "", error) from error
            self.persisted_bytes += sum(channel.handle.size for channel in in_flight)
            state = OperatorSubtaskState(keyed=keyed, operator=operator, channels=in_flight)
            if not state.is_empty:
                states[part.operator_id] = state
        return states

    def discard(self) -> None:
        """Lets go of what was frozen."""
        discard_parts(self._parts)


def discard_parts(parts: Sequence[OperatorPart]) -> None:
    """Lets go of frozen state; what fails is logged, for nobody can do anything about it."""
    for part in parts:
        for pending in (part.keyed, part.operator):
            try:
                if pending is not None:
                    pending.discard()
            except Exception:
                _log.exception("operator '%s': a snapshot was not let go of", part.operator_name)
