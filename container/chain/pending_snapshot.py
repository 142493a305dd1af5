"""PendingSnapshot: frozen state on its way from the task thread to the snapshot thread, which makes handles of it.

Owner: made on the task thread, written or discarded once by the snapshot thread. Must not know files,
channels or the receiver of the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

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
        """Writes the state. Snapshot thread."""
        ...

    def discard(self) -> None:
        """Drops the state without writing. Any thread."""
        ...


class PendingChannelStates(Protocol):
    """Records in flight that belong to an unaligned checkpoint."""

    def write(self, output: SnapshotOutput) -> tuple[ChannelStateHandle, ...]:
        """Writes the records. Snapshot thread."""
        ...


class OperatorPart(msgspec.Struct, frozen=True):
    """The frozen state of one operator."""

    operator_id: OperatorID
    operator_name: str
    keyed: PendingKeyedSnapshot | None
    operator: PendingOperatorStates | None


class TaskName(msgspec.Struct, frozen=True):
    """The name of a task in messages and at fault points."""

    job_id: JobID
    attempt_id: ExecutionAttemptID
    attempt_number: int
    name: str
    subtask: int

    def detail(self, checkpoint_id: int) -> dict[str, object]:
        """The detail that fault points get."""
        return {
            "checkpoint_id": checkpoint_id,
            "task": self.name,
            "subtask": self.subtask,
            "attempt": self.attempt_number,
        }


class PendingSubtaskSnapshot:
    """The frozen state of one task for one checkpoint."""

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
        #: Called once by any thread: the part was acknowledged, declined or dropped.
        self.settled = settled
        self.cut_at = perf_counter()
        #: Bytes of records in flight; known once they are written.
        self.persisted_bytes = 0
        self._parts = tuple(parts)
        self._channels = channels

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint to which it belongs."""
        return self.barrier.checkpoint_id

    def add_head(self, part: OperatorPart) -> None:
        """Adds the state of the head, where that was not known at the cut."""
        self._parts = (part, *self._parts)

    def write(self, output: SnapshotOutput) -> dict[OperatorID, OperatorSubtaskState]:
        """Writes everything; leaves out operators without state. Raises OperatorFailure with the operator."""
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
        """Drops the frozen state."""
        discard_parts(self._parts)


def discard_parts(parts: Sequence[OperatorPart]) -> None:
    """Drops frozen state; logs errors, since no caller could handle them."""
    for part in parts:
        for pending in (part.keyed, part.operator):
            try:
                if pending is not None:
                    pending.discard()
            except Exception:
                _log.exception("operator '%s': a snapshot could not be released", part.operator_name)
