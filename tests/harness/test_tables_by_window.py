"""An operator that keeps sums by window and drops windows by event time: rescaled, on both backends, to nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from tests.support.window_sums import summed_by_window
from tests.support.window_sums.window_sums_operator import WindowSumsOperator
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.snapshot.handles import RocksDBSnapshot

SIZE = 10
KEYS = [*range(40), *(f"k{number}" for number in range(10)), None, 2.5]


class Job(RestartedJob):
    """The operator at one parallelism after another, each begun from what the one before has written."""

    def __init__(self) -> None:
        super().__init__(lambda rows: summed_by_window(rows.key_by(lambda row: row[0]), SIZE).uid("sums"))

    @property
    def sums(self) -> list[WindowSumsOperator]:
        found = self.operators
        assert all(isinstance(operator, WindowSumsOperator) for operator in found)
        return found  # type: ignore[return-value]

    def push_stamped(self, rows: list[tuple[Any, int, int]]) -> None:
        """Rows of (key, number, timestamp)."""
        self.push([row[:2] for row in rows], [row[2] for row in rows])

    def sums_of(self, watermark: int) -> Counter[Any]:
        """The sums that a watermark brings forth: (key, start) -> sum, each once."""
        self.watermark(watermark)
        found: Counter[Any] = Counter()
        for (key, start, total), stamp in self.take():
            assert stamp == start + SIZE - 1
            assert (key, start) not in found
            found[key, start] = total
        return found


def rows_held(operator: WindowSumsOperator) -> int:
    """Rows in state, counted and not estimated."""
    state = operator.context.state
    if isinstance(state, HeapKeyedStateBackend):
        return state.entries
    assert isinstance(state, RocksDBKeyedStateBackend)
    return state.entries + sum(1 for _ in state._open().database.family("sums").scan(b"", b"\xff\xff"))


@pytest.mark.parametrize(
    ("backends", "options"),
    [
        (["hashmap"] * 3, CANONICAL),
        (["rocksdb"] * 3, CANONICAL),
        (["rocksdb"] * 3, OWN),
        (["hashmap", "rocksdb", "hashmap"], CANONICAL),
    ],
    ids=["heap", "rocksdb-canonical", "rocksdb-native", "from one to the other"],
)
def test_sums_by_window_are_exact_and_leave_nothing(backends: list[str], options: CheckpointOptions) -> None:
    job = Job()
    expected: Counter[Any] = Counter()
    emitted: Counter[Any] = Counter()
    for round_, (parallelism, backend) in enumerate(zip((1, 2, 1), backends, strict=True)):
        job.start(parallelism, backend)
        # Four windows, forth and back, so that one is opened while another is at hand.
        rows = [
            (key, number, 20 * round_ + (7 * number + 3 * position) % 40)
            for number in range(1, 6)
            for position, key in enumerate(KEYS)
        ]
        for key, number, timestamp in rows:
            expected[key, timestamp - timestamp % SIZE] += number
        job.push_stamped(rows)
        windows = {window for operator in job.sums for window in operator.tables.windows()}
        assert windows == {TimeWindow(start, start + SIZE) for _, start in (expected - emitted)}
        assert not job.sums_of(20 * round_ + 8)
        emitted |= job.sums_of(20 * round_ + 19)
        assert emitted == Counter({at: total for at, total in expected.items() if at[1] < 20 * round_ + 20})
        if round_ < 2:
            state = job.stop(options)
            native = [isinstance(h, RocksDBSnapshot) for each in state.subtasks.values() for h in each.keyed]
            assert native == [options is OWN] * parallelism
    emitted |= job.sums_of(1000)
    assert emitted == expected
    assert all(rows_held(operator) == 0 and not operator.tables.windows() for operator in job.sums)
    job.push_stamped([("late", 1, 5)])
    assert [operator.late for operator in job.sums] == [1]
    assert job.stop(options).subtasks[0].is_empty or options is OWN
