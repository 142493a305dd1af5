"""Joins of bounded streams give what their definition says, whatever the order of the chunks and the parallelism."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import (
    AsOfJoin,
    ColumnarKeyedStream,
    DataStream,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from yarrow.datastream.joined_streams import JoinedStreams
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.graph.data_set_spec import JoinKind

SIZE = 50
#: Few rows in memory, so that some are sorted on disk.
SMALL = {"execution.batch.max-rows": "20"}


class SecondField(TimestampAssigner):
    """The time is the second field of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def rows(seed: int, name: str) -> list[Any]:
    """(key, time, name and number), out of order."""
    chosen = random.Random(f"{seed} {name}")
    return [(chosen.randrange(9), chosen.randrange(1000), f"{name}{number}") for number in range(300)]


def timed(env: StreamExecutionEnvironment, found: list[Any]) -> DataStream:
    stream = env.from_collection(found, Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    return stream.assign_timestamps_and_watermarks(strategy)


def window(row: Any) -> Any:
    return row[0], row[1] // SIZE


def pair(one: Any, other: Any) -> Any:
    return one, other


@pytest.mark.slow
@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_joins_by_window(kind: JoinKind, parallelism: int) -> None:
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        by_key = JoinedStreams(timed(env, first), timed(env, second), kind)
        windows = by_key.where(lambda row: row[0]).equal_to(lambda row: row[0])
        joined = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE))).apply(pair)
        found = collect(env, joined, settings=SMALL, deal=shuffled(seed))
        expected = Counter((a, b) for a in first for b in second if window(a) == window(b))
        if kind.keeps_first:
            met = set(map(window, second))
            expected.update((a, None) for a in first if window(a) not in met)
        if kind.keeps_second:
            met = set(map(window, first))
            expected.update((None, b) for b in second if window(b) not in met)
        assert Counter(found) == expected


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


@pytest.mark.slow
@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_interval_joins(outer: bool, parallelism: int) -> None:
    lower, upper = -7, 12
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        left, right = (timed(env, each).key_by(lambda row: row[0]) for each in (first, second))
        joined = left.interval_join(right).between(Time.milliseconds(lower), Time.milliseconds(upper))
        joined = joined.full_outer() if outer else joined
        found = collect(env, joined.process(Pairs()), settings=SMALL, deal=shuffled(seed))
        meeting = [(a, b) for a in first for b in second if a[0] == b[0] and lower <= b[1] - a[1] <= upper]
        expected: Counter[Any] = Counter(meeting)
        if outer:
            met = {row for one in meeting for row in one}
            expected.update((a, None) for a in first if a not in met)
            expected.update((None, b) for b in second if b not in met)
        assert Counter(found) == expected


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_as_of_joins(direction: str, parallelism: int) -> None:
    tolerance = 25
    for seed in range(3):
        first, found_second = rows(seed, "a"), rows(seed, "b")
        # One row a key and time: of several the order of the inputs decides.
        second = list({row[:2]: row for row in found_second}.values())
        env = environment(parallelism)
        left, right = (timed(env, each).key_by(lambda row: row[0]) for each in (first, second))
        join: AsOfJoin[DataStream] = left.as_of_join(right)
        joined = getattr(join, direction)(Time.milliseconds(tolerance)).left_outer()
        found = collect(env, joined.process(Pairs()), settings=SMALL, deal=shuffled(seed))
        assert Counter(found) == Counter((a, as_of(direction, a, second, tolerance)) for a in first)


def as_of(direction: str, left: Any, versions: list[Any], tolerance: int) -> Any:
    """The version of a row, by definition."""
    apart = {
        version: version[1] - left[1]
        for version in versions
        if version[0] == left[0] and abs(version[1] - left[1]) <= tolerance
    }
    if direction != "nearest":
        apart = {key: by for key, by in apart.items() if (by <= 0 if direction == "backward" else by >= 0)}
    return min(apart, key=lambda version: (abs(apart[version]), apart[version]), default=None)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_that_waits_for_a_delayed_join_is_joined_at_the_end_of_its_key(parallelism: int) -> None:
    delay = 40
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        left, right = (timed(env, each).key_by(lambda row: row[0]) for each in (first, second))
        joined = left.delayed_join(right).after(Time.milliseconds(delay)).full_outer()
        found = collect(env, joined.process(Pairs()), settings=SMALL, deal=shuffled(seed))
        expected: Counter[Any] = Counter()
        for key in range(9):
            ones, others = ([row for row in side if row[0] == key] for side in (first, second))
            while ones or others:
                end = min(row[1] for row in [*ones, *others]) + delay
                batch = [[row for row in side if row[1] < end] or [None] for side in (ones, others)]
                expected.update((one, other) for one in batch[0] for other in batch[1])
                ones, others = ([row for row in side if row[1] >= end] for side in (ones, others))
        assert Counter(found) == expected


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
def test_immediate_joins_take_both_inputs_by_time(parallelism: int) -> None:
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        left, right = (timed(env, each).key_by(lambda row: row[0]) for each in (first, second))
        joined = left.immediate_join(right).right_outer()
        found = collect(env, joined.process(Pairs()), settings=SMALL, deal=shuffled(seed))
        expected: Counter[Any] = Counter()
        for b in second:
            # At equal times the row of the first stream comes first.
            expected.update((a, b) for a in [a for a in first if a[0] == b[0] and a[1] <= b[1]] or [None])
        assert Counter(found) == expected


def test_an_immediate_join_of_rows_without_time_takes_the_first_input_first() -> None:
    env = environment(2)
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    left = env.from_collection([(1, "a"), (2, "b"), (1, "c")], kind).key_by(lambda row: row[0])
    right = env.from_collection([(1, "x"), (3, "y")], kind).key_by(lambda row: row[0])
    found = collect(env, left.immediate_join(right).process(Pairs()), settings=SMALL, deal=shuffled(1))
    assert Counter(found) == Counter([((1, "a"), (1, "x")), ((1, "c"), (1, "x"))])


def columns_by_key(env: StreamExecutionEnvironment, name: str, found: list[Any]) -> ColumnarKeyedStream:
    schema = pa.schema([("k", pa.int64()), ("time", pa.int64()), (name, pa.string())])
    return timed(env, found).to_arrow(schema).key_by("k")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_interval_joins_of_columns(parallelism: int) -> None:
    lower, upper = -7, 12
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        left, right = columns_by_key(env, "a", first), columns_by_key(env, "b", second)
        joined = left.interval_join(right).between(Time.milliseconds(lower), Time.milliseconds(upper))
        results = joined.left_outer().to_columns().to_rows()
        found = collect(env, results, settings=SMALL, deal=shuffled(seed))
        meeting = [
            (a[2], b[2]) for a in first for b in second if a[0] == b[0] and lower <= b[1] - a[1] <= upper
        ]
        met = {a for a, _ in meeting}
        alone = [(a[2], None) for a in first if a[2] not in met]
        assert Counter((row["a"], row["b"]) for row in found) == Counter(meeting + alone)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
def test_joins_of_columns_by_window(parallelism: int) -> None:
    for seed in range(3):
        first, second = rows(seed, "a"), rows(seed, "b")
        env = environment(parallelism)
        left, right = columns_by_key(env, "a", first), columns_by_key(env, "b", second)
        joined = left.window_join(right).window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
        results = joined.full_outer().to_columns().to_rows()
        found = collect(env, results, settings=SMALL, deal=shuffled(seed))
        expected = Counter((a[2], b[2]) for a in first for b in second if window(a) == window(b))
        of_first, of_second = set(map(window, first)), set(map(window, second))
        expected.update((a[2], None) for a in first if window(a) not in of_second)
        expected.update((None, b[2]) for b in second if window(b) not in of_first)
        assert Counter((row["a"], row["b"]) for row in found) == expected


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_as_of_joins_of_columns(direction: str, parallelism: int) -> None:
    tolerance = 25
    for seed in range(3):
        first, found_second = rows(seed, "a"), rows(seed, "b")
        # One row a key and time: of several the order of the inputs decides.
        second = list({row[:2]: row for row in found_second}.values())
        env = environment(parallelism)
        left, right = columns_by_key(env, "a", first), columns_by_key(env, "b", second)
        directed = getattr(left.as_of_join(right), direction)(Time.milliseconds(tolerance))
        results = directed.left_outer().to_columns().to_rows()
        found = collect(env, results, settings=SMALL, deal=shuffled(seed))
        expected = ((a[2], (as_of(direction, a, second, tolerance) or (0, 0, None))[2]) for a in first)
        assert Counter((row["a"], row["b"]) for row in found) == Counter(expected)
