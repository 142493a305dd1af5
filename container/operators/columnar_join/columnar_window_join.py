"""ColumnarWindowJoiningOperator: joins record batches by key and window of event time.

Owner: the task thread. Rows wait until their window ends. A window fires a part of its keys at a time, and each row
notes up to which window it has been joined. The meaning is that of the join of rows by window, without lateness. See
docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_join.columnar_join import LEFT, RIGHT, ColumnarJoiningOperator
from yarrow.container.operators.columnar_join.row_words import Numbers
from yarrow.container.operators.columnar_join.sorted_runs import MOST_PAIRS, SortedRun, merged
from yarrow.container.operators.columnar_window.divided_rows import divided
from yarrow.container.operators.columnar_window.live_slices import LiveSlices
from yarrow.container.operators.registry import runs
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.column_rows import rows_of_batch, rows_where
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.join_spec import ColumnarWindowJoinOperator

#: The end of the last window that a row has been joined in, or came too late for: what the join notes of its rows.
_JOINED: pa.Field = pa.field("joined", pa.int64())


@runs(ColumnarWindowJoinOperator)
class ColumnarWindowJoiningOperator(ColumnarJoiningOperator):
    """Runs a join of record batches by window."""

    marks = (_JOINED, _JOINED)

    def __init__(self, name: str, spec: ColumnarWindowJoinOperator) -> None:
        super().__init__(name, spec)
        self._layout = TimeSlices(spec.size_ms, spec.slide_ms, spec.offset_ms, spec.cumulative)
        self._keeps = spec.kind.keeps_first, spec.kind.keeps_second
        #: The slices of time that have rows, each kept by its start.
        self._live: LiveSlices[int] = LiveSlices(self._layout, 0)
        #: The slot with which the window that is firing goes on.
        self._next_slot = 0

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        for side in self.sides:
            for run in side.rows.runs:
                for start, _ in divided(self.ordering.times(run.words), self._layout):
                    if self._layout.ends_of(start):
                        self._open(start, None)

    def _open(self, start: int, watermark: int | None) -> None:
        self._live.open(start, watermark, lambda: start)

    # ------------------------------------------------------------------ rows

    def late_from(self, times: Numbers) -> Numbers:
        late_from = times.copy()
        for start, rows in divided(times, self._layout) if len(times) else ():
            ends = self._layout.ends_of(start)
            # A row of no window is late by its own time.
            if ends:
                late_from[rows] = ends[-1] - 1
        return late_from

    def take(self, index: int, records: pa.RecordBatch, times: Numbers, slots: Slots) -> tuple[()]:
        """Keeps rows that belong to a window; times and slots: int64, shape (rows,) each."""
        in_window = np.ones(len(times), np.bool_)
        for start, rows in divided(times, self._layout):
            if self._layout.ends_of(start):
                self._open(start, self.watermark)
            else:
                in_window[rows] = False
        if not in_window.all():
            self._ledger.of_no_window(int((~in_window).sum()))
            records, times, slots = (
                rows_where(records, pa.array(in_window)),
                times[in_window],
                slots[in_window],
            )
        # Windows that the watermark has reached are over for these rows.
        joined = np.full(len(times), self.watermark + 1, np.int64)
        self.sides[index].rows.add(self.ordering, self.ordering.words(slots, times), records, joined)
        return ()

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while windows have still to fire."""
        end = self._live.next_end
        return end is not None and end - 1 <= self.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Emits the results of windows that have ended, a part of their keys at a time."""
        while self.event_timers_due:
            yield from self._fire()
            if self.event_timers_due and perf_counter() >= deadline:
                return
        if self._ordering is not None:
            self.use_slots_again()

    def _fire(self) -> Iterator[ArrowBatch]:
        """Emits the results of some keys of the next window; behind the last key the window is over."""
        end = self._live.next_end
        assert end is not None, "a window is due"
        kept = sum(side.rows.size for side in self.sides)
        first = self._next_slot
        size = self._index.size
        last = min(first + max(1, MOST_PAIRS * size // max(1, kept)), size) - 1
        left, right = (self._joined_now(index, end, first, last) for index in (LEFT, RIGHT))
        self._next_slot = last + 1
        if self._next_slot == size:
            self._next_slot = 0
            self._live.has_fired()
            self._forget()
        yield from self._results(end, left, right)

    def _joined_now(self, index: int, end: int, first: int, last: int) -> SortedRun | None:
        """Takes the rows of a window as joined: those of a side with slots from `first` to `last`; None = none."""
        ordering, start = self.ordering, self._layout.start_of(end)
        firsts, lasts = ordering.whole(np.array([first, last], np.int64))
        found = []
        for run in self.sides[index].rows.runs:
            low = int(np.searchsorted(run.words, firsts[0], side="left"))
            high = int(np.searchsorted(run.words, lasts[1], side="right"))
            times, joined = ordering.times(run.words[low:high]), run.marks[low:high]
            places = low + np.flatnonzero((times >= start) & (times < end) & (joined < end))
            if len(places):
                run.marks[places] = end
                found.append(run.at(ordering, places))
        return merged(ordering, found) if found else None

    def _results(self, end: int, left: SortedRun | None, right: SortedRun | None) -> Iterator[ArrowBatch]:
        """Pairs of the rows of a window, and rows without a partner that the join keeps."""
        ordering = self.ordering
        if left is not None and right is not None:
            for pairs in right.meeting(*ordering.whole(ordering.slots(left.words))):
                own = rows_of_batch(left.rows, pa.array(pairs.own))
                other = rows_of_batch(right.rows, pa.array(pairs.other))
                yield self.pairs(LEFT, own, other, np.full(len(pairs.own), end - 1))
        for index, rows, others in ((LEFT, left, right), (RIGHT, right, left)):
            if rows is None or not self._keeps[index]:
                continue
            alone: SortedRun | None = rows
            if others is not None:
                met = np.isin(ordering.slots(rows.words), ordering.slots(others.words))
                alone = rows.chosen(ordering, ~met)
            if alone is not None:
                yield from self.alone(index, alone.rows, np.full(len(alone.words), end - 1))

    def _forget(self) -> None:
        """Removes the rows of slices whose windows have all fired."""
        over = max(self._live.gone(self.watermark), default=None)
        if over is None:
            return
        for side in self.sides:
            for run in [run for run in side.rows.runs if run.first_time < over + self._layout.step]:
                stays = self.ordering.times(run.words) >= over + self._layout.step
                side.rows.replace(run, run.chosen(self.ordering, stays))
            side.rows.settle(self.ordering)

    def end_keys(self) -> Iterator[ArrowBatch]:
        yield from super().end_keys()
        for side in self.sides:
            side.rows.runs.clear()
