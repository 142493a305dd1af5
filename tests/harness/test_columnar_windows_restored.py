"""Columnar windows against a model in plain Python: rows out of order and late, watermarks, restarts.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts, late rows included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL, RestartedJob
from yarrow.common.time import Time
from yarrow.container.operators.columnar_window.columnar_windows import ColumnarWindows
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.functions import WindowFunction
from yarrow.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.data.elements import MIN_TIMESTAMP

KEYS = [1, 2, -7, None, 2**40]
LATENESS = (0, 7)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])
AGGREGATES = [("n", "sum"), ("n", "min"), ("x", "max"), ("x", "mean"), (None, "count")]

#: (start, end) of the windows of a time.
WindowsOf = Callable[[int], list[tuple[int, int]]]


def fixed(size: int, slide: int, offset: int = 0) -> WindowsOf:
    def windows_of(time: int) -> list[tuple[int, int]]:
        last = time - (time - offset) % slide
        return [(start, start + size) for start in range(last, time - size, -slide)]

    return windows_of


ASSIGNERS: dict[str, tuple[WindowAssigner[Any, Any], WindowsOf]] = {
    "tumbling": (TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(3)), fixed(10, 10, 3)),
    "sliding": (
        SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4)),
        fixed(10, 4),
    ),
    # Most slices of a window belong to the next one: windows share their merges.
    "overlapping": (
        SlidingEventTimeWindows.of(Time.milliseconds(15), Time.milliseconds(3), Time.milliseconds(1)),
        fixed(15, 3, 1),
    ),
    "session": (EventTimeSessionWindows.with_gap(Time.milliseconds(5)), lambda time: [(time, time + 5)]),
    "sliding with gaps": (
        SlidingEventTimeWindows.of(Time.milliseconds(4), Time.milliseconds(6)),
        fixed(4, 6),
    ),
}


def cumulative(size: int, step: int, offset: int = 0) -> WindowsOf:
    def windows_of(time: int) -> list[tuple[int, int]]:
        start = time - (time - offset) % size
        return [(start, end) for end in range(start + step, start + size + 1, step) if end > time]

    return windows_of


ASSIGNERS["cumulative"] = (
    CumulativeEventTimeWindows.of(Time.milliseconds(12), Time.milliseconds(4), Time.milliseconds(3)),
    cumulative(12, 4, 3),
)


class Model:
    """Windows by key in dicts; a batch fires a window that the watermark has passed once for each key."""

    def __init__(self, assigner: str, lateness: int) -> None:
        self.windows_of, self.lateness = ASSIGNERS[assigner][1], lateness
        self.merging = assigner == "session"
        self.watermark = MIN_TIMESTAMP
        self.content: dict[tuple[Any, int, int], list[tuple[int | None, float | None]]] = {}
        self.fired: Counter[Any] = Counter()
        self.dropped = 0

    def batch(self, rows: Sequence[tuple[Any, int | None, float | None, int]]) -> None:
        behind = set()
        for key, number, share, time in rows:
            taken = False
            for start, end in self.windows_of(time):
                touched = self.touched(key, start, end) if self.merging else []
                start, end = min([start, *(w[1] for w in touched)]), max([end, *(w[2] for w in touched)])
                if end - 1 + self.lateness <= self.watermark:
                    continue
                taken = True
                held = [row for other in touched for row in self.content.pop(other)]
                self.content.setdefault((key, start, end), held).append((number, share))
                if end - 1 <= self.watermark:
                    behind.add((key, start, end))
            self.dropped += not taken
        for window in behind & {*self.content}:
            self.fire(window)

    def touched(self, key: Any, start: int, end: int) -> list[tuple[Any, int, int]]:
        """The sessions of a key that overlap or touch a window."""
        return [w for w in self.content if w[0] == key and w[1] <= end and start <= w[2]]

    def fire(self, window: tuple[Any, int, int]) -> None:
        rows = self.content[window]
        numbers = [number for number, _ in rows if number is not None]
        shares = [share for _, share in rows if share is not None]
        self.fired[
            (
                *window,
                sum(numbers) if numbers else None,
                min(numbers, default=None),
                max(shares, default=None),
                sum(shares) / len(shares) if shares else None,
                len(rows),
            )
        ] += 1

    def rise(self, watermark: int) -> None:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        for window in list(self.content):
            if before < window[2] - 1 <= self.watermark:
                self.fire(window)
            if window[2] - 1 + self.lateness <= self.watermark:
                del self.content[window]


def windowed(assigner: WindowAssigner[Any, Any], lateness: int) -> Callable[[DataStream], DataStream]:
    def build(batches: DataStream) -> DataStream:
        windows = batches.key_by("k").window(assigner).allowed_lateness(lateness)
        return windows.aggregate(AGGREGATES).uid("windows")

    return build


def job_of(assigner: str, lateness: int) -> RestartedColumns:
    return RestartedColumns(windowed(ASSIGNERS[assigner][0], lateness), SCHEMA, "k")


#: Shares are whole numbers of quarters: their sums are exact in any order.
rows_of = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.none() | st.integers(-50, 50),
        st.none() | st.integers(-9, 9).map(lambda number: number / 4),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=6,
)
steps_of = job_steps(rows_of, st.integers(0, 45))


@pytest.mark.slow
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("assigner", sorted(ASSIGNERS))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_windows_are_those_of_the_model(assigner: str, lateness: int, steps: list[Any], backend: str) -> None:
    compare_with_the_model(Model(assigner, lateness), job_of(assigner, lateness), steps, backend)


def compare_with_the_model(model: Model, job: RestartedColumns, steps: list[Any], backend: str) -> None:
    """Runs the steps in both: each firing is that of the model, and in the end no state is left."""
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = 0
    try:
        for kind, what in [*steps, ("watermark", 1000)]:
            if kind == "rows":
                model.batch(what)
                job.push_rows([row[:3] for row in what], [row[3] for row in what])
            elif kind == "watermark":
                model.rise(what)
                job.watermark(what)
            else:
                dropped += sum(operator.late_dropped for operator in windowing(job))
                job.restart(*what)
            for row, stamp in job.take():
                assert stamp == row.window_end - 1
                found[tuple(row)] += 1
            assert found == model.fired
        dropped += sum(operator.late_dropped for operator in windowing(job))
        assert dropped == model.dropped
        assert not model.content
        assert all(operator.entry_count == 0 for operator in windowing(job))
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def windowing(job: RestartedColumns) -> Iterator[ColumnarWindows]:
    for operator in job.operators:
        assert isinstance(operator, ColumnarWindows)
        yield operator


def test_a_rescaled_subtask_begins_at_the_least_watermark_of_its_key_groups() -> None:
    job = job_of("tumbling", 0)
    job.start(2, "hashmap")
    job.watermark(30, subtask=0)
    job.watermark(12, subtask=1)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    assert [operator.watermark for operator in windowing(job)] == [12]
    job.watermark(30)
    job.stop(CANONICAL)
    job.start(4, "hashmap")
    assert [operator.watermark for operator in windowing(job)] == [30] * 4
    job.stop(CANONICAL)


def test_a_late_row_is_as_late_after_a_restore_as_before() -> None:
    job = job_of("tumbling", 0)
    job.start(1, "hashmap")
    job.watermark(12)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.push_rows([(1, 5, None), (1, 6, None)], [4, 14])
    assert [operator.late_dropped for operator in windowing(job)] == [1]
    # The inputs begin below the restored watermark.
    job.watermark(4)
    job.push_rows([(1, 7, None)], [9])
    assert [operator.late_dropped for operator in windowing(job)] == [2]
    job.watermark(22)
    assert [(tuple(row), stamp) for row, stamp in job.take()] == [((1, 13, 23, 6, 6, None, None, 1), 22)]
    job.stop(CANONICAL)


def test_windows_fire_after_a_restore_before_any_batch_has_come() -> None:
    """The types of columns are state too."""
    job = job_of("tumbling", 0)
    job.start(1, "hashmap")
    job.push_rows([(1, 5, 0.5)], [4])
    for parallelism, backend in ((2, "rocksdb"), (1, "hashmap")):
        job.stop(CANONICAL)
        job.start(parallelism, backend)
    job.watermark(100)
    assert [(tuple(row), stamp) for row, stamp in job.take()] == [((1, 3, 13, 5, 5, 0.5, 0.5, 1), 12)]
    job.stop(CANONICAL)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("assigner", ["session", "sliding", "tumbling"])
@pytest.mark.parametrize("lateness", LATENESS)
def test_a_cut_in_the_middle_of_firing_loses_and_doubles_nothing(
    monkeypatch: pytest.MonkeyPatch, assigner: str, lateness: int, backend: str
) -> None:
    for module in ("sliced_windows", "session_windows"):
        monkeypatch.setattr(f"yarrow.container.operators.columnar_window.{module}.MOST_ROWS", 100)
    job = job_of(assigner, lateness)
    job.start(1, backend)
    job.push_rows([(key, key, None) for key in range(500)], [7] * 500)
    (operator,) = windowing(job)
    (first, *_) = sorted({end for _, end in ASSIGNERS[assigner][1](7)})
    operator.on_watermark(first - 1)
    # A deadline that has passed: each slice of work emits one batch.
    fired = [
        row["k"]
        for _ in range(2)
        for batch in operator.fire_event_timers(0.0)
        for row in batch.batch.to_pylist()
    ]
    assert len(fired) == 200
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    # A row inside the lateness comes before any watermark: what was due fires first, without it.
    job.push_rows([(499, 1000, None)], [7])
    found = [tuple(row) for row, _ in job.take() if row.window_end == first]
    job.watermark(first - 1)
    found += [tuple(row) for row, _ in job.take() if row.window_end == first]
    once = [row for row in found if row[3] == row[0]]
    assert sorted([*fired, *(row[0] for row in once)]) == list(range(500))
    again = [row for row in found if row[3] != row[0]]
    assert [row[3] for row in again] == ([1499] if lateness else [])
    job.watermark(100)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.slow
def test_rows_and_columns_give_the_same() -> None:
    """The same rows through windows of rows and of columns; without lateness each window fires once."""
    chosen = Random(7)
    steps: list[tuple[str, Any]] = []
    for number in range(120):
        rows = [
            (chosen.choice(KEYS), chosen.randrange(100), chosen.randrange(9) / 4)
            for _ in range(chosen.randrange(1, 9))
        ]
        steps.append(("rows", [(row, number * 2 + chosen.randrange(-30, 12)) for row in rows]))
        if not number % 3:
            steps.append(("watermark", number * 2 - chosen.randrange(4, 9)))
    for assigner in sorted(ASSIGNERS):
        by_columns = job_of(assigner, 0)
        by_columns.start(2, "hashmap")
        by_rows = RestartedJob(of_rows(ASSIGNERS[assigner][0]))
        by_rows.start(2, "hashmap")
        for kind, what in [*steps, ("watermark", 10_000)]:
            if kind == "rows":
                by_columns.push_rows([row for row, _ in what], [time for _, time in what])
                by_rows.push([row for row, _ in what], [time for _, time in what])
            else:
                by_columns.watermark(what)
                by_rows.watermark(what)
        of_columns = Counter((tuple(row), stamp) for row, stamp in by_columns.take())
        assert of_columns == Counter(by_rows.take())
        late = sum(operator.late_dropped for operator in windowing(by_columns))
        assert late == sum(cast(WindowingOperator, operator).late_dropped for operator in by_rows.operators)
        assert late and of_columns
        by_columns.stop(CANONICAL)
        by_rows.stop(CANONICAL)


class Aggregates(WindowFunction[Any, Any, Any, Any]):
    """What AGGREGATES make of the rows of a window."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        _, numbers, shares = zip(*inputs, strict=True)
        mean = sum(shares) / len(shares)
        return [(key, window.start, window.end, sum(numbers), min(numbers), max(shares), mean, len(numbers))]


def of_rows(assigner: WindowAssigner[Any, Any]) -> Callable[[DataStream], DataStream]:
    return lambda rows: rows.key_by(lambda row: row[0]).window(assigner).apply(Aggregates()).uid("windows")
