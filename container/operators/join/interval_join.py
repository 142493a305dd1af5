"""IntervalJoiningOperator: joins rows of two keyed inputs whose times are near each other.

Owner: the task thread. Each row looks for its partners among the kept rows of the other input, and is kept for those
that come later. Buckets of rows go when the watermark has passed all times that they could meet. The result of a pair
bears the later time. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.join.interval_code import (
    generate_added,
    generate_canonical_key,
    generate_partners,
)
from yarrow.container.operators.join.keyed_join import KeyedJoiningOperator
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.side_rows import Entry, SideRows
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.registry import runs
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.join_spec import IntervalJoinOperator

#: Names of the state of both sides.
LEFT_ROWS = "_join_left"
RIGHT_ROWS = "_join_right"


class _Side(NamedTuple):
    """One input of a join."""

    bounds: SideBounds
    rows: SideRows
    #: Rows without a partner are results.
    keeps: bool
    #: The row is the left one of a pair.
    is_left: bool


@runs(IntervalJoinOperator)
class IntervalJoiningOperator(KeyedJoiningOperator):
    """Runs an interval join."""

    has_upkeep = True

    def __init__(self, name: str, spec: IntervalJoinOperator) -> None:
        super().__init__(name, spec)
        self._spec = spec
        left = SideBounds(spec.lower_ms, spec.upper_ms)
        self._bounds = left, left.mirrored
        self._keeps = spec.kind.keeps_first, spec.kind.keeps_second
        # Rows without a partner leave late.
        kept = [bounds.delay for bounds, keeps in zip(self._bounds, self._keeps, strict=True) if keeps]
        self.delay = max(kept, default=0)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        types = self._spec.row_types
        sizes = self.count_rows(context, self._bounds[0].bucket_length)
        self._sides = [
            _Side(
                bounds,
                SideRows(context.state, name, declared_type(types[at]), bounds.bucket_length, sizes[at]),
                self._keeps[at],
                at == 0,
            )
            for at, (bounds, name) in enumerate(zip(self._bounds, (LEFT_ROWS, RIGHT_ROWS), strict=True))
        ]

    # ------------------------------------------------------------------ rows

    def generate_results(self, code: CodeWriter, index: int, row: tuple[str, str, str | None]) -> str:
        """Generates code that joins a row with those that came before it, and keeps it; late rows go apart."""
        key, value, timestamp = row
        side, other = self._sides[index], self._sides[1 - index]
        for each in self._sides:
            code.at_start(f"{code.bind('begin', each.rows.begin_chunk)}()")
        watermark, results, time = code.fresh("watermark"), code.fresh("results"), code.fresh("time")
        code.at_start(f"{watermark} = {code.bind('timers', self._timers)}.watermark")
        code.line(f"{time} = {timestamp}")
        with code.block(f"if {time} is None:"):
            code.line(f"{code.bind('checked_time', self.checked_time)}({value}, {time})")
        with code.block(f"if {time} < {watermark}:"):
            code.line(f"{results} = {code.bind('late', self.late)}({index}, {value}, {time})")
        with code.block("else:"):
            fix = self._fixes[index]
            if fix is not None:
                code.line(f"{value} = {code.bind('fix', fix)}({value})")
            key = generate_canonical_key(code, key)
            bounds = side.bounds.lower, side.bounds.upper
            partners = generate_partners(code, other.rows, bounds, key, time, mark=other.keeps)
            entry = f"({time}, True if {partners} else False, {value})"
            generate_added(code, side.rows, key, time, entry)
            pairs = code.bind("pairs", self.pairs.of_left if side.is_left else self.pairs.of_right)
            code.line(f"{results} = {pairs}({value}, {time}, {partners}) if {partners} else ()")
        return results

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while buckets are left whose rows meet no row any more."""
        return any(map(self._buckets_over, self._sides))

    def fire_event_timers(self, deadline: float) -> Results:
        """Removes the buckets whose rows meet no row any more; emits rows without a partner that a join keeps."""
        for side in self._sides:
            for bucket in self._buckets_over(side):
                if side.keeps:
                    yield from self._unmatched(side, bucket, deadline)
                    if side.rows.some_rows(bucket) is not None:
                        # The slice is over.
                        return
                side.rows.drop(bucket)

    def end_rows(self) -> Results:
        return self.fire_event_timers(inf)

    def _buckets_over(self, side: _Side) -> list[TimeWindow]:
        position = side.bounds.last_position(self._timers.watermark)
        return [] if position is None else side.rows.buckets_until(position)

    def _unmatched(self, side: _Side, bucket: TimeWindow, deadline: float) -> Results:
        """Empties a bucket key by key until the deadline; the results of rows that have met none."""
        state, rows = self.context.state, side.rows
        try:
            while (piece := rows.some_rows(bucket)) is not None:
                for canonical, entries in zip(*piece, strict=True):
                    state.current_key = key = user_key(canonical)
                    rows.remove(bucket, key, entries)
                    yield from self._alone(side, entries)
                    if perf_counter() >= deadline:
                        return
        finally:
            state.current_key = NO_KEY

    def _alone(self, side: _Side, entries: list[Entry]) -> Results:
        for time, has_met, row in entries:
            if has_met:
                continue
            if side.is_left:
                yield from self.pairs.at(time, row, time, None, None)
            else:
                yield from self.pairs.at(time, None, None, row, time)
