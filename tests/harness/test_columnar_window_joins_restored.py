"""Joins of columns by window against a model in plain Python: late rows, watermarks, restarts at other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_columnar_as_of_restored import LEFT, MAX, RIGHT
from tests.harness.test_window_joins_restored import SIZE
from tests.harness.test_window_joins_restored import Model as TumblingModel
from tests.support.columnar_joins import kept, run_steps, steps_of
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from yarrow.common.time import Time
from yarrow.container.operators.columnar_join import columnar_window_join
from yarrow.datastream import DataStream
from yarrow.datastream.window import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.data_set_spec import JoinKind

KEYS = [1, -7, None]


def ms(number: int) -> Time:
    return Time.milliseconds(number)


#: Assigners, and the windows of a time by definition: (start, end).
WINDOWS: dict[str, tuple[WindowAssigner[Any, Any], Callable[[int], list[tuple[int, int]]]]] = {
    "tumbling": (
        TumblingEventTimeWindows.of(ms(10)),
        lambda time: [(time - time % 10, time - time % 10 + 10)],
    ),
    "sliding": (
        SlidingEventTimeWindows.of(ms(10), ms(4)),
        lambda time: [(start, start + 10) for start in range(-12, 60, 4) if start <= time < start + 10],
    ),
    "with gaps": (
        SlidingEventTimeWindows.of(ms(4), ms(10)),
        lambda time: [(start, start + 4) for start in range(0, 60, 10) if start <= time < start + 4],
    ),
    "cumulative": (
        CumulativeEventTimeWindows.of(ms(12), ms(4)),
        lambda time: [
            (time - time % 12, end) for end in range(4, 60, 4) if time < end <= time - time % 12 + 12
        ],
    ),
}


class Model:
    """Windows by key in a dict, each with the rows of both streams."""

    def __init__(self, kind: JoinKind, windows: Callable[[int], list[tuple[int, int]]]) -> None:
        self.kind, self.windows, self.watermark = kind, windows, MIN_TIMESTAMP
        self.content: dict[tuple[Any, tuple[int, int]], tuple[list[int], list[int]]] = {}
        self.fired: Counter[Any] = Counter()
        self.dropped = 0

    def row(self, side: int, key: Any, number: int, time: int) -> None:
        live = [window for window in self.windows(time) if window[1] - 1 > self.watermark]
        self.dropped += not live
        for window in live:
            self.content.setdefault((key, window), ([], []))[side].append(number)

    def rise(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        for key, (start, end) in list(self.content):
            if end - 1 <= self.watermark:
                first, second = self.content.pop((key, (start, end)))
                firsts: list[int | None] = [*first] or ([None] if self.kind.keeps_second else [])
                seconds: list[int | None] = [*second] or ([None] if self.kind.keeps_first else [])
                self.fired.update(((one, other), end - 1) for one in firsts for other in seconds)


def joining(assigner: WindowAssigner[Any, Any], kind: JoinKind) -> Callable[..., DataStream]:
    def build(first: DataStream, second: DataStream) -> DataStream:
        keyed: Any = first.key_by("k")
        joined = kept(keyed.window_join(second.key_by("k")).window(assigner), kind)
        made: DataStream = joined.to_columns().uid("join")
        return made

    return build


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Few keys of a window are joined together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_window_join, "MOST_PAIRS", 2)
        yield


rows_of = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 35)), min_size=1, max_size=8)
STEPS = steps_of(rows_of, st.integers(0, 45), most=12)


def run(model: Model, job: RestartedColumns, steps: list[Any], backend: str) -> None:
    """Runs the steps through the operator and the model; the state returns to nothing."""
    number = 0

    def push(side: int, rows: list[Any]) -> None:
        nonlocal number
        numbered = []
        for key, time in rows:
            number += 1
            model.row(side, key, number, time)
            numbered.append((key, number))
        job.push_rows(numbered, [time for _, time in rows], side)

    def rise(time: int) -> None:
        model.rise(time)
        job.watermark(time)

    def check(found: Counter[Any]) -> None:
        assert found == model.fired

    steps = [*steps, ("watermark", 1000, None)]
    run_steps(job, steps, backend, push=push, rise=rise, check=check, dropped=lambda: model.dropped)
    assert not model.content


@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "kind"),
    [
        *(("tumbling", kind) for kind in JoinKind),
        *(
            (windows, kind)
            for windows in ("sliding", "with gaps")
            for kind in (JoinKind.INNER, JoinKind.FULL_OUTER)
        ),
        ("sliding", JoinKind.LEFT_OUTER),
        ("cumulative", JoinKind.FULL_OUTER),
    ],
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_joins_of_columns_by_window_are_those_of_the_model(
    windows: str, kind: JoinKind, steps: list[Any], backend: str
) -> None:
    assigner, of_time = WINDOWS[windows]
    job = RestartedColumns(joining(assigner, kind), LEFT, "k", others=(RIGHT,))
    run(Model(kind, of_time), job, steps, backend)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JoinKind)
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_the_model_is_that_of_joins_of_rows(kind: JoinKind, steps: list[Any]) -> None:
    """Rows and columns give the same, as far as the model of rows goes: tumbling windows."""
    assert SIZE == 10
    of_columns, of_rows = Model(kind, WINDOWS["tumbling"][1]), TumblingModel(kind, 0)
    number = 0
    for step, what, how in [*steps, ("watermark", 1000, None)]:
        if step == "rows":
            for key, time in how:
                number += 1
                of_columns.row(what, key, number, time)
                of_rows.row(what, (key, number), time)
        elif step == "watermark":
            of_columns.rise(what)
            of_rows.rise(what)
    assert of_columns.fired == Counter(
        {((a and a[1], b and b[1]), time): count for ((a, b), time), count in of_rows.fired.items()}
    )
    assert of_columns.dropped == of_rows.dropped


def test_a_cut_among_keys_that_fire_loses_and_doubles_none() -> None:
    job = RestartedColumns(joining(WINDOWS["sliding"][0], JoinKind.FULL_OUTER), LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    keys = list(range(60))
    job.push_rows([(key, key) for key in keys], [5] * 60)
    job.push_rows([(key, key) for key in keys if key % 2], [6] * 30, 1)
    (operator,) = job.operators
    # The rows are in the windows that end at 6, 10 and 14; two of them are over.
    operator.on_watermark(9)
    batches = [batch for _ in range(40) for batch in operator.fire_event_timers(0.0)]
    found = Counter((row["left"], row["right"]) for b in batches for row in b.batch.to_pylist())  # type: ignore[union-attr]
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, "rocksdb")
    job.watermark(9)
    found.update((row["left"], row["right"]) for row, _ in job.take())
    expected = Counter({(key, key if key % 2 else None): 1 for key in keys})
    # A row at 6 is not in the window that ends at 6.
    expected += Counter({(key, None): 1 for key in keys})
    assert found == expected
    job.watermark(MAX)
    assert len(job.take()) == 60
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def test_a_window_that_a_row_came_too_late_for_stays_closed_behind_a_restart() -> None:
    job = RestartedColumns(joining(WINDOWS["sliding"][0], JoinKind.LEFT_OUTER), LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    job.watermark(9)
    # Of its windows, which end at 10, 14 and 18, the first one is over.
    job.push_rows([(1, 10)], [9])
    job.stop(CANONICAL)
    job.start(2, "hashmap")
    job.watermark(MAX)
    assert [time for _, time in job.take()] == [13, 17]
    job.stop(CANONICAL)


def test_the_windows_may_change_over_a_savepoint() -> None:
    size = 100

    def build(first: DataStream, second: DataStream) -> DataStream:
        return joining(TumblingEventTimeWindows.of(ms(size)), JoinKind.FULL_OUTER)(first, second)

    job = RestartedColumns(build, LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    job.push_rows([(1, 10), (1, 20)], [45, 75])
    job.watermark(40)
    job.stop(CANONICAL)
    size = 50
    job.start(2, "hashmap")
    job.push_rows([(1, 11)], [41], 1)
    job.watermark(49)
    assert [(row["left"], row["right"], time) for row, time in job.take()] == [(10, 11, 49)]
    job.watermark(99)
    assert [(row["left"], row["right"], time) for row, time in job.take()] == [(20, None, 99)]
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())
