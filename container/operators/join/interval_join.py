"""IntervalJoiningOperator: joins rows of two keyed inputs whose times are near each other.

Owner: the task thread. Each row looks for its partners among the kept rows of the other input, and is kept for those
that come later. Buckets of rows go when the watermark has passed all times that they could meet. The result of a pair
bears the later time. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, HistoryTime, OperatorContext, declared_type
from yarrow.container.operators.event_time import LATE_DROPPED, refuse_missing
from yarrow.container.operators.join.side_rows import Entry, SideRows
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.window.window_watermark import StoredWatermark
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.functions.process_join_function import ProcessJoinFunction
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.window_spec import IntervalJoinOperator

#: Names of the state of both sides.
LEFT_ROWS = "_join_left"
RIGHT_ROWS = "_join_right"

_Results = Iterator[tuple[Any, int | None]]


class PairContext(ProcessJoinFunction.Context):
    """The times of the pair at hand."""

    left: int | None = None
    right: int | None = None
    later: int = MIN_TIMESTAMP

    def get_left_timestamp(self) -> int | None:
        return self.left

    def get_right_timestamp(self) -> int | None:
        return self.right

    def get_timestamp(self) -> int:
        return self.later


class _Side(NamedTuple):
    """One input of a join."""

    bounds: SideBounds
    rows: SideRows
    #: Rows without a partner are results.
    keeps: bool
    #: Copies a row that could change; None = no row can.
    fix: Any
    #: Side output of late rows; None = they are dropped and counted.
    late_tag: OutputTag | None
    #: The row is the left one of a pair.
    is_left: bool


@runs(IntervalJoinOperator)
class IntervalJoiningOperator(FunctionOperator):
    """Runs an interval join."""

    emits_tagged = True
    emits_state = True
    stamps_rows = True

    def __init__(self, name: str, spec: IntervalJoinOperator) -> None:
        super().__init__(name, spec.function, keyed=True)
        self._spec = spec
        #: Late rows that went nowhere.
        self.late_dropped = 0
        self._pair = PairContext()
        left = SideBounds(spec.lower_ms, spec.upper_ms)
        kept = [
            bounds.delay
            for bounds, keeps in ((left, spec.kind.keeps_first), (left.mirrored, spec.kind.keeps_second))
            if keeps
        ]
        #: Event time behind the join is so long behind the watermark, since rows without a partner leave late.
        self._delay = max(kept, default=0)

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, environment = self._spec, context.environment
        self._selectors = [
            method_of(load_function(blob, self.name), "get_key", self.name) for blob in spec.key_selectors
        ]
        self._process = method_of(self.function, "process_element", self.name)
        left = SideBounds(spec.lower_ms, spec.upper_ms)
        kind, types, tags = spec.kind, spec.row_types, spec.late_tags
        self._sides = [
            _Side(
                bounds,
                SideRows(context.state, name, declared_type(types[at]), bounds.bucket_length),
                keeps,
                None if environment.object_reuse else copier_for(declared_type(types[at])),
                None if (tag := tags[at]) is None else OutputTag(tag),
                at == 0,
            )
            for at, (bounds, name, keeps) in enumerate(
                ((left, LEFT_ROWS, kind.keeps_first), (left.mirrored, RIGHT_ROWS, kind.keeps_second))
            )
        ]
        # It has no timers: whoever runs one key at a time moves its time.
        self._timers = OperatorTimerService(environment.clock, self.name, None)
        self._stored_watermark = StoredWatermark(context)
        self._timers.watermark = self._stored_watermark.restored
        context.metric_group.gauge(LATE_DROPPED, lambda: self.late_dropped)

    def finish(self) -> None:
        self.context.state.current_key = NO_KEY

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._stored_watermark.store(self._timers.watermark)

    # ------------------------------------------------------------------ rows

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        generate_current_key(code, self._selectors[index], value, self.context.state, is_head=True)
        result, stamp = code.fresh("v"), code.fresh("t")
        on_row = code.bind("on_row", self.on_row)
        with code.block(f"for {result}, {stamp} in {on_row}({index}, {value}, {timestamp}):"):
            emit(result, stamp)

    def on_row(self, index: int, row: Any, timestamp: int | None) -> _Results:
        """Joins a row of the current key with those that came before it, and keeps it; or gives a late row back."""
        side, other = self._sides[index], self._sides[1 - index]
        if timestamp is None:
            refuse_missing(row, self.name)
        if timestamp < self._timers.watermark:
            if side.late_tag is None:
                self.late_dropped += 1
            else:
                yield (side.late_tag, row), timestamp
            return
        if side.fix is not None:
            row = side.fix(row)
        key, bounds = self.context.state.current_key, side.bounds
        partners = other.rows.between(
            key, timestamp + bounds.lower, timestamp + bounds.upper, mark=other.keeps
        )
        side.rows.add(key, (timestamp, bool(partners), row))
        for time, _, partner in partners:
            if side.is_left:
                yield from self._results(row, timestamp, partner, time)
            else:
                yield from self._results(partner, time, row, timestamp)

    def _results(self, left: Any, left_time: int | None, right: Any, right_time: int | None) -> _Results:
        """The results of a pair, or of a row without a partner."""
        pair = self._pair
        pair.left, pair.right = left_time, right_time
        pair.later = later = max(time for time in (left_time, right_time) if time is not None)
        try:
            made: Iterable[Any] | None = self._process(left, right, pair)
            if made is not None:
                for result in made:
                    yield result, later
        except OperatorFailure:
            raise
        except Exception as error:
            key = short_record(self.context.state.current_key)
            record = f"{short_record(left)} with {short_record(right)} (key {key})"
            raise OperatorFailure(self.name, record, error) from error

    # ------------------------------------------------------------------ time

    @property
    def timer_service(self) -> OperatorTimerService:
        return self._timers

    def on_watermark(self, timestamp: int) -> Iterable[tuple[Any, int | None]]:
        # After a restore the inputs begin below the restored watermark.
        self._timers.watermark = max(self._timers.watermark, timestamp)
        return ()

    def forwarded_watermark(self, timestamp: int) -> int | None:
        if timestamp == MAX_TIMESTAMP or not self._delay:
            return timestamp
        return timestamp - self._delay if timestamp - self._delay > MIN_TIMESTAMP else None

    def end_history(self, before: HistoryTime) -> HistoryTime:
        watermark = before.watermark
        return HistoryTime(
            None if watermark is None else max(watermark - self._delay, MIN_TIMESTAMP),
            before.lag + self._delay,
        )

    @property
    def event_timers_due(self) -> bool:
        """True while buckets are left whose rows meet no row any more."""
        return any(map(self._buckets_over, self._sides))

    def fire_event_timers(self, deadline: float) -> _Results:
        """Removes the buckets whose rows meet no row any more; emits rows without a partner that a join keeps."""
        for side in self._sides:
            for bucket in self._buckets_over(side):
                if side.keeps:
                    yield from self._unmatched(side, bucket, deadline)
                    if side.rows.some_rows(bucket) is not None:
                        # The slice is over.
                        return
                side.rows.drop(bucket)

    def end_keys(self) -> _Results:
        self._timers.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self._timers.watermark = MIN_TIMESTAMP

    def _buckets_over(self, side: _Side) -> list[TimeWindow]:
        position = side.bounds.last_position(self._timers.watermark)
        return [] if position is None else side.rows.buckets_until(position)

    def _unmatched(self, side: _Side, bucket: TimeWindow, deadline: float) -> _Results:
        """Empties a bucket key by key until the deadline; the results of rows that have met none."""
        state, rows = self.context.state, side.rows
        try:
            while (piece := rows.some_rows(bucket)) is not None:
                for canonical, entries in zip(*piece, strict=True):
                    state.current_key = key = user_key(canonical)
                    rows.remove(bucket, key)
                    yield from self._alone(side, entries)
                    if perf_counter() >= deadline:
                        return
        finally:
            state.current_key = NO_KEY

    def _alone(self, side: _Side, entries: list[Entry]) -> _Results:
        for time, has_met, row in entries:
            if has_met:
                continue
            if side.is_left:
                yield from self._results(row, time, None, None)
            else:
                yield from self._results(None, None, row, time)
