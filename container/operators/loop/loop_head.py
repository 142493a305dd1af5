"""LoopHead: emits the rows of its input and the feedback of its loop, and holds the end back until the loop is empty.

Owner: the task thread. Feedback goes first, and beyond a bound no input is taken. Rows that a checkpoint finds in the
loop are operator state, which is known when the barrier has been round. Must not decide when a loop is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.feedback.feedback_channel import FeedbackChannel, FeedbackHead
from yarrow.container.network.feedback.feedback_spill import FeedbackSpill
from yarrow.container.operators.base import Emit, RowOperator, TimeResults, declared_type, input_type_of
from yarrow.container.operators.loop.loop_rounds import LoopRounds
from yarrow.container.operators.registry import runs
from yarrow.container.sizing.slice_sizer import SliceSizer
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options import execution, taskmanager
from yarrow.runtime.data.elements import LoopMarker, RowBatch
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.iteration_spec import LoopHeadOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorStateMode

#: Name of the operator's list state; part of the format of savepoints.
FEEDBACK = "loop-feedback"

#: Rows of restored feedback in a batch.
_BATCH_ROWS = 1024


@runs(LoopHeadOperator)
class LoopHead(RowOperator):
    """The head of a loop in one subtask."""

    emits_again = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {FEEDBACK: OperatorStateMode.SPLIT}

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        spec = cast(LoopHeadOperator, descriptor.spec)
        declared = input_type_of(descriptor) if spec.feedback_tag is None else spec.feedback_type
        return cls(descriptor.name, spec, declared_type(declared))

    def __init__(self, name: str, spec: LoopHeadOperator, feedback_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._spec = spec
        self._type = feedback_type
        self._channel: FeedbackChannel | None = None
        self._open = False
        self._rounds = LoopRounds(spec.max_wait_ms, 0)

    # ------------------------------------------------------------------ life cycle

    def open(self) -> None:
        environment = self.context.environment
        settings = environment.settings
        row_type = Types.PICKLED_BYTE_ARRAY() if self._type is None else self._type
        # True if the record has a timestamp, the timestamp or 0, the record.
        stored = Types.TUPLE([Types.BOOLEAN(), Types.LONG(), row_type])
        self._state = self.context.operator_state.list_state(ListStateDescriptor(FEEDBACK, stored))
        restored = [(row, stamp if timed else None) for timed, stamp, row in self._state.get()]
        self._state.clear()
        self._rounds = LoopRounds(self._spec.max_wait_ms, self.markers.quiet_rounds)
        self._window = settings.get(taskmanager.LOOP_INPUT_BOUND).bytes
        #: Rows of feedback that run before the operator looks at the time.
        self._pieces = SliceSizer(settings.get(execution.SLICE_TIME).seconds)
        self._channel = environment.loops.acquire(self._spec.loop)
        head = FeedbackHead(
            environment.wake,
            lambda: environment.post(self.tell_gathered),
            FeedbackSpill(environment.local_directory, ElementCodec(serializer_for(self._type))),
            settings.get(taskmanager.LOOP_MEMORY).bytes,
            copier_for(self._type),
        )
        self._channel.open(head, _batches(restored))
        self._open = True
        self._register_metrics(self._channel)

    def _register_metrics(self, channel: FeedbackChannel) -> None:
        metrics = self.context.metric_group
        metrics.register("feedbackRecords", lambda: channel.received_rows)
        metrics.register("feedbackWaitingRecords", lambda: channel.waiting_rows)
        metrics.register("feedbackWaitingBytes", lambda: channel.waiting_bytes)
        metrics.register("feedbackDiskBytes", lambda: channel.disk_bytes)
        metrics.register("feedbackRecordsDropped", lambda: channel.dropped_rows)

    def finish(self) -> None:
        if self._channel is not None:
            self._open = False
            self._channel.end()

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
            self.context.environment.loops.release(self._spec.loop)

    # ------------------------------------------------------------------ rows

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        emit(value, timestamp)

    @property
    def room(self) -> int | None:
        waits = self._channel is not None and self._channel.waiting_bytes > self._window
        return 0 if waits else None

    def next_timer(self) -> int | None:
        if self._channel is None:
            return None
        return 0 if self._channel.has_data else self._rounds.due_ms

    def fire_timers(self, now: int, deadline: float) -> TimeResults:
        """Emits waiting feedback and, behind it, the next marker."""
        assert self._channel is not None
        seconds = self.context.environment.clock.monotonic
        while (entry := self._channel.take(self._pieces.rows)) is not None:
            if isinstance(entry, LoopMarker):
                self._rounds.returned(entry.round, entry.quiet_rounds)
                continue
            self._rounds.note_feedback(now)
            began = seconds()
            self.emit_again(self._spec.feedback_tag, entry.rows, entry.timestamps)
            self._pieces.measured(len(entry), seconds() - began)
            if perf_counter() > deadline:
                return ()
        due = self._rounds.due_ms
        if due is not None and due <= now and not self._channel.has_data:
            number, quiet = self._rounds.next()
            self.markers.send(LoopMarker(self._spec.loop, number, quiet))
        return ()

    # ------------------------------------------------------------------ the end

    @property
    def awaits_results(self) -> bool:
        return self._open and not self._rounds.over

    def await_end(self) -> None:
        self._rounds.begin(self.context.environment.clock.epoch_ms())

    # ------------------------------------------------------------------ checkpoints

    @property
    def gathers_behind_cut(self) -> bool:
        return self._open

    def has_gathered(self, checkpoint_id: int) -> bool:
        return self._channel is not None and self._channel.is_logged(checkpoint_id)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        if self._channel is not None and self._open:
            self._channel.begin_log(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> None:
        log = () if self._channel is None else self._channel.take_log(checkpoint_id)
        self._state.update(
            [
                (stamp is not None, stamp or 0, row)
                for batch in log
                for row, stamp in zip(batch.rows, batch.timestamps or [None] * len(batch), strict=True)
            ]
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._channel is not None:
            self._channel.checkpoint_completed(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._channel is not None:
            self._channel.checkpoint_aborted(checkpoint_id)


def _batches(rows: list[tuple[Any, int | None]]) -> list[RowBatch]:
    found = []
    for begin in range(0, len(rows), _BATCH_ROWS):
        part = rows[begin : begin + _BATCH_ROWS]
        stamps = [stamp for _, stamp in part]
        found.append(RowBatch([row for row, _ in part], None if not any_stamp(stamps) else stamps))
    return found


def any_stamp(stamps: list[int | None]) -> bool:
    """Whether a row has a timestamp."""
    return any(stamp is not None for stamp in stamps)
