"""As-of joins of columns in a program: columns of the results, late batches, what is kept, refusals at their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

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
from yarrow.container.operators.columnar_join import columnar_as_of_join
from yarrow.datastream import ColumnarAsOfJoin, ColumnarAsOfJoined, DataStream, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import AsOfDirection, ColumnarAsOfJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

Directed = Callable[[ColumnarAsOfJoin[DataStream]], ColumnarAsOfJoined[DataStream]]
Run = Callable[[Directed], OperatorHarness]


@pytest.fixture
def run() -> Iterator[Run]:
    """Opens a harness with a join: run(what stands behind `as_of_join`)."""
    opened: list[OperatorHarness] = []

    def start(directed: Directed) -> OperatorHarness:
        def build(first: DataStream, second: DataStream) -> list[DataStream]:
            made = directed(first.key_by("k").as_of_join(second.key_by("key"))).to_columns()
            return [made, made.get_side_output(LATE)]

        opened.append(OperatorHarness(build, inputs=2, types=[LEFT, RIGHT]))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def ms(number: int) -> Time:
    return Time.milliseconds(number)


def test_columns_stand_beside_each_other_when_the_watermark_has_come(run: Run) -> None:
    harness = run(lambda join: join.backward())
    push(harness, 0, [(1, 10), (None, 20)], [10, 12])
    push(harness, 1, [(1, "eight"), (1, "ten"), (None, "null is a key"), (1, "eleven")], [8, 10, 3, 11])
    assert rows(harness) == []
    watermark(harness, 12)
    assert sorted(rows(harness), key=lambda row: row[1]) == [
        (1, 10, 1, "ten", 10),
        (None, 20, None, "null is a key", 12),
    ]
    (batch, *_) = harness.record_batches()
    assert batch.schema.names == ["k", "n", "key", "n_right"]


def test_of_equal_times_the_last_version_holds(run: Run) -> None:
    harness = run(lambda join: join.backward())
    push(harness, 1, [(1, "first"), (1, "second")], [5, 5])
    push(harness, 1, [(1, "third")], [5])
    push(harness, 0, [(1, 10)], [6])
    watermark(harness, 6)
    assert [row[3] for row in rows(harness)] == ["third"]


@pytest.mark.parametrize(
    ("directed", "version", "time"),
    [
        (lambda join: join.backward(ms(4)).left_outer(), "six", 10),
        (lambda join: join.backward(ms(3)).left_outer(), None, 10),
        (lambda join: join.forward(ms(4)).left_outer(), "fourteen", 14),
        (lambda join: join.forward(ms(3)).left_outer(), None, 10),
        (lambda join: join.nearest(ms(4)).left_outer(), "six", 10),
    ],
)
def test_directions_and_tolerances(run: Run, directed: Directed, version: str | None, time: int) -> None:
    harness = run(directed)
    push(harness, 0, [(1, 10)], [10])
    push(harness, 1, [(1, "six"), (1, "fourteen"), (2, "other key")], [6, 14, 10])
    watermark(harness, 20)
    assert [(row[3], row[4]) for row in rows(harness)] == [(version, time)]


def test_a_version_that_comes_later_makes_a_row_leave(run: Run) -> None:
    harness = run(lambda join: join.forward())
    push(harness, 0, [(1, 10)], [10])
    watermark(harness, 20)
    assert rows(harness) == []
    push(harness, 1, [(1, "thirty")], [30])
    watermark(harness, 29)
    assert rows(harness) == []
    watermark(harness, 30)
    assert rows(harness) == [(1, 10, 1, "thirty", 30)]


def test_a_version_stays_while_a_row_that_waits_may_meet_it(run: Run) -> None:
    harness = run(lambda join: join.nearest(ms(3000)))
    push(harness, 0, [(1, 10)], [5000])
    push(harness, 1, [(1, "before")], [2000])
    # A later row cannot meet the version any more, and a nearer version could still come.
    watermark(harness, 6500)
    assert rows(harness) == []
    watermark(harness, 8000)
    assert rows(harness) == [(1, 10, 1, "before", 5000)]


def test_late_rows_go_to_the_side_output_of_their_side_or_are_counted(run: Run) -> None:
    harness = run(lambda join: join.backward().side_output_left_late_data(LATE))
    watermark(harness, 10)
    push(harness, 0, [(1, 1), (1, 2)], [10, 11])
    push(harness, 1, [(1, "late"), (1, "in time")], [10, 11])
    watermark(harness, 11)
    assert rows(harness) == [(1, 2, 1, "in time", 11)]
    assert rows(harness, 1) == [(1, 1, 10)]
    assert operator_in(harness).late_dropped == 1


def test_a_delay_behind_the_greatest_watermark_has_64_bits(run: Run) -> None:
    harness = run(lambda join: join.backward())
    watermark(harness, MAX)
    push(harness, 0, [(1, 1)], [-100])
    report = operator_in(harness)._ledger.report()
    assert report is not None
    assert report.longest_ms == report.last[0].delay_ms == MAX


def test_results_are_not_behind_the_watermark(run: Run) -> None:
    harness = run(lambda join: join.nearest(ms(700)).left_outer())
    for time in range(0, 12_000, 250):
        push(harness, 0, [(time % 3, time)], [time])
        push(harness, 1, [(time % 7, str(time))], [time])
        watermark(harness, time)
    watermark(harness, MAX)
    assert results_before_watermarks(harness) == (MAX, 48)
    assert [side.rows.size for side in operator_in(harness).sides] == [0, 0]


@pytest.mark.parametrize("direction", ["backward", "nearest", "forward"])
def test_a_look_that_overruns_its_slice_is_no_look_at_later_rows(
    run: Run, monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    monkeypatch.setattr(columnar_as_of_join, "perf_counter", lambda: inf)
    harness = run(lambda join: getattr(join, direction)(ms(0)).left_outer())
    for number, time in enumerate((10, 20, 30)):
        # No row is left behind the look, so nothing makes the operator look again.
        push(harness, 0, [(number, number)], [time])
        watermark(harness, time)
        assert rows(harness)[number:] == [(number, number, None, None, time)]
    push(harness, 0, [(3, 3)], [40])
    watermark(harness, MAX)
    assert rows(harness)[3:] == [(3, 3, None, None, 40)]


def test_one_version_of_each_key_stays_below_the_watermark(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_as_of_join, "LEAST_VERSIONS", 8)
    harness = run(lambda join: join.backward())
    operator_in(harness)._most_versions = 8
    for time in range(0, 1000, 10):
        push(harness, 1, [(time % 3, str(time)), (-1, "again")], [time, 5])
        watermark(harness, time)
        assert operator_in(harness).sides[1].rows.size <= 10
    push(harness, 0, [(0, 0), (1, 1), (2, 2), (-1, 3)], [2000] * 4)
    watermark(harness, 2000)
    assert sorted(row[3] for row in rows(harness)) == ["970", "980", "990", "again"]


def test_a_row_that_waits_keeps_no_versions_of_other_keys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_as_of_join, "LEAST_VERSIONS", 8)
    harness = run(lambda join: join.forward())
    operator_in(harness)._most_versions = 8
    push(harness, 0, [(1, 1)], [5])
    for time in range(10, 1000, 10):
        push(harness, 1, [(2, str(time)), (3, str(time))], [time, time])
        watermark(harness, time)
        assert operator_in(harness).sides[1].rows.size <= 10
    push(harness, 0, [(2, 2)], [1000])
    push(harness, 1, [(1, "one"), (2, "two")], [1001, 1002])
    watermark(harness, 1002)
    assert sorted(rows(harness)) == [(1, 1, 1, "one", 1001), (2, 2, 2, "two", 1002)]


@pytest.mark.parametrize("direction", ["backward", "nearest", "forward"])
def test_versions_out_of_reach_go_soon(run: Run, direction: str) -> None:
    harness = run(lambda join: getattr(join, direction)(ms(4000)))
    push(harness, 1, [(key, "x") for key in range(100)], [1000] * 100)
    kept = operator_in(harness).sides[1].rows
    watermark(harness, 999)
    assert kept.size == 100
    watermark(harness, 6999 if direction != "forward" else 2000)
    assert kept.size == 0


def test_sizes_are_metrics(run: Run) -> None:
    harness = run(lambda join: join.backward())
    push(harness, 0, [(1, 1), (2, 2)], [50, 60])
    read = {
        name.rpartition(".")[2]: value
        for task in harness.tasks
        for name, value in task.environment.metrics.values().items()
    }
    assert (read["leftStateEntries"], read["leftStateOldestRow"], read["rightStateEntries"]) == (2, 50, 0)


def test_a_row_without_timestamp_fails_with_its_record(run: Run) -> None:
    harness = run(lambda join: join.backward())
    with pytest.raises(FragmentFailedError, match=r"(?s)it has no timestamp.*'n': 8"):
        push(harness, 0, [(1, 7), (1, 8)], [3, None])


# ---------------------------------------------------------------------- the program


def joined() -> ColumnarAsOfJoin[DataStream]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return keyed(env, LEFT, "k").as_of_join(keyed(env, RIGHT, "key"))


def test_a_join_of_columns_becomes_an_operator_with_a_schema() -> None:
    made = joined().forward(Time.seconds(1)).left_outer().to_columns(suffix="_of_right")
    operator = operator_of(made)
    assert isinstance(operator.spec, ColumnarAsOfJoinOperator)
    assert (operator.spec.direction, operator.spec.tolerance_ms) == (AsOfDirection.FORWARD, 1000)
    assert operator.spec.kind is JoinKind.LEFT_OUTER
    assert operator.name == "As-Of Join of Columns"
    assert made.is_columnar


def test_what_cannot_work_is_refused_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left = keyed(env, LEFT, "k")
    with pytest.raises(InvalidProgramError, match=r"as_of_join: .* keyed by columns of the types"):
        left.as_of_join(keyed(env, RIGHT, "n"))
    with pytest.raises(TypeError, match="as_of_join takes a ColumnarKeyedStream, not DataStream"):
        left.as_of_join(left.to_rows())  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="as_of_join: two columns of the result are named"):
        joined().backward().to_columns(suffix="")
    with pytest.raises(InvalidProgramError, match="left_outer behind forward needs a tolerance"):
        joined().forward().left_outer()
    with pytest.raises(InvalidProgramError, match="nearest needs a tolerance"):
        joined().nearest(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="a tolerance of -1 ms is refused"):
        joined().backward(ms(-1))
