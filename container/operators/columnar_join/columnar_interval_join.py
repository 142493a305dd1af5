"""ColumnarIntervalJoiningOperator: an interval join of record batches, without a Python object of a row.

Owner: the task thread. A row meets those of the other side that have come before it. The meaning is that of the
interval join of rows. See docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_join.columnar_join import ColumnarJoiningOperator
from yarrow.container.operators.columnar_join.joined_side import MET
from yarrow.container.operators.columnar_join.row_words import Numbers
from yarrow.container.operators.columnar_join.sorted_runs import Flags, SortedRun
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.registry import runs
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.column_rows import rows_of_batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.join_spec import ColumnarIntervalJoinOperator


@runs(ColumnarIntervalJoinOperator)
class ColumnarIntervalJoiningOperator(ColumnarJoiningOperator):
    """Runs an interval join of record batches."""

    marks = (MET, MET)

    def __init__(self, name: str, spec: ColumnarIntervalJoinOperator) -> None:
        super().__init__(name, spec)
        left = SideBounds(spec.lower_ms, spec.upper_ms)
        self._bounds = left, left.mirrored
        self._keeps = spec.kind.keeps_first, spec.kind.keeps_second
        kept = [bounds.delay for bounds, keeps in zip(self._bounds, self._keeps, strict=True) if keeps]
        # Rows without a partner leave late.
        self.delay = max(kept, default=0)

    # ------------------------------------------------------------------ rows

    def late_from(self, times: Numbers) -> Numbers:
        # A row at the watermark is not late: as in Flink.
        return np.minimum(times, MAX_TIMESTAMP - 1) + 1

    def take(self, index: int, records: pa.RecordBatch, times: Numbers, slots: Slots) -> Iterator[ArrowBatch]:
        """Joins rows with those that came before them, and keeps them; times and slots: int64, shape (rows,) each."""
        ordering, bounds = self.ordering, self._bounds[index]
        run = SortedRun.of(ordering, ordering.words(slots, times), records, np.zeros(len(times), np.bool_))
        # Searches for words that rise find the memory of the last one in the cache.
        first = ordering.later(run.words, bounds.lower)
        last = first if bounds.is_one_time else ordering.later(run.words, bounds.upper)
        for pairs in self.sides[1 - index].rows.meeting(ordering, first, last):
            run.marks[pairs.own] = True
            pairs.run.marks[pairs.other] = True
            own = rows_of_batch(run.rows, pa.array(pairs.own))
            other = rows_of_batch(pairs.run.rows, pa.array(pairs.other))
            words = run.words[pairs.own], pairs.run.words[pairs.other]
            yield self.pairs(index, own, other, np.maximum(*map(ordering.times, words)))
        self.sides[index].rows.append(ordering, run)

    # ------------------------------------------------------------------ time

    def _over(self, index: int) -> int | None:
        """The last time whose rows of a side are removed: the end of a bucket; None = there is none."""
        bounds = self._bounds[index]
        position = bounds.last_position(self.watermark)
        if position is None or position == MAX_TIMESTAMP:
            return position
        return (position + 1) // bounds.bucket_length * bounds.bucket_length - 1

    @property
    def event_timers_due(self) -> bool:
        """True while rows are left that meet no row any more."""
        return any(
            run.first_time <= over
            for index, side in enumerate(self.sides)
            if (over := self._over(index)) is not None
            for run in side.rows.runs
        )

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Removes rows that meet no row any more, a run at a time; emits those without a partner that a join keeps."""
        for index, side in enumerate(self.sides):
            over = self._over(index)
            if over is None:
                continue
            for run in [run for run in side.rows.runs if run.first_time <= over]:
                yield from self._without(index, run, over)
                if self.event_timers_due and perf_counter() >= deadline:
                    return
        self.use_slots_again()

    def _without(self, index: int, run: SortedRun, over: int) -> Iterator[ArrowBatch]:
        """Removes the rows of a run up to a time."""
        ordering = self.ordering
        gone: Flags = ordering.times(run.words) <= over
        self.sides[index].rows.replace(run, run.chosen(ordering, ~gone))
        if self._keeps[index]:
            alone = run.chosen(ordering, gone & ~run.marks)
            if alone is not None:
                yield from self.alone(index, alone.rows, ordering.times(alone.words))
