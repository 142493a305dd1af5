"""Rows in event-time order in a program: rules by name, with and without keys, on both backends, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OrderedStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import Watermark
from yarrow.runtime.graph.transformations import ChainingStrategy
from yarrow.runtime.graph.window_spec import EventTimeOrderOperator, KeyedEventTimeOrderOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
MAX = (1 << 63) - 1
MIN = -(1 << 63)

Run = Callable[..., OperatorHarness]


@pytest.fixture(params=["hashmap", "rocksdb", "without keys"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Opens a harness: run(what is called on the ordered stream)."""
    opened: list[OperatorHarness] = []

    def start(behind: Any = lambda stream: stream, **settings: Any) -> OperatorHarness:
        def build(stream: DataStream) -> list[DataStream]:
            keyed = request.param != "without keys"
            ordered = behind((stream.key_by(lambda row: row[0]) if keyed else stream).in_event_time_order())
            return [ordered.map(lambda row: row), ordered.get_side_output(LATE)]

        backend = "hashmap" if request.param == "without keys" else request.param
        opened.append(OperatorHarness(build, configuration={"state.backend.type": backend}, **settings))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def push(harness: OperatorHarness, *rows: tuple[str, int]) -> None:
    """Sends rows (name, time)."""
    harness.push(*rows, timestamps=[time for _, time in rows])


def ordering(harness: OperatorHarness) -> Any:
    return next(
        each for task in harness.tasks for each in task.chain.operators if each.name == "Event Time Order"
    )


def is_empty(harness: OperatorHarness) -> bool:
    """Whether no row is left in state."""
    buffer = ordering(harness)._buffer
    tables = getattr(buffer, "_tables", None)
    return not buffer._in_order.count and (tables is None or not tables.windows())


# ---------------------------------------------------------------------- order


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_leave_are_collected_without_a_loop(keyed: bool) -> None:
    def build(stream: DataStream) -> DataStream:
        return (stream.key_by(lambda row: row[0]) if keyed else stream).in_event_time_order()

    with OperatorHarness(build, configuration={"pipeline.object-reuse": "true"}) as harness:
        push(harness, ("a", 30), ("b", 10), ("a", 10))
        harness.watermark(20)
        assert "extend" in harness.generated_code
        assert harness.output == [("b", 10), ("a", 10)]
        assert harness.timestamps() == [10, 10]


def test_rows_wait_for_the_watermark_and_leave_by_time(run: Run) -> None:
    harness = run()
    push(harness, ("a", 30), ("b", 10), ("a", 20))
    assert harness.output == []
    harness.watermark(20)
    assert harness.take() == [("b", 10), ("a", 20)]
    assert not is_empty(harness)
    harness.watermark(29)
    assert harness.take() == []
    harness.watermark(30)
    assert harness.take() == [("a", 30)]
    assert is_empty(harness)


def test_rows_of_one_time_leave_as_they_came(run: Run) -> None:
    harness = run()
    harness.push(*[(name, "first") for name in "cab"], timestamps=[5, 5, 5])
    harness.push(*[(name, "second") for name in "bca"], timestamps=[5, 4, 5])
    harness.watermark(5)
    assert harness.output == [
        ("c", "second"), ("c", "first"), ("a", "first"), ("b", "first"), ("b", "second"), ("a", "second"),
    ]  # fmt: skip


def test_rows_keep_their_timestamps_and_leave_before_the_watermark(run: Run) -> None:
    harness = run()
    push(harness, ("a", 12), ("a", 11))
    harness.watermark(12)
    assert harness.timestamps() == [11, 12]
    assert harness.controls()[-1] == Watermark(12)


def test_rows_of_many_seconds_leave_in_order(run: Run) -> None:
    harness = run()
    times = [(7919 * number) % 50_000 for number in range(600)]
    push(harness, *[(f"k{time % 7}", time) for time in times])
    for watermark in (999, 1000, 1001, 17_300, 49_999):
        harness.watermark(watermark)
        assert [time for _, time in harness.output] == sorted(time for time in times if time <= watermark)
    assert is_empty(harness)


def test_a_row_of_a_second_that_has_begun_takes_its_place(run: Run) -> None:
    harness = run()
    push(harness, ("a", 1100), ("a", 1500))
    harness.watermark(1200)
    push(harness, ("b", 1600), ("a", 1300), ("a", 1201))
    harness.watermark(1550)
    push(harness, ("c", 1560))
    harness.watermark(MAX)
    assert [time for _, time in harness.output] == [1100, 1201, 1300, 1500, 1560, 1600]
    assert is_empty(harness)


def test_the_ends_of_time_have_their_places(run: Run) -> None:
    harness = run()
    push(harness, ("a", MAX), ("a", MIN), ("a", 0), ("a", MIN + 1), ("a", MAX - 1))
    harness.watermark(0)
    harness.watermark(MAX)
    assert [time for _, time in harness.output] == [MIN, MIN + 1, 0, MAX - 1, MAX]
    assert is_empty(harness)


def test_a_row_that_the_function_before_changes_later_stays_as_it_was(run: Run) -> None:
    harness = run()
    row = ["a", [1]]
    harness.push(row, timestamps=[5])
    row[1] = "changed"
    harness.watermark(5)
    assert harness.output == [["a", [1]]]


# ---------------------------------------------------------------------- late rows


def test_a_row_at_the_watermark_is_late_and_counted(run: Run) -> None:
    harness = run()
    harness.watermark(10)
    push(harness, ("a", 11), ("a", 10), ("b", 9))
    harness.watermark(20)
    assert harness.outputs(0) == [("a", 11)]
    assert harness.outputs(1) == []
    found = [value for name, value in harness.metrics().items() if name.endswith("numLateRecordsDropped")]
    assert found == [2]


def test_late_rows_go_to_the_side_output_with_their_times(run: Run) -> None:
    harness = run(lambda stream: stream.side_output_late_data(LATE))
    harness.watermark(10)
    push(harness, ("a", 10), ("a", 11), ("b", 3))
    harness.watermark(20)
    assert harness.outputs(0) == [("a", 11)]
    assert harness.outputs(1) == [("a", 10), ("b", 3)]
    assert harness.timestamps(1) == [10, 3]
    assert ordering(harness).late_dropped == 0


def test_a_row_without_timestamp_is_refused_with_its_key() -> None:
    with OperatorHarness(lambda stream: stream.key_by(lambda row: row[0]).in_event_time_order()) as harness:
        with pytest.raises(FragmentFailedError) as failed:
            harness.push(("lost", 1))
        assert failed.value.cause.record == "('lost', 1) (key 'lost')"


def test_a_row_without_timestamp_is_refused_with_the_row(run: Run) -> None:
    harness = run()
    with pytest.raises(FragmentFailedError, match=r"a record has no timestamp(.|\n)*'lost'"):
        harness.push(("lost", 1))


def test_a_key_that_is_no_key_is_refused() -> None:
    def build(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row).in_event_time_order()

    with OperatorHarness(build) as harness, pytest.raises(FragmentFailedError, match="list"):
        harness.push([1], timestamps=[1])


# ---------------------------------------------------------------------- programs


def timed() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    return env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))


def test_the_stream_keeps_its_type_and_heads_its_chain() -> None:
    ordered = timed().in_event_time_order()
    assert isinstance(ordered, OrderedStream)
    assert ordered.get_type() == Types.TUPLE([Types.STRING(), Types.LONG()])
    assert operator_of(ordered).chaining is ChainingStrategy.HEAD
    assert operator_of(ordered).spec == EventTimeOrderOperator()


def test_a_keyed_stream_has_a_spec_of_its_own() -> None:
    keyed = timed().key_by(lambda row: row[0], Types.STRING())
    operator = operator_of(keyed.in_event_time_order().side_output_late_data(LATE).uid("order"))
    assert operator.spec == KeyedEventTimeOrderOperator(key_selector=keyed.key_selector, late_tag="late")
    assert operator.state_key_type == Types.STRING()
    assert operator.uid == "order"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_stream_without_times_is_refused(keyed: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([1])
    stream = rows.key_by(lambda row: row) if keyed else rows
    with pytest.raises(InvalidProgramError, match="assign_timestamps_and_watermarks before"):
        stream.in_event_time_order()


def test_a_late_output_needs_a_tag() -> None:
    with pytest.raises(TypeError, match="takes an OutputTag, not 'late'"):
        timed().in_event_time_order().side_output_late_data("late")  # type: ignore[arg-type]
