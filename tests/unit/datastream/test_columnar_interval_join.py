"""Interval joins of columns in a program: columns of the results, late batches, bad input, refusals at their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.datastream.keyed_join_harness import Stamped
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.columnar_join import columnar_interval_join, columnar_join
from yarrow.datastream import (
    ColumnarIntervalJoin,
    ColumnarIntervalJoined,
    ColumnarKeyedStream,
    DataStream,
    OutputTag,
    StreamExecutionEnvironment,
)
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import ArrowBatch, Watermark
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import ColumnarIntervalJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LEFT = pa.schema([("k", pa.int64()), ("n", pa.int64())])
RIGHT = pa.schema([("key", pa.int64()), ("n", pa.string())])
LATE = OutputTag("late")
MAX = (1 << 63) - 1

Behind = Callable[[ColumnarIntervalJoined[DataStream]], ColumnarIntervalJoined[DataStream]]
Run = Callable[..., OperatorHarness]


@pytest.fixture
def run() -> Iterator[Run]:
    """Opens a harness with a join: run(what stands behind `between`, lower bound, upper bound)."""
    opened: list[OperatorHarness] = []

    def start(behind: Behind, lower: int, upper: int) -> OperatorHarness:
        def build(first: DataStream, second: DataStream) -> list[DataStream]:
            joined = first.key_by("k").interval_join(second.key_by("key"))
            made = behind(joined.between(Time.milliseconds(lower), Time.milliseconds(upper))).to_columns()
            return [made, made.get_side_output(LATE)]

        opened.append(OperatorHarness(build, inputs=2, types=[LEFT, RIGHT]))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def plain(joined: ColumnarIntervalJoined[DataStream]) -> ColumnarIntervalJoined[DataStream]:
    return joined


def push(harness: OperatorHarness, input: int, rows: list[Any], times: list[int | None] | None) -> None:
    schema = (LEFT, RIGHT)[input]
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    harness.send(ArrowBatch(batch, None if times is None else pa.array(times, pa.int64())), input)


def watermark(harness: OperatorHarness, time: int) -> None:
    for input in range(2):
        harness.watermark(time, input)


def results_before_watermarks(harness: OperatorHarness) -> tuple[int, int]:
    """Checks that no result comes behind a watermark that has reached it; returns the last one, and their number."""
    reached, number = -MAX, 0
    for element in harness.elements():
        if isinstance(element, Watermark):
            reached = element.timestamp
        elif isinstance(element, ArrowBatch):
            assert element.timestamps is not None
            number += len(element)
            assert all(stamp > reached for stamp in element.timestamps.to_pylist())
    return reached, number


def rows(harness: OperatorHarness, output: int = 0) -> list[tuple[Any, ...]]:
    """Rows of the results with their times."""
    found = []
    for element in harness.elements(output):
        if isinstance(element, ArrowBatch):
            assert element.timestamps is not None
            values = [tuple(row.values()) for row in element.batch.to_pylist()]
            found += [(*row, time) for row, time in zip(values, element.timestamps.to_pylist(), strict=True)]
    return found


def operator_in(harness: OperatorHarness) -> Any:
    return next(each for task in harness.tasks for each in task.chain.operators if "Columns" in each.name)


def test_columns_stand_beside_each_other_with_the_later_time(run: Run) -> None:
    harness = run(plain, -2, 3)
    push(harness, 0, [(1, 10), (2, 20)], [10, 10])
    push(
        harness,
        1,
        [(1, "seven"), (1, "eight"), (1, "thirteen"), (1, "fourteen"), (3, "x")],
        [7, 8, 13, 14, 10],
    )
    assert sorted(rows(harness)) == [(1, 10, 1, "eight", 10), (1, 10, 1, "thirteen", 13)]
    (batch,) = harness.record_batches()
    assert batch.schema.names == ["k", "n", "key", "n_right"]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (lambda joined: joined.lower_bound_exclusive(), ["nine", "thirteen"]),
        (lambda joined: joined.upper_bound_exclusive(), ["eight", "nine"]),
    ],
)
def test_bounds_may_be_exclusive(run: Run, behind: Behind, expected: list[str]) -> None:
    harness = run(behind, -2, 3)
    push(harness, 1, [(1, "eight"), (1, "nine"), (1, "thirteen")], [8, 9, 13])
    push(harness, 0, [(1, 10)], [10])
    assert [row[3] for row in rows(harness)] == expected


def test_null_is_a_key(run: Run) -> None:
    harness = run(plain, 0, 5)
    push(harness, 0, [(None, 1)], [1])
    push(harness, 1, [(None, "a")], [2])
    assert rows(harness) == [(None, 1, None, "a", 2)]


def test_late_rows_go_to_the_side_output_of_their_side_or_are_counted(run: Run) -> None:
    harness = run(lambda joined: joined.side_output_right_late_data(LATE), -5, 5)
    watermark(harness, 10)
    push(harness, 0, [(1, 1), (1, 2)], [9, 10])
    push(harness, 1, [(1, "late"), (1, "in time")], [8, 11])
    assert rows(harness) == [(1, 2, 1, "in time", 11)]
    assert rows(harness, 1) == [(1, "late", 8)]
    assert operator_in(harness).late_dropped == 1


def test_unmatched_rows_leave_once_and_not_behind_the_watermark(run: Run) -> None:
    harness = run(lambda joined: joined.full_outer(), 0, 700)
    for time in range(0, 12_000, 500):
        push(harness, (time // 500) % 2, [(time % 7, time if (time // 500) % 2 == 0 else str(time))], [time])
        watermark(harness, time)
    watermark(harness, MAX)
    assert results_before_watermarks(harness)[0] == MAX
    alone = sum(
        batch.column("n").null_count + batch.column("n_right").null_count
        for batch in harness.record_batches()
    )
    assert alone > 10
    operator = operator_in(harness)
    assert [side.rows.size for side in operator.sides] == [0, 0]


def test_slots_of_keys_without_rows_are_used_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_join, "LEAST_SLOTS", 64)
    harness = run(plain, 0, 100)
    operator_in(harness)._most_slots = 64
    stays = [(-1, -1)]
    for step in range(20):
        time = 10_000 * step
        push(harness, 0, [*stays, *((100 * step + key, key) for key in range(100))], [time + 9999] * 101)
        watermark(harness, time + 5000)
        push(harness, 1, [(-1, "x")], [time + 10_000])
        watermark(harness, time + 10_000)
    assert operator_in(harness)._index.size <= 400
    assert [row[:4] for row in rows(harness)] == [(-1, -1, -1, "x")] * 20


def test_slots_are_used_again_though_each_slice_overruns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_join, "LEAST_SLOTS", 64)
    monkeypatch.setattr(columnar_interval_join, "perf_counter", lambda: inf)
    harness = run(plain, 0, 100)
    operator_in(harness)._most_slots = 64
    for step in range(10):
        time = 10_000 * step
        # Each watermark removes the rows of the step before.
        push(harness, 0, [(100 * step + key, key) for key in range(100)], [time] * 100)
        watermark(harness, time)
    assert operator_in(harness)._index.size <= 400


def test_sizes_are_metrics(run: Run) -> None:
    harness = run(plain, 0, 100)
    push(harness, 0, [(1, 1), (2, 2)], [50, 60])
    read = {
        name.rpartition(".")[2]: value
        for task in harness.tasks
        for name, value in task.environment.metrics.values().items()
    }
    assert (read["leftStateEntries"], read["rightStateEntries"]) == (2, 0)
    assert (read["leftStateOldestRow"], read["rightStateBytes"]) == (50, 0)
    assert read["leftStateBytes"] > 0


# ---------------------------------------------------------------------- bad input


def test_a_row_without_timestamp_fails_with_its_record(run: Run) -> None:
    harness = run(plain, 0, 1)
    with pytest.raises(FragmentFailedError, match=r"(?s)it has no timestamp.*'n': 8"):
        push(harness, 0, [(1, 7), (1, 8)], [3, None])
    other = run(plain, 0, 1)
    with pytest.raises(FragmentFailedError, match=r"(?s)it has no timestamp.*'n': 7"):
        push(other, 0, [(1, 7)], None)


def test_a_time_far_from_the_first_one_fails_with_its_record(run: Run) -> None:
    harness = run(plain, 0, 1)
    with pytest.raises(FragmentFailedError, match=r"(?s)69 years away.*'n': 8"):
        push(harness, 0, [(1, 7), (1, 8)], [0, 1 << 45])


def test_other_columns_than_the_declared_ones_fail(run: Run) -> None:
    harness = run(plain, 0, 1)
    batch = ArrowBatch(pa.record_batch({"k": [1], "other": [2]}), pa.array([1]))
    with pytest.raises(FragmentFailedError, match="first stream has the columns k: int64, other: int64"):
        harness.send(batch, 0)


def test_columns_that_differ_in_nulls_alone_are_told_apart(run: Run) -> None:
    harness = run(plain, 0, 1)
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64())])
    batch = ArrowBatch(pa.RecordBatch.from_pylist([{"k": 1, "n": 2}], schema), pa.array([1]))
    with pytest.raises(
        FragmentFailedError, match="columns k: int64 not null, n: int64, and its schema says k: int64, n"
    ):
        harness.send(batch, 0)


def test_a_batch_without_rows_needs_no_timestamps(run: Run) -> None:
    harness = run(plain, 0, 5)
    push(harness, 0, [], None)
    push(harness, 0, [(1, 1)], [1])
    push(harness, 1, [], None)
    push(harness, 1, [(1, "a")], [2])
    assert rows(harness) == [(1, 1, 1, "a", 2)]


def test_unmatched_rows_come_in_batches_as_pairs_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_join, "MOST_PAIRS", 4)
    harness = run(lambda joined: joined.left_outer(), 0, 5)
    push(harness, 0, [(1, number) for number in range(10)], list(range(10)))
    # The network puts small batches together, so the operator itself is asked.
    operator = operator_in(harness)
    operator.on_watermark(MAX)
    batches = list(operator.fire_event_timers(inf))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    found = [tuple(row.values()) for batch in batches for row in batch.batch.to_pylist()]
    assert found == [(1, number, None, None) for number in range(10)]
    assert [time for batch in batches for time in batch.timestamps.to_pylist()] == list(range(10))


def keyed(env: StreamExecutionEnvironment, schema: pa.Schema, key: str) -> ColumnarKeyedStream:
    stream = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())
    timed = stream.assign_timestamps_and_watermarks(strategy)
    return timed.map_batches(lambda batch: batch, schema).key_by(key)


def joined() -> ColumnarIntervalJoin[DataStream]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return keyed(env, LEFT, "k").interval_join(keyed(env, RIGHT, "key"))


def test_a_join_of_columns_becomes_an_operator_with_a_schema() -> None:
    made = (
        joined().between(Time.milliseconds(-5), Time.seconds(1)).left_outer().to_columns(suffix="_of_right")
    )
    operator = operator_of(made)
    assert isinstance(operator.spec, ColumnarIntervalJoinOperator)
    assert (operator.spec.lower_ms, operator.spec.upper_ms, operator.spec.kind) == (
        -5,
        1000,
        JoinKind.LEFT_OUTER,
    )
    assert operator.spec.key_columns == ("k", "key")
    assert operator.name == "Interval Join of Columns"
    assert made.is_columnar


def test_what_cannot_work_is_refused_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left = keyed(env, LEFT, "k")
    with pytest.raises(InvalidProgramError, match=r"keyed by columns of the types .*int64.* and .*string"):
        left.interval_join(keyed(env, RIGHT, "n"))
    untimed = env.from_collection([(1, "a")], Types.TUPLE([Types.LONG(), Types.STRING()])).to_arrow(RIGHT)
    with pytest.raises(InvalidProgramError, match="nothing gives the records of the second stream"):
        left.interval_join(untimed.key_by("key"))
    with pytest.raises(TypeError, match="interval_join takes a ColumnarKeyedStream, not DataStream"):
        left.interval_join(left.to_rows())  # type: ignore[arg-type]
    unknown = left.map_batches(lambda batch: batch).key_by("key")
    with pytest.raises(InvalidProgramError, match="the columns of the second stream are not known"):
        left.interval_join(unknown)
    texts = pa.schema([("key", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string()))])
    with pytest.raises(InvalidProgramError, match="column 'text' of the second stream is a dictionary"):
        left.interval_join(keyed(env, texts, "key"))
    both = joined().between(Time.milliseconds(0), Time.milliseconds(1))
    with pytest.raises(InvalidProgramError, match=r"two columns of the result are named \['n'\]"):
        both.to_columns(suffix="")
    with pytest.raises(InvalidProgramError, match="no time lies between"):
        joined().between(Time.milliseconds(1), Time.milliseconds(0))
