"""Joins of columns by window in a program: columns of results, late batches, what is kept, refusals at their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from tests.unit.datastream.test_columnar_interval_join import (
    LATE,
    LEFT,
    MAX,
    RIGHT,
    keyed,
    operator_in,
    push,
    results_before_watermarks,
    rows,
    watermark,
)
from yarrow.common.time import Time
from yarrow.container.operators.columnar_join import columnar_join, columnar_window_join
from yarrow.datastream import ColumnarWindowJoin, ColumnarWindowJoined, DataStream, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import ColumnarWindowJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

Behind = Callable[[ColumnarWindowJoined[DataStream]], ColumnarWindowJoined[DataStream]]
Run = Callable[..., OperatorHarness]


def ms(number: int) -> Time:
    return Time.milliseconds(number)


TUMBLING = TumblingEventTimeWindows.of(ms(10))


def inner(joined: ColumnarWindowJoined[DataStream]) -> ColumnarWindowJoined[DataStream]:
    return joined


@pytest.fixture
def run() -> Iterator[Run]:
    """Opens a harness with a join: run(what stands behind `window`, its assigner)."""
    opened: list[OperatorHarness] = []

    def start(behind: Behind = inner, assigner: WindowAssigner[Any, Any] = TUMBLING) -> OperatorHarness:
        def build(first: DataStream, second: DataStream) -> list[DataStream]:
            made = behind(first.key_by("k").window_join(second.key_by("key")).window(assigner)).to_columns()
            return [made, made.get_side_output(LATE)]

        opened.append(OperatorHarness(build, inputs=2, types=[LEFT, RIGHT]))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def test_columns_stand_beside_each_other_with_the_last_time_of_the_window(run: Run) -> None:
    harness = run()
    push(harness, 0, [(1, 10), (1, 11), (None, 20)], [0, 9, 3])
    push(harness, 1, [(1, "a"), (None, "null is a key"), (2, "alone"), (1, "next")], [9, 4, 5, 10])
    assert rows(harness) == []
    watermark(harness, 9)
    assert sorted(rows(harness), key=lambda row: row[1]) == [
        (1, 10, 1, "a", 9),
        (1, 11, 1, "a", 9),
        (None, 20, None, "null is a key", 9),
    ]
    (batch, *_) = harness.record_batches()
    assert batch.schema.names == ["k", "n", "key", "n_right"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("left_outer", [(1, "one"), (2, None)]),
        ("right_outer", [(1, "one"), (None, "three")]),
        ("full_outer", [(1, "one"), (2, None), (None, "three")]),
    ],
)
def test_outer_joins_keep_rows_without_a_partner(run: Run, kind: str, expected: list[Any]) -> None:
    harness = run(lambda joined: getattr(joined, kind)())
    push(harness, 0, [(1, 1), (2, 2)], [3, 3])
    push(harness, 1, [(1, "one"), (3, "three")], [4, 4])
    watermark(harness, 9)
    assert {(row[1], row[3]) for row in rows(harness)} == set(expected)
    assert {row[4] for row in rows(harness)} == {9}


def test_a_pair_meets_in_each_sliding_window_of_both_rows(run: Run) -> None:
    harness = run(inner, SlidingEventTimeWindows.of(ms(10), ms(5)))
    push(harness, 0, [(1, 1)], [6])
    push(harness, 1, [(1, "same two"), (1, "second window")], [9, 12])
    watermark(harness, 30)
    assert [(row[3], row[4]) for row in rows(harness)] == [
        ("same two", 9),
        ("same two", 14),
        ("second window", 14),
    ]


def test_late_rows_go_to_the_side_output_of_their_side_or_are_counted(run: Run) -> None:
    harness = run(lambda joined: joined.full_outer().side_output_right_late_data(LATE))
    watermark(harness, 9)
    push(harness, 0, [(1, 1), (1, 2)], [9, 10])
    push(harness, 1, [(1, "late"), (1, "in time")], [3, 19])
    watermark(harness, 19)
    assert rows(harness) == [(1, 2, 1, "in time", 19)]
    assert rows(harness, 1) == [(1, "late", 3)]
    assert operator_in(harness).late_dropped == 1


def test_a_row_that_is_late_for_one_window_is_in_the_others(run: Run) -> None:
    harness = run(lambda joined: joined.left_outer(), SlidingEventTimeWindows.of(ms(10), ms(5)))
    push(harness, 1, [(1, "x")], [7])
    watermark(harness, 9)
    push(harness, 0, [(1, 1)], [8])
    watermark(harness, 14)
    assert rows(harness) == [(1, 1, 1, "x", 14)]


def test_results_are_not_behind_the_watermark_and_leave_no_row(run: Run) -> None:
    harness = run(lambda joined: joined.full_outer(), SlidingEventTimeWindows.of(ms(700), ms(300)))
    for time in range(0, 6000, 250):
        push(harness, 0, [(time % 3, time)], [time])
        push(harness, 1, [(time % 7, str(time))], [time])
        watermark(harness, time)
    watermark(harness, MAX)
    reached, number = results_before_watermarks(harness)
    assert reached == MAX
    assert number > 48
    assert [side.rows.size for side in operator_in(harness).sides] == [0, 0]


@pytest.mark.parametrize("now", [-inf, inf], ids=["slices that suffice", "slices that overrun"])
def test_slots_of_keys_without_rows_are_used_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    monkeypatch.setattr(columnar_join, "LEAST_SLOTS", 64)
    monkeypatch.setattr(columnar_window_join, "perf_counter", lambda: now)
    harness = run()
    operator_in(harness)._most_slots = 64
    for step in range(20):
        time = 10 * step
        push(harness, 0, [(-1, -1), *((100 * step + key, key) for key in range(100))], [time] * 101)
        push(harness, 1, [(-1, "x")], [time])
        watermark(harness, time + 9)
    assert operator_in(harness)._index.size <= 400
    assert [row[:4] for row in rows(harness)] == [(-1, -1, -1, "x")] * 20


def test_a_row_without_timestamp_fails_with_its_record(run: Run) -> None:
    harness = run()
    with pytest.raises(FragmentFailedError, match=r"(?s)it has no timestamp.*'n': 8"):
        push(harness, 0, [(1, 7), (1, 8)], [3, None])


# ---------------------------------------------------------------------- the program


def joined() -> ColumnarWindowJoin[DataStream]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return keyed(env, LEFT, "k").window_join(keyed(env, RIGHT, "key"))


def test_a_join_of_columns_becomes_an_operator_with_a_schema() -> None:
    windows = SlidingEventTimeWindows.of(Time.seconds(1), ms(100), ms(7))
    made = joined().window(windows).right_outer().to_columns(suffix="_of_right")
    operator = operator_of(made)
    assert isinstance(operator.spec, ColumnarWindowJoinOperator)
    assert (operator.spec.size_ms, operator.spec.slide_ms, operator.spec.offset_ms) == (1000, 100, 7)
    assert operator.spec.kind is JoinKind.RIGHT_OUTER
    assert operator.name == "Window Join of Columns"
    assert made.is_columnar


@pytest.mark.parametrize(
    "assigner", [EventTimeSessionWindows.with_gap(ms(5)), TumblingProcessingTimeWindows.of(ms(5))]
)
def test_other_windows_are_refused_by_name(assigner: WindowAssigner[Any, Any]) -> None:
    with pytest.raises(InvalidProgramError, match=f"window_join: .*{type(assigner).__name__}.*Sliding"):
        joined().window(assigner)


def test_what_cannot_work_is_refused_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left = keyed(env, LEFT, "k")
    with pytest.raises(InvalidProgramError, match=r"window_join: .* keyed by columns of the types"):
        left.window_join(keyed(env, RIGHT, "n"))
    with pytest.raises(TypeError, match="window_join takes a ColumnarKeyedStream, not DataStream"):
        left.window_join(left.to_rows())  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="window_join: two columns of the result are named"):
        joined().window(TUMBLING).to_columns(suffix="")
