"""AsOfJoiningOperator: joins each left row with the right row of its key that holds at its time.

Owner: the task thread. A left row waits until its right row is known; `as_of_rule` says when that is. Right rows stay
while a left row can meet them: so one version of a key stays below the watermark. See docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from yarrow.container.operators.join.as_of_rule import TIME_OF, AsOfRule, TimedRow
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.waiting_join import LEFT, RIGHT, WaitingJoiningOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.join_spec import AsOfJoinOperator


@runs(AsOfJoinOperator)
class AsOfJoiningOperator(WaitingJoiningOperator):
    """Runs an as-of join."""

    def __init__(self, name: str, spec: AsOfJoinOperator) -> None:
        super().__init__(name, spec)
        self._rule = AsOfRule(spec.direction, spec.tolerance_ms)
        self._keeps_unmatched = spec.kind.keeps_first
        self.delay = self._rule.delay(keeps_unmatched=self._keeps_unmatched)

    def keep(self, index: int, rows: list[TimedRow], row: TimedRow) -> None:
        if index != RIGHT or not rows or rows[-1][0] < row[0]:
            super().keep(index, rows, row)
            return
        at = bisect_left(rows, row[0], key=TIME_OF)
        if rows[at][0] == row[0]:
            # Of versions with one time the last that comes holds.
            rows[at] = row
        else:
            super().keep(index, rows, row)

    def next_time(self, left: list[TimedRow], right: list[TimedRow]) -> int | None:
        if left:
            # With the row its versions are looked at.
            return self._rule.due(left[0][0], right)
        fades = self._rule.fades(right)
        step = self._rule.step
        return None if fades is None else min(-(-fades // step) * step, MAX_TIMESTAMP)

    def release(self, left: list[TimedRow], right: list[TimedRow], watermark: int) -> Results:
        rule = self._rule
        decided: list[tuple[TimedRow, TimedRow | None]] = []
        for row in left:
            if rule.due(row[0], right) > watermark:
                break
            decided.append((row, rule.chosen(row[0], right)))
        self.take(LEFT, left, len(decided))
        useless = len(right)
        if watermark != MAX_TIMESTAMP:
            useless = rule.useless(min(watermark + 1, left[0][0]) if left else watermark + 1, right)
        self.take(RIGHT, right, useless)
        return self._results(decided)

    def _results(self, decided: Sequence[tuple[TimedRow, TimedRow | None]]) -> Results:
        for (time, row), version in decided:
            if version is not None:
                yield from self.pairs.at(max(time, version[0]), row, time, version[1], version[0])
            elif self._keeps_unmatched:
                yield from self.pairs.at(time, row, time, None, None)
