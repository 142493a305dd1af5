"""IntervalJoiningOperator: joins rows of two keyed inputs whose times are near each other.

Owner: the task thread. Each row looks for its partners among the kept rows of the other input, and is kept for those
that come later. Buckets of rows go when the watermark has passed all times that they could meet. The result of a pair
bears the later time. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.join.keyed_join import KeyedJoiningOperator, RowFunction
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.side_rows import Entry, SideRows
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.registry import runs
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.keys import canonicalize, user_key
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

        self._on_row = self._taking(0), self._taking(1)

    # ------------------------------------------------------------------ rows

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        for side in self._sides:
            code.at_start(f"{code.bind('begin', side.rows.begin_chunk)}()")
        super().generate_input(code, index, value, timestamp, emit)

    def row_function(self, index: int) -> RowFunction:
        return self._on_row[index]

    def _taking(self, index: int) -> RowFunction:
        """A function that takes a row of an input; as each row goes through it, it reads few attributes.

        It joins the row with those that came before it, and keeps it, or gives a late row back.
        """
        side, other = self._sides[index], self._sides[1 - index]
        lower, upper = side.bounds
        find, add = other.rows.finding(mark=other.keeps), side.rows.adding()
        pairs = self.pairs.of_left if side.is_left else self.pairs.of_right
        timers, state, fix = self._timers, self.context.state, self._fixes[index]

        def on_row(row: Any, timestamp: int | None) -> Iterable[tuple[Any, int | None]]:
            if timestamp is None:
                timestamp = self.checked_time(row, timestamp)
            if timestamp < timers.watermark:
                return self.late(index, row, timestamp)
            if fix is not None:
                row = fix(row)
            key = canonicalize(state.current_key)
            partners = find(key, timestamp + lower, timestamp + upper)
            if partners:
                add(key, (timestamp, True, row))
                return pairs(row, timestamp, partners)
            add(key, (timestamp, False, row))
            return ()

        return on_row

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
