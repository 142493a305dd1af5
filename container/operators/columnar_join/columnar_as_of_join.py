"""ColumnarAsOfJoiningOperator: joins each left row with the right row that holds at its time, in record batches.

Owner: the task thread. A left row waits until its version is known; `as_of_search` says when that is. The meaning is
that of the as-of join of rows. See docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_join.as_of_search import AsOfSearch
from yarrow.container.operators.columnar_join.columnar_join import LEFT, RIGHT, ColumnarJoiningOperator
from yarrow.container.operators.columnar_join.joined_side import MET
from yarrow.container.operators.columnar_join.near_rows import NearRows
from yarrow.container.operators.columnar_join.row_words import Numbers
from yarrow.container.operators.columnar_join.sorted_runs import MOST_PAIRS, Flags, SortedRun, merged
from yarrow.container.operators.join.as_of_rule import AsOfRule
from yarrow.container.operators.registry import runs
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.column_rows import rows_of_batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.join_spec import ColumnarAsOfJoinOperator

#: Versions below which useless ones are not looked for key by key.
LEAST_VERSIONS: Final = 4096
#: The least watermark at which a left row may leave, if no version comes: what the join notes of left rows.
_DUE: Final = pa.field("due", pa.int64())


@runs(ColumnarAsOfJoinOperator)
class ColumnarAsOfJoiningOperator(ColumnarJoiningOperator):
    """Runs an as-of join of record batches."""

    marks = (_DUE, MET)

    def __init__(self, name: str, spec: ColumnarAsOfJoinOperator) -> None:
        super().__init__(name, spec)
        rule = AsOfRule(spec.direction, spec.tolerance_ms)
        self._search = AsOfSearch(rule)
        self._keeps_unmatched = spec.kind.keeps_first
        self.delay = rule.delay(keeps_unmatched=self._keeps_unmatched)
        #: The watermark at which all rows were looked at last.
        self._looked_at = MIN_TIMESTAMP
        #: Runs of left rows that are still to be looked at; None = no look is under way.
        self._pending: list[SortedRun] | None = None
        #: The keys with versions that have become final since then: bool, shape (slots,); None = all that matter.
        self._fresh: Flags | None = None
        self._most_versions = LEAST_VERSIONS

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        for run in self.sides[LEFT].rows.runs:
            # Direction and tolerance may be others than before.
            run.marks[:] = self.ordering.times(run.words)

    # ------------------------------------------------------------------ rows

    def late_from(self, times: Numbers) -> Numbers:
        return times

    def take(self, index: int, records: pa.RecordBatch, times: Numbers, slots: Slots) -> tuple[()]:
        """Keeps rows; times and slots: int64, shape (rows,) each."""
        marks = times.copy() if index == LEFT else np.zeros(len(times), np.bool_)
        self.sides[index].rows.add(self.ordering, self.ordering.words(slots, times), records, marks)
        return ()

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while rows have still to be looked at."""
        return self._looked_at < self.watermark and any(side.rows.runs for side in self.sides)

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Emits left rows whose versions are final, a part of a run at a time; then removes useless versions."""
        left = self.sides[LEFT].rows
        if self._pending is None:
            self._pending = [run for run in left.runs if run.first_time <= self.watermark]
            self._fresh = self._fresh_keys() if self._pending else None
        while self._pending:
            yield from self._release(self._pending, self._pending.pop())
            if self._pending and perf_counter() >= deadline:
                return
        self._pending = self._fresh = None
        if self._ordering is not None:
            left.settle(self._ordering)
            self._forget()
            self.use_slots_again()
        self._looked_at = self.watermark

    def end_keys(self) -> Iterator[ArrowBatch]:
        yield from super().end_keys()
        self._looked_at = MIN_TIMESTAMP

    def _fresh_keys(self) -> Flags | None:
        """The keys of versions that have become final since the last look, if these can make left rows leave."""
        if not self._search.rule.looks_ahead:
            return None
        ordering = self.ordering
        fresh = np.zeros(self._index.size, np.bool_)
        for run in self.sides[RIGHT].rows.runs:
            times = ordering.times(run.words)
            fresh[ordering.slots(run.words[(times > self._looked_at) & (times <= self.watermark)])] = True
        return fresh

    def _release(self, pending: list[SortedRun], run: SortedRun) -> Iterator[ArrowBatch]:
        """Looks at the rows of a run that may leave, and emits those whose versions are final.

        A run with many of them is split, and the rest of it is pending.
        """
        left, ordering, watermark = self.sides[LEFT].rows, self.ordering, self.watermark
        ready = run.marks <= watermark
        if self._fresh is not None:
            ready |= self._fresh[ordering.slots(run.words)] & (ordering.times(run.words) <= watermark)
        places = np.flatnonzero(ready)
        if len(places) > MOST_PAIRS:
            first, rest = run.split(ordering, int(places[MOST_PAIRS]))
            left.replace(run, first, rest)
            pending.append(rest)
            run, places = first, places[:MOST_PAIRS]
        if not len(places):
            return
        versions_of = self.sides[RIGHT].rows.runs
        known = self._search.look(ordering, versions_of, run.words[places])
        final = known.due <= watermark
        run.marks[places] = known.due
        leaving = places[final]
        if len(leaving):
            stays = np.ones(len(run.words), np.bool_)
            stays[leaving] = False
            left.replace(run, run.chosen(ordering, stays))
            versions = NearRows(*(each[final] for each in known.versions))
            yield from self._results(run, leaving, versions_of, versions)

    def _results(
        self, run: SortedRun, places: Numbers, of: list[SortedRun], versions: NearRows
    ) -> Iterator[ArrowBatch]:
        """The results of rows of a run, int64 of shape (rows,), with their versions."""
        ordering = self.ordering
        for number in np.unique(versions.run).tolist():
            chosen = versions.run == number
            own = places[chosen]
            rows, stamps = rows_of_batch(run.rows, pa.array(own)), ordering.times(run.words[own])
            if number >= 0:
                other = rows_of_batch(of[number].rows, pa.array(versions.place[chosen]))
                times = ordering.times(versions.word[chosen])
                yield self.pairs(LEFT, rows, other, np.maximum(stamps, times))
            elif self._keeps_unmatched:
                yield from self.alone(LEFT, rows, stamps)

    def _forget(self) -> None:
        """Removes versions that no row can meet any more: by buckets of time, and key by key when there are many."""
        right, ordering, step = self.sides[RIGHT].rows, self.ordering, self._search.rule.step
        if self.watermark == MAX_TIMESTAMP:
            right.runs.clear()
            return
        oldest = self.sides[LEFT].rows.oldest
        least = self.watermark + 1 if oldest is None else min(oldest, self.watermark + 1)
        until = self._search.useless_until(least)
        if until is not None:
            until = (until + 1) // step * step - 1
            for run in [run for run in right.runs if run.first_time <= until]:
                right.replace(run, run.chosen(ordering, ordering.times(run.words) > until))
        if right.size > self._most_versions:
            run = merged(ordering, right.runs)
            kept = run.chosen(ordering, self._search.holds(ordering, run.words, self._least_times()))
            right.runs = [] if kept is None else [kept]
            self._most_versions = max(LEAST_VERSIONS, 2 * right.size)

    def _least_times(self) -> Numbers:
        """The least time that a left row of each key has, or can still have: int64, shape (slots,)."""
        ordering, watermark = self.ordering, self.watermark
        least = np.full(self._index.size, ordering.within(watermark + 1), np.int64)
        for run in self.sides[LEFT].rows.runs:
            if run.first_time <= watermark:
                np.minimum.at(least, ordering.slots(run.words), ordering.times(run.words))
        return least
