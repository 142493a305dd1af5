"""DelayedJoiningOperator: joins all rows of a key that have come within a delay of the first one, in one batch.

Owner: the task thread. The first row of a key that waits begins a batch. When the watermark has passed the delay behind
it, all rows up to then are joined and forgotten. Results bear the last time of their batch. See docs/joins.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from yarrow.container.operators.join.as_of_rule import TIME_OF, TimedRow
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.waiting_join import WaitingJoiningOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.join_spec import DelayedJoinOperator


class _Batch(NamedTuple):
    """The rows of a key that are joined together."""

    last_time: int
    left: Sequence[TimedRow]
    right: Sequence[TimedRow]


@runs(DelayedJoinOperator)
class DelayedJoiningOperator(WaitingJoiningOperator):
    """Runs a delayed join."""

    def __init__(self, name: str, spec: DelayedJoinOperator) -> None:
        super().__init__(name, spec)
        self._delay_ms = spec.delay_ms
        self._kind = spec.kind

    def next_time(self, left: list[TimedRow], right: list[TimedRow]) -> int | None:
        first = min((rows[0][0] for rows in (left, right) if rows), default=None)
        return None if first is None else min(first + self._delay_ms - 1, MAX_TIMESTAMP)

    def release(self, left: list[TimedRow], right: list[TimedRow], watermark: int) -> Results:
        batches = []
        while (last := self.next_time(left, right)) is not None and last <= watermark:
            taken = [
                self.take(index, rows, bisect_right(rows, last, key=TIME_OF))
                for index, rows in enumerate((left, right))
            ]
            batches.append(_Batch(last, *taken))
        return self._results(batches)

    def _results(self, batches: Sequence[_Batch]) -> Results:
        at = self.pairs.at
        for last, left, right in batches:
            if left and right:
                for time, row in left:
                    for other_time, other in right:
                        yield from at(last, row, time, other, other_time)
            elif left and self._kind.keeps_first:
                for time, row in left:
                    yield from at(last, row, time, None, None)
            elif right and self._kind.keeps_second:
                for time, row in right:
                    yield from at(last, None, None, row, time)
