"""Interval joins in a program: rules by name on both backends, and refusals at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.compat.metrics import names
from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.time import Duration, Time
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import (
    DataStream,
    IntervalJoin,
    IntervalJoined,
    KeyedStream,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import RuntimeContext
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.runtime.graph.join_spec import IntervalJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

ROW = Types.TUPLE([Types.STRING(), Types.LONG()])
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
MAX = (1 << 63) - 1


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Shows each pair by the numbers of its rows."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left and left[1], right and right[1]


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., OperatorHarness]]:
    """Opens a harness with a join on a backend: run(what stands behind `between`, lower bound, upper bound)."""
    opened: list[OperatorHarness] = []

    def start(behind: Any, lower: int, upper: int, function: Any = None, **settings: Any) -> OperatorHarness:
        def build(first: DataStream, second: DataStream) -> list[DataStream]:
            left, right = first.key_by(lambda row: row[0]), second.key_by(lambda row: row[0])
            joined = left.interval_join(right).between(Time.milliseconds(lower), Time.milliseconds(upper))
            made = behind(joined).process(function or Pairs())
            return [made, made.get_side_output(LATE)]

        configuration = {"state.backend.type": request.param}
        opened.append(OperatorHarness(build, inputs=2, configuration=configuration, **settings))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def plain(joined: IntervalJoined[DataStream]) -> IntervalJoined[DataStream]:
    return joined


def push(harness: OperatorHarness, input: int, *times: int, key: str = "a") -> None:
    """Sends rows whose number is their time."""
    harness.push(*[(key, time) for time in times], input=input, timestamps=list(times))


def watermark(harness: OperatorHarness, time: int) -> None:
    for input in range(2):
        harness.watermark(time, input)


def results(harness: OperatorHarness, output: int = 0) -> list[Any]:
    return list(zip(harness.outputs(output), harness.timestamps(output), strict=True))


def is_empty(harness: OperatorHarness) -> bool:
    """Whether no row is left in state."""
    operator: Any = next(
        each for task in harness.tasks for each in task.chain.operators if each.name == "Interval Join"
    )
    return not any(side.rows.has_until(MAX) for side in operator._sides)


# ---------------------------------------------------------------------- pairs


def test_both_bounds_belong_to_the_interval(run: Any) -> None:
    harness = run(plain, -2, 3)
    push(harness, 0, 10)
    push(harness, 1, 7, 8, 13, 14)
    # The result bears the later time, whichever row came first.
    assert results(harness) == [((10, 8), 10), ((10, 13), 13)]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (lambda joined: joined.lower_bound_exclusive(), [(10, 9), (10, 13)]),
        (lambda joined: joined.upper_bound_exclusive(), [(10, 8), (10, 9)]),
        (lambda joined: joined.lower_bound_exclusive().upper_bound_exclusive(), [(10, 9)]),
    ],
)
def test_bounds_may_be_exclusive(run: Any, behind: Any, expected: list[Any]) -> None:
    harness = run(behind, -2, 3)
    push(harness, 1, 8, 9, 13)
    push(harness, 0, 10)
    assert harness.output == expected


def test_rows_of_other_keys_do_not_meet(run: Any) -> None:
    harness = run(plain, -5, 5)
    push(harness, 0, 1, 2)
    push(harness, 1, 1, key="b")
    assert harness.output == []


def test_partners_come_by_their_time_and_equal_times_as_they_came(run: Any) -> None:
    harness = run(plain, -10, 10)
    harness.push(("a", "x"), ("a", "y"), ("a", "z"), timestamps=[5, 3, 5])
    harness.push(("a", "r"), input=1, timestamps=[4])
    assert harness.output == [("y", "r"), ("x", "r"), ("z", "r")]


def test_partners_are_found_over_many_buckets(run: Any) -> None:
    harness = run(plain, -5000, 5000)
    push(harness, 1, *range(0, 30_000, 1000))
    push(harness, 0, 12_500)
    assert harness.output == [(12_500, time) for time in range(8000, 18_000, 1000)]


@pytest.mark.parametrize("row", [None, [1], "text"])
@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (-3, 3)])
def test_any_row_meets_those_of_its_time_in_their_order(row: Any, bounds: tuple[int, int]) -> None:
    class Both(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(left, right)]

    def build(first: DataStream, second: DataStream) -> DataStream:
        left, right = first.key_by(lambda _: "a"), second.key_by(lambda _: "a")
        joined = left.interval_join(right).between(*map(Time.milliseconds, bounds))
        return joined.process(Both())

    with OperatorHarness(build, inputs=2) as harness:
        harness.push(row, "more", row, timestamps=[5, 5, 5])
        harness.push("right", row, input=1, timestamps=[5, 5])
        left = [row, "more", row]
        assert harness.output == [*((each, "right") for each in left), *((each, row) for each in left)]


class Numbers(ProcessJoinFunction[Any, Any, Any]):
    """The numbers of both rows, which the loop computes."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left[1], right[1]


@pytest.mark.parametrize("key", [7, -7, 2**70, True, "a", (1, "a")])
@pytest.mark.parametrize("distance", [-3, 0, 104])
def test_rows_at_one_distance_meet_whatever_their_key(run: Any, distance: int, key: Any) -> None:
    harness = run(lambda joined: joined.side_output_left_late_data(LATE), distance, distance, Numbers())
    times = [-205, -1, 0, 3, 99, 100, 100, 250]
    for time in times:
        harness.push((key, time), ("other", time), timestamps=[time, time])
    for time in sorted(set(times)):
        harness.push((key, time + distance), input=1, timestamps=[time + distance])
    met = [((time, time + distance), max(time, time + distance)) for time in times]
    assert results(harness) == met
    watermark(harness, 2000)
    assert is_empty(harness)
    harness.push((key, 999), timestamps=[999])
    harness.push((key, 999), input=1, timestamps=[999])
    assert results(harness) == met
    assert results(harness, 1) == [((key, 999), 999)]


def test_a_pair_that_the_loop_computes_may_go_aside(run: Any) -> None:
    class Aside(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            yield LATE, left[1]

    class Three(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            yield LATE, left[1], right[1]

    for function, expected, aside in ((Aside(), [], [5]), (Three(), [(LATE, 5, 5)], [])):
        harness = run(plain, 0, 0, function)
        push(harness, 0, 5)
        push(harness, 1, 5)
        assert harness.outputs(0) == expected
        assert harness.outputs(1) == aside


@pytest.mark.parametrize(("distance", "times"), [(2, (3, 5, 5)), (-2, (3, 1, 3)), (0, (3, 3, 3))])
def test_the_context_tells_the_times_of_a_pair_at_one_distance(
    run: Any, distance: int, times: tuple[int, int, int]
) -> None:
    class Times(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp())]

    for first, second in ((0, 1), (1, 0)):
        harness = run(plain, distance, distance, Times())
        push(harness, first, times[first])
        push(harness, second, times[second])
        assert results(harness) == [(times, times[2])]


def test_the_context_tells_the_times_of_the_pair(run: Any) -> None:
    class Times(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp())]

    harness = run(plain, -5, 5, Times())
    push(harness, 0, 3)
    push(harness, 1, 1)
    assert harness.output == [(3, 1, 3)]


def test_a_function_may_keep_state_of_the_key_and_emit_aside(run: Any) -> None:
    class Counting(ProcessJoinFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.count: Any = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            self.count.update((self.count.value() or 0) + 1)
            yield left[0], self.count.value()
            yield LATE, "aside"

    harness = run(plain, -5, 5, Counting())
    push(harness, 0, 1, 2)
    push(harness, 1, 1)
    push(harness, 0, 1, key="b")
    push(harness, 1, 2, key="b")
    assert harness.output == [("a", 1), ("a", 2), ("b", 1)]
    assert results(harness, 1) == [("aside", 1), ("aside", 2), ("aside", 2)]


def test_rows_in_state_do_not_change_with_the_rows_of_the_program(run: Any) -> None:
    row = ["a", 1]
    harness = run(plain, -5, 5)
    harness.push(row, timestamps=[1])
    row[1] = 99
    push(harness, 1, 1)
    assert harness.output == [(1, 1)]


# ---------------------------------------------------------------------- late rows, and state that ends


def dropped(harness: OperatorHarness) -> float:
    (metric,) = names.names(names.WINDOWS)
    (value,) = [v for name, v in harness.metrics().items() if name.endswith(f"Interval_Join.{metric}")]
    return value


def test_a_row_is_late_if_its_time_is_below_the_watermark(run: Any) -> None:
    harness = run(plain, -5, 5)
    watermark(harness, 10)
    push(harness, 0, 9, 10)
    push(harness, 1, 9, 10)
    assert harness.output == [(10, 10)]
    assert dropped(harness) == 2


def test_late_rows_go_to_the_side_output_of_their_side(run: Any) -> None:
    harness = run(lambda joined: joined.side_output_right_late_data(LATE), -5, 5)
    watermark(harness, 10)
    push(harness, 0, 9)
    push(harness, 1, 8)
    assert results(harness, 1) == [(("a", 8), 8)]
    assert dropped(harness) == 1
    other = run(lambda joined: joined.side_output_left_late_data(LATE), -5, 5)
    watermark(other, 10)
    push(other, 0, 9)
    push(other, 1, 8)
    assert results(other, 1) == [(("a", 9), 9)]
    assert dropped(other) == 1


def test_rows_go_when_nothing_can_meet_them(run: Any) -> None:
    harness = run(plain, 0, 5000)
    push(harness, 0, 0)
    push(harness, 1, 0, key="b")
    assert not is_empty(harness)
    watermark(harness, 5000)
    push(harness, 1, 5000)
    assert harness.output == [(0, 5000)]
    # Left rows from 0 to 2500 share a bucket, which right rows up to 7500 can meet.
    watermark(harness, 7501)
    assert is_empty(harness)


def test_no_state_is_left_at_the_end(run: Any) -> None:
    harness = run(lambda joined: joined.full_outer(), -3000, 2000)
    for time in range(0, 20_000, 700):
        push(harness, time % 2, time, key=f"k{time % 3}")
    watermark(harness, MAX)
    assert is_empty(harness)


# ---------------------------------------------------------------------- rows without a partner


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (plain, []),
        (lambda joined: joined.left_outer(), [(1, None)]),
        (lambda joined: joined.right_outer(), [(None, 4000)]),
        (lambda joined: joined.full_outer(), [(1, None), (None, 4000)]),
    ],
)
def test_an_outer_join_keeps_rows_that_meet_none_once(run: Any, behind: Any, expected: list[Any]) -> None:
    harness = run(behind, 0, 1000)
    push(harness, 0, 1, 2000)
    push(harness, 1, 4000, 2500)
    assert harness.take() == [(2000, 2500)]
    watermark(harness, 1000)
    assert harness.take() == []
    watermark(harness, MAX)
    assert results(harness) == [(pair, pair[0] or pair[1]) for pair in expected]
    assert is_empty(harness)


def test_rows_without_a_partner_are_not_behind_the_watermark(run: Any) -> None:
    harness = run(lambda joined: joined.full_outer(), -700, 1300)
    for time in range(0, 12_000, 100):
        push(harness, (time // 100) % 2, time, key=f"k{time % 7}{time % 3}")
        watermark(harness, time)
    watermark(harness, MAX)
    reached, alone = -MAX, 0
    for element in harness.elements():
        if isinstance(element, Watermark):
            reached = element.timestamp
        elif isinstance(element, RowBatch):
            assert element.timestamps is not None
            alone += sum(None in pair for pair in element.rows)
            assert all(stamp is not None and stamp > reached for stamp in element.timestamps)
    assert reached == MAX
    assert alone > 50


def test_an_inner_join_holds_no_watermark_back(run: Any) -> None:
    harness = run(plain, -700, 1300)
    watermark(harness, 5)
    assert harness.controls() == [Watermark(5)]


# ---------------------------------------------------------------------- bad input


def test_a_row_without_timestamp_fails_with_its_record(run: Any) -> None:
    harness = run(plain, 0, 1)
    with pytest.raises(FragmentFailedError, match=r"(?s)a record has no timestamp.*\('a', 7\) \(key 'a'\)"):
        harness.push(("a", 7))


def test_an_error_names_operator_key_and_both_rows(run: Any) -> None:
    class Fails(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            raise ValueError("no pair")

    harness = run(plain, 0, 1, Fails())
    push(harness, 0, 7)
    expected = r"(?s)no pair.*'Interval Join'.*\('a', 7\) with \('a', 8\) \(key 'a'\)"
    with pytest.raises(FragmentFailedError, match=expected):
        push(harness, 1, 8)


@pytest.mark.parametrize("bounds", [(0, 0), (1, 1), (0, 1), (-500, 500)])
@pytest.mark.parametrize("first", [0, 1])
def test_an_error_of_a_computed_pair_names_its_rows_and_the_line_of_the_function(
    run: Any, bounds: tuple[int, int], first: int
) -> None:
    class Divides(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            yield left[1], 1 // right[1]

    harness = run(plain, *bounds, Divides())
    rows = [("a", -bounds[1]), ("a", 0)]
    push(harness, 1, 7, key="b")
    push(harness, 0, 7 - bounds[1], key="b")
    assert harness.output == [(7 - bounds[1], 0)]
    push(harness, first, rows[first][1])
    pair = rf"\('a', {rows[0][1]}\) with \('a', 0\) \(key 'a'\)"
    expected = rf"(?s)yield left\[1\].*by zero.*'Interval Join'.*{pair}"
    with pytest.raises(FragmentFailedError, match=expected):
        push(harness, 1 - first, rows[1 - first][1])


@pytest.mark.parametrize("bounds", [(0, 0), (3, 3), (-3, -3), (-1, 3), (-400, 500)])
def test_late_rows_among_computed_pairs_keep_their_times(run: Any, bounds: tuple[int, int]) -> None:
    harness = run(lambda joined: joined.side_output_left_late_data(LATE), *bounds)
    push(harness, 0, 10)
    watermark(harness, 10)
    push(harness, 1, 10 + bounds[1])
    push(harness, 0, 9, 10)
    assert results(harness, 1) == [(("a", 9), 9)]
    later = max(10, 10 + bounds[1])
    pairs = [((10, 10 + bounds[1]), later)] * 2 if bounds[1] >= 0 else []
    assert results(harness) == pairs


def test_a_function_of_one_value_is_computed_in_the_loop(run: Any) -> None:
    for bounds in ((0, 0), (0, 1), (-500, 500)):
        harness = run(plain, *bounds)
        push(harness, 0, 5, 5)
        push(harness, 1, 5)
        assert harness.output == [(5, 5), (5, 5)]
        assert "process" not in harness.generated_code
        assert "pairs" not in harness.generated_code


class Stamped(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


STAMPED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())


def keyed(
    env: StreamExecutionEnvironment | None = None, key_type: Any = None, *, timed: bool = True
) -> KeyedStream:
    env = env or StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    rows = env.from_collection([("a", 1)], ROW)
    rows = rows.assign_timestamps_and_watermarks(STAMPED) if timed else rows
    return rows.key_by(lambda row: row[0], key_type)


def joined() -> IntervalJoin[DataStream]:
    left = keyed(key_type=Types.STRING())
    return left.interval_join(keyed(left.get_execution_environment()))


def test_an_interval_join_becomes_an_operator_of_two_inputs() -> None:
    bounds = joined().in_event_time().between(Duration.of_millis(-5), timedelta(seconds=1))  # type: ignore[arg-type]
    made = bounds.lower_bound_exclusive().side_output_left_late_data(LATE).process(Pairs(), ROW).uid("join")
    operator = operator_of(made)
    assert isinstance(operator.spec, IntervalJoinOperator)
    assert (operator.spec.lower_ms, operator.spec.upper_ms) == (-4, 1000)
    assert operator.spec.late_tags == ("late", None)
    assert operator.spec.row_types == (ROW.to_spec(), ROW.to_spec())
    assert (operator.name, operator.parallelism) == ("Interval Join", 3)
    assert (operator.output_type, operator.state_key_type) == (ROW, Types.STRING())


def test_bounds_without_a_time_between_them_are_refused() -> None:
    five = Time.milliseconds(5)
    with pytest.raises(InvalidProgramError, match="between 6 ms and 5 ms: no time lies between"):
        joined().between(Time.milliseconds(6), five)
    same = joined().between(five, five)
    with pytest.raises(InvalidProgramError, match=r"between 5 ms and 4 ms.*exclusive"):
        same.upper_bound_exclusive()
    with pytest.raises(InvalidProgramError, match="bounds are 64-bit numbers"):
        joined().between(five, Time.milliseconds(1 << 63))
    with pytest.raises(TypeError, match=r"lower_bound must be a Time, .*of_millis\(1\), not 1"):
        joined().between(1, 2)  # type: ignore[arg-type]


def test_keys_of_types_that_never_meet_are_refused() -> None:
    left = keyed(key_type=Types.STRING())
    right = keyed(left.get_execution_environment(), Types.LONG())
    with pytest.raises(InvalidProgramError, match="interval_join: keys of type Long never equal"):
        left.interval_join(right)


def test_both_streams_need_times() -> None:
    left = keyed()
    env = left.get_execution_environment()
    with pytest.raises(InvalidProgramError, match="interval_join: nothing gives the records of the second"):
        left.interval_join(keyed(env, timed=False))
    with pytest.raises(InvalidProgramError, match="interval_join: nothing gives the records of the first"):
        keyed(env, timed=False).interval_join(left)
    env.set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    left.interval_join(keyed(env, timed=False))


def test_what_cannot_work_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="in_processing_time is refused"):
        joined().in_processing_time()
    left = keyed()
    with pytest.raises(InvalidProgramError, match="interval_join: the streams belong to two"):
        left.interval_join(keyed())
    with pytest.raises(TypeError, match="interval_join takes a KeyedStream, not DataStream"):
        left.interval_join(left.map(str))  # type: ignore[arg-type]
    bounded = joined().between(Time.milliseconds(0), Time.milliseconds(1))
    with pytest.raises(TypeError, match="process takes a ProcessJoinFunction, not"):
        bounded.process(lambda left, right, ctx: [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="process takes an object, not a class"):
        bounded.process(Pairs)  # type: ignore[arg-type]
    for call in (bounded.side_output_left_late_data, bounded.side_output_right_late_data):
        with pytest.raises(TypeError, match="late_data takes an OutputTag, not 'late'"):
            call("late")  # type: ignore[arg-type]
