"""Joins by window in a program: what they become, what they give, and what is refused at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import CheckpointedFunction, FilterFunction, KeySelector, RuntimeContext
from yarrow.datastream.functions.two_data_sets_functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    RichJoinFunction,
)
from yarrow.datastream.joined_streams import JoinedStreams, JoinedWindows
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.window_spec import WindowOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

ROW = Types.TUPLE([Types.STRING(), Types.LONG()])
TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


class Stamped(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


STAMPED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())


def first(row: Any) -> Any:
    return row[0]


def stream(env: StreamExecutionEnvironment | None = None, *, timed: bool = True) -> DataStream:
    env = env or StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    rows = env.from_collection([("a", 1)], ROW)
    return rows.assign_timestamps_and_watermarks(STAMPED).set_parallelism(2) if timed else rows


def two(*, timed: tuple[bool, bool] = (True, True)) -> tuple[DataStream, DataStream]:
    one = stream(timed=timed[0])
    return one, stream(one.get_execution_environment(), timed=timed[1])


def joined(kind: JoinKind = JoinKind.INNER) -> JoinedWindows[DataStream]:
    return JoinedStreams(*two(), kind).where(first, Types.STRING()).equal_to(first).window(TEN)


def run(
    build: Callable[[DataStream, DataStream], DataStream],
    firsts: Iterable[Any],
    seconds: Iterable[Any],
    types: Any = None,
) -> list[Any]:
    """The results for rows whose second field is their time."""
    with OperatorHarness(build, inputs=2, types=types) as harness:
        for number, rows in enumerate((list(firsts), list(seconds))):
            harness.push(*rows, input=number, timestamps=[row[1] for row in rows])
        for number in range(2):
            harness.watermark(1000, input=number)
        return list(zip(harness.output, harness.timestamps(), strict=True))


def pairs(one: Any, other: Any) -> Any:
    return one, other


# ---------------------------------------------------------------------- results

A = [("a", 1), ("a", 3), ("b", 5), ("a", 12)]
B = [("a", 4), ("a", 9), ("c", 7), ("b", 15)]


def test_pairs_of_a_key_and_window_are_joined_at_the_end_of_the_window() -> None:
    found = run(lambda a, b: a.join(b).where(first).equal_to(first).window(TEN).apply(pairs), A, B)
    assert found == [
        ((("a", 1), ("a", 4)), 9),
        ((("a", 1), ("a", 9)), 9),
        ((("a", 3), ("a", 4)), 9),
        ((("a", 3), ("a", 9)), 9),
    ]


@pytest.mark.parametrize(
    ("begin", "lefts", "rights"),
    [
        (DataStream.left_outer_join, [("b", 5), ("a", 12)], []),
        (DataStream.right_outer_join, [], [("c", 7), ("b", 15)]),
        (DataStream.full_outer_join, [("b", 5), ("a", 12)], [("c", 7), ("b", 15)]),
    ],
)
def test_outer_joins_keep_rows_without_a_partner(
    begin: Callable[..., JoinedStreams[DataStream]], lefts: list[Any], rights: list[Any]
) -> None:
    found = run(lambda a, b: begin(a, b).where(first).equal_to(first).window(TEN).apply(pairs), A, B)
    alone = {(pair, stamp) for pair, stamp in found if None in pair}
    assert alone == {((row, None), row[1] // 10 * 10 + 9) for row in lefts} | {
        ((None, row), row[1] // 10 * 10 + 9) for row in rights
    }
    assert len(found) == 4 + len(alone)


class Both(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterator[Any], second: Iterator[Any]) -> Iterable[Any]:
        yield [row[1] for row in first], [row[1] for row in second]
        yield OutputTag("aside", Types.STRING()), "called"


def test_co_group_gets_the_rows_of_both_also_where_one_has_none() -> None:
    def build(a: DataStream, b: DataStream) -> DataStream:
        return a.co_group(b).where(first).equal_to(first).window(TEN).apply(Both())

    assert sorted(run(build, A, B)) == [
        (([], [7]), 9),
        (([], [15]), 19),
        (([1, 3], [4, 9]), 9),
        (([5], []), 9),
        (([12], []), 19),
    ]


def test_sessions_of_both_streams_are_one_session() -> None:
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(3))
    found = run(
        lambda a, b: a.join(b).where(first).equal_to(first).window(sessions).apply(pairs),
        [("a", 1), ("a", 6)],
        [("a", 4), ("a", 20)],
    )
    # The rows at 1 and 6 are apart; that at 4 touches both.
    assert found == [((("a", 1), ("a", 4)), 8), ((("a", 6), ("a", 4)), 8)]


class Sums(JoinFunction[Any, Any, int]):
    def join(self, first: Any, second: Any) -> int:
        return int(first[1] + second[1])


class Twice(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        return None if first[1] == 1 else [first, second]


def generated(one: Any, other: Any) -> Iterator[Any]:
    if one[1] == 3:
        yield one[1], other[1]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(Sums(), [5, 7]), (Twice(), [("a", 3), ("a", 4)]), (generated, [(3, 4)])],
)
def test_functions_of_pairs(function: Any, expected: list[Any]) -> None:
    found = run(
        lambda a, b: a.join(b).where(first).equal_to(first).window(TEN).apply(function),
        [("a", 1), ("a", 3)],
        [("a", 4)],
    )
    assert [row for row, _ in found] == expected


class Counted(RichJoinFunction[Any, Any, Any]):
    """Counts the pairs of a key in keyed state."""

    closed = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: Any = self.get_runtime_context().get_state(ValueStateDescriptor("count", Types.LONG()))

    def join(self, first: Any, second: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return first[0], self.count.value()

    def close(self) -> None:
        Counted.closed = True


def test_a_rich_function_has_state_of_the_key_and_is_closed() -> None:
    Counted.closed = False
    found = run(lambda a, b: a.join(b).where(first).equal_to(first).window(TEN).apply(Counted()), A, B)
    assert [row for row, _ in found] == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    assert Counted.closed


def test_rows_of_declared_types_and_of_none_meet() -> None:
    found = run(
        lambda a, b: a.join(b).where(first).equal_to(lambda row: row[0]).window(TEN).apply(pairs),
        [("a", 1)],
        [["a", 2, {"x": 1}]],
        types=[ROW, None],
    )
    assert found == [((("a", 1), ["a", 2, {"x": 1}]), 9)]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [(DataStream.join, []), (DataStream.full_outer_join, []), (DataStream.co_group, [(([], []), 9)])],
)
def test_a_window_that_an_evictor_has_emptied_has_no_row_without_a_partner(begin: Any, expected: Any) -> None:
    function: Any = pairs if begin is not DataStream.co_group else lambda a, b: [(list(a), list(b))]

    def build(a: DataStream, b: DataStream) -> Any:
        return (
            begin(a, b).where(first).equal_to(first).window(TEN).evictor(CountEvictor.of(0)).apply(function)
        )

    assert run(build, [("a", 1)], [("a", 2)]) == expected


def test_an_evictor_of_a_join_gets_the_rows_of_both_streams_tagged() -> None:
    def build(a: DataStream, b: DataStream) -> DataStream:
        seconds: DeltaEvictor[Any] = DeltaEvictor.of(
            1, lambda old, new: 0 if old[0] == 1 or old[1] == ("a", 3) else 1
        )
        return a.left_outer_join(b).where(first).equal_to(first).window(TEN).evictor(seconds).apply(pairs)

    assert run(build, [("a", 1), ("a", 3), ("b", 5)], [("a", 4)]) == [((("a", 3), ("a", 4)), 9)]


def test_a_stream_is_joined_with_itself() -> None:
    with OperatorHarness(
        lambda a: a.join(a).where(first).equal_to(first).window(TEN).apply(pairs)
    ) as harness:
        harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
        harness.watermark(9)
        assert len(harness.output) == 4


def test_an_error_names_operator_key_and_window() -> None:
    def fails(one: Any, other: Any) -> Any:
        raise ValueError("no pair")

    with pytest.raises(FragmentFailedError, match=r"(?s)Window Join.*timer at 9 \(window TimeWindow"):
        run(lambda a, b: a.join(b).where(first).equal_to(first).window(TEN).apply(fails), A, B)


# ---------------------------------------------------------------------- programs


class ByFirst(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value[0]


def test_a_join_becomes_one_window_operator_behind_tagged_streams() -> None:
    made = joined().allowed_lateness(5).trigger(CountTrigger.of(2)).apply(Sums(), Types.LONG()).uid("join")
    operator = operator_of(made)
    assert isinstance(operator.spec, WindowOperator)
    assert (operator.name, operator.output_type, operator.parallelism) == ("Window Join", Types.LONG(), 3)
    assert operator.spec.allowed_lateness_ms == 5
    assert operator.state_key_type == Types.STRING()
    assert operator.spec.kept_type == Types.TUPLE([Types.BYTE(), ROW, ROW]).to_spec()
    made.print()
    vertices = made.get_execution_environment().get_job_graph("joined").vertices
    tags = [vertex for vertex in vertices if any(each.name == "Tag" for each in vertex.operators)]
    # A tag runs in the chain of its stream.
    assert [(len(vertex.operators) > 1, vertex.parallelism) for vertex in tags] == [(True, 2)] * 2


def test_co_group_has_a_name_and_key_selectors_may_be_objects() -> None:
    one, other = two()
    windows = one.co_group(other).where(ByFirst()).equal_to(ByFirst()).window(TEN)
    assert operator_of(windows.apply(Both())).name == "Window CoGroup"


def test_keys_of_types_that_never_meet_are_refused() -> None:
    one, other = two()
    half = one.join(other).where(first, Types.STRING())
    with pytest.raises(InvalidProgramError, match="equal_to: keys of type Long never equal"):
        half.equal_to(lambda row: row[1], Types.LONG())
    for key_type in (None, Types.CHAR()):
        half.equal_to(first, key_type)


@pytest.mark.parametrize(("timed", "number"), [((True, False), "second"), ((False, True), "first")])
def test_windows_of_event_time_need_times_in_both_streams(timed: tuple[bool, bool], number: str) -> None:
    one, other = two(timed=timed)
    by_key = one.left_outer_join(other).where(first).equal_to(first)
    with pytest.raises(
        InvalidProgramError, match=f"left_outer_join in windows of Tumbling.*records of the {number} stream"
    ):
        by_key.window(TEN)
    by_key.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).apply(pairs)
    one.get_execution_environment().set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    by_key.window(TEN).apply(pairs)


def test_a_window_of_an_outer_join_fires_once() -> None:
    for kind in (JoinKind.LEFT_OUTER, JoinKind.RIGHT_OUTER, JoinKind.FULL_OUTER):
        with pytest.raises(InvalidProgramError, match="trigger: a window of an outer join fires once"):
            joined(kind).trigger(CountTrigger.of(1))
        with pytest.raises(InvalidProgramError, match="allowed_lateness: a window of an outer join"):
            joined(kind).allowed_lateness(1)
        joined(kind).allowed_lateness(0)


def test_what_does_not_exist_is_refused_by_name() -> None:
    class Keeping(JoinFunction[Any, Any, Any], CheckpointedFunction):
        def join(self, first: Any, second: Any) -> Any:
            return first

        def initialize_state(self, context: Any) -> None:
            pass

        def snapshot_state(self, context: Any) -> None:
            pass

    with pytest.raises(UnsupportedFeatureError, match="Keeping is a CheckpointedFunction"):
        joined().apply(Keeping())


def test_an_evictor_reaches_the_windows_of_a_join() -> None:
    made = joined().evictor(CountEvictor.of(3)).apply(pairs)
    assert (
        operator_of(made).description
        == "Window(TumblingEventTimeWindows, EventTimeTrigger, CountEvictor, apply)"
    )
    with pytest.raises(TypeError, match=r"evictor takes an Evictor, such as CountEvictor\.of\(3\), not 3"):
        joined().evictor(3)  # type: ignore[arg-type]


def test_arguments_of_a_wrong_kind_are_refused() -> None:
    one, other = two()
    with pytest.raises(InvalidProgramError, match="join: the streams belong to two"):
        one.join(stream())
    with pytest.raises(TypeError, match="co_group takes DataStreams, not int"):
        one.co_group(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="where takes a KeySelector or a callable, not 'name'"):
        one.join(other).where("name")  # type: ignore[arg-type]
    by_key = one.join(other).where(first)
    with pytest.raises(TypeError, match="equal_to takes a KeySelector or a callable, not 3"):
        by_key.equal_to(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="window takes a WindowAssigner"):
        by_key.equal_to(first).window(10)  # type: ignore[arg-type]
    for wrong in (Sums, Both(), 7, Filtering()):
        with pytest.raises(TypeError, match="apply takes a"):
            joined().apply(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="windows of EventTimeSessionWindows merge"):
        sessions: WindowAssigner[Any, Any] = EventTimeSessionWindows.with_gap(Time.seconds(1))
        by_key.equal_to(first).window(sessions).trigger(NoMerge())


class Filtering(FilterFunction[Any]):
    def filter(self, value: Any) -> bool:
        return True


class NoMerge(CountTrigger):
    def __init__(self) -> None:
        super().__init__(1)

    def can_merge(self) -> bool:
        return False
