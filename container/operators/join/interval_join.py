"""IntervalJoiningOperator: joins rows of two keyed inputs whose times are near each other.

Owner: the task thread. Each row looks for its partners among the kept rows of the other input, and is kept for those
that come later. Buckets of rows go when the watermark has passed all times that they could meet. The result of a pair
bears the later time. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.join.fine_code import generate_fine_join
from yarrow.container.operators.join.fine_rows import FineForm, FineRows
from yarrow.container.operators.join.interval_code import generate_added, generate_partners
from yarrow.container.operators.join.keyed_join import KeyedJoiningOperator
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.pair_code import (
    JoinedRow,
    computes_pairs,
    generate_emitted,
    generate_timed_results,
)
from yarrow.container.operators.join.side_rows import Entry, SideRows, stored_rows
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.pair_form import pair_form
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_canonical_key
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
    rows: SideRows | FineRows
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
        sizes = self.count_rows(context, self._bounds[0].bucket_length)
        self._sides = [
            _Side(bounds, self._open_rows(context, at, bounds, sizes[at]), self._keeps[at], at == 0)
            for at, bounds in enumerate(self._bounds)
        ]

    def _open_rows(
        self, context: OperatorContext, at: int, bounds: SideBounds, size: SideSize
    ) -> SideRows | FineRows:
        """The rows of an input: fine buckets in memory if no row needs a note and the backend keeps all state there."""
        row_type = declared_type(self._spec.row_types[at])
        tables = stored_rows(context.state, (LEFT_ROWS, RIGHT_ROWS)[at], row_type)
        fine, length = bounds.fine_length, bounds.bucket_length
        if fine is None or any(self._keeps) or not tables.stores_at_cut:
            return SideRows(tables, length, size)
        pairs = pair_form(row_type, self._selectors[at]) if bounds.is_one_time else None
        form = FineForm(fine, length, bounds.is_one_time, typed=row_type is not None, pairs=pairs)
        return FineRows(tables, form, size)

    # ------------------------------------------------------------------ rows

    def needs_key(self, code: CodeWriter) -> bool:
        """See KeyedJoiningOperator. Rows in memory are found by the canonical key of the row at hand."""
        are_fine = all(isinstance(side.rows, FineRows) for side in self._sides)
        return not (are_fine and computes_pairs(code, self.pairs))

    def generate_row(
        self, code: CodeWriter, index: int, row: tuple[str, str, str | None], emit: Emit
    ) -> None:
        """Generates code that joins a row with those that came before it, and keeps it; late rows go apart."""
        key, value, timestamp = row
        watermark, time = code.fresh("watermark"), code.fresh("time")
        code.at_start(f"{watermark} = {code.bind('timers', self._timers)}.watermark")
        code.line(f"{time} = {timestamp}")
        with code.block(f"if {time} is None:"):
            self.generate_key_set(code, key)
            code.line(f"{code.bind('checked_time', self.checked_time)}({value}, {time})")
        with code.block(f"if {time} < {watermark}:"):
            self.generate_key_set(code, key)
            late = f"{code.bind('late', self.late)}({index}, {value}, {time})"
            if self._late_tags[index] is None:
                code.line(late)
            else:
                generate_emitted(code, late, emit)
        with code.block("else:"):
            fix = self._fixes[index]
            if fix is not None:
                code.line(f"{value} = {code.bind('fix', fix)}({value})")
            side = self._sides[index]
            joined = JoinedRow(self.context.state, key, value, time, side.is_left)
            self._generate_joined(code, joined, side, self._sides[1 - index], emit)

    def _generate_joined(
        self, code: CodeWriter, row: JoinedRow, side: _Side, other: _Side, emit: Emit
    ) -> None:
        """Generates code that joins a row, keeps it and emits its results."""
        bounds = side.bounds.lower, side.bounds.upper
        if isinstance(side.rows, FineRows) and isinstance(other.rows, FineRows):
            generate_fine_join(code, (side.rows, other.rows), bounds, row, self.pairs, emit)
            return
        assert isinstance(side.rows, SideRows)
        assert isinstance(other.rows, SideRows)
        for rows in (side.rows, other.rows):
            code.at_start(f"{code.bind('begin', rows.begin_chunk)}()")
        key = generate_canonical_key(code, row.key)
        partners = generate_partners(code, other.rows, bounds, key, row.time, mark=other.keeps)
        entry = f"({row.time}, True if {partners} else False, {row.value})"
        generate_added(code, side.rows, key, row.time, entry)
        with code.block(f"if {partners}:"):
            generate_emitted(code, generate_timed_results(code, self.pairs, row, partners), emit)

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while buckets are left whose rows meet no row any more."""
        return any(
            (position := self._over(side)) is not None and side.rows.has_until(position)
            for side in self._sides
        )

    def fire_event_timers(self, deadline: float) -> Results:
        """Removes the buckets whose rows meet no row any more; emits rows without a partner that a join keeps."""
        for side in self._sides:
            rows, position = side.rows, self._over(side)
            if position is None:
                continue
            if isinstance(rows, FineRows):
                if not rows.drop_until(position, deadline):
                    return
                continue
            for bucket in rows.buckets_until(position):
                if side.keeps:
                    yield from self._unmatched(side, rows, bucket, deadline)
                    if rows.some_rows(bucket) is not None:
                        # The slice is over.
                        return
                rows.drop(bucket)

    def end_rows(self) -> Results:
        return self.fire_event_timers(inf)

    def _over(self, side: _Side) -> int | None:
        """The last time of rows that meet no row any more; None = there are none."""
        return side.bounds.last_position(self._timers.watermark)

    def _unmatched(self, side: _Side, rows: SideRows, bucket: TimeWindow, deadline: float) -> Results:
        """Empties a bucket key by key until the deadline; the results of rows that have met none."""
        state = self.context.state
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
