"""Tumbling windows without timers: rules that generated code has to keep, each by name, on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.kept_windows import keeps_nothing
from tests.support.window_functions import CountedCalls, OwnTrigger
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.window.tumbling_windows import TumblingWindows
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.functions import AggregateFunction, WindowFunction
from yarrow.datastream.window import (
    ProcessingTimeTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
SIZE = Time.milliseconds(10)


class OwnClockTrigger(ProcessingTimeTrigger):
    """The same by processing time."""


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


class Sum(AggregateFunction[Any, Any, Any]):
    """The sum of the numbers; 13 makes it nothing."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return None if value[1] == 13 else accumulator + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return 100 // accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class SameList(Sum):
    """The sum in a list that is the same object for all results."""

    def __init__(self) -> None:
        self._shown: list[Any] = []

    def get_result(self, accumulator: Any) -> Any:
        self._shown[:] = [accumulator]
        return self._shown


@pytest.fixture(params=["fast", "general"])
def windows(request: pytest.FixtureRequest) -> Callable[[DataStream], Any]:
    """Cuts a stream into windows that take one way or the other: each test holds for both."""

    def cut(stream: DataStream, *, event_time: bool = True, size: Time = SIZE) -> Any:
        assigner: Any = TumblingEventTimeWindows if event_time else TumblingProcessingTimeWindows
        made = stream.key_by(lambda row: row[0]).window(assigner.of(size))
        if request.param == "fast":
            return made
        return made.trigger(OwnTrigger() if event_time else OwnClockTrigger())

    return cut


def operator_of(harness: OperatorHarness) -> Any:
    return harness.tasks[0].chain.operators[0]


def test_the_default_trigger_with_an_incremental_function_takes_the_fast_way(run: Any) -> None:
    harness = run(
        lambda s: s.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(SIZE)).reduce(add)
    )
    assert type(operator_of(harness)) is TumblingWindows


def test_late_rows_go_to_their_side_output_with_their_own_time(run: Any, windows: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        main = windows(stream).side_output_late_data(LATE).reduce(add)
        return [main, main.get_side_output(LATE)]

    harness = run(fragment)
    harness.push(("a", 1), ("a", 2), timestamps=[9, 10])
    harness.watermark(9)
    harness.push(("a", 4), ("a", 8), ("b", 16), timestamps=[9, 10, 3])
    harness.watermark(19)
    assert (harness.output, harness.timestamps()) == ([("a", 1), ("a", 10)], [9, 19])
    assert (harness.outputs(1), harness.timestamps(1)) == ([("a", 4), ("b", 16)], [9, 3])
    assert operator_of(harness).late_dropped == 0


def test_late_rows_without_a_side_output_are_dropped_and_counted(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).aggregate(Sum()))
    harness.watermark(9)
    harness.push(("a", 4), ("a", 2), timestamps=[9, 10])
    harness.watermark(19)
    assert harness.output == [50]
    assert operator_of(harness).late_dropped == 1


def test_a_row_inside_the_lateness_fires_its_window_again(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).allowed_lateness(5).reduce(add))
    harness.push(("a", 1), ("b", 2), timestamps=[0, 9])
    harness.watermark(9)
    harness.push(("a", 10), ("c", 4), timestamps=[3, 4])
    assert sorted(harness.output) == [("a", 1), ("a", 11), ("b", 2), ("c", 4)]
    assert harness.timestamps() == [9] * 4
    harness.watermark(13)
    harness.push(("b", 20), timestamps=[9])
    harness.watermark(14)
    harness.push(("b", 40), timestamps=[9])
    assert harness.output[4:] == [("b", 22)]
    assert operator_of(harness).late_dropped == 1
    assert keeps_nothing(operator_of(harness))


def test_windows_of_the_machines_clock_end_by_it(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s, event_time=False, size=Time.milliseconds(1000)).reduce(add))
    harness.push(("a", 1), ("b", 2))
    harness.advance(0.5)
    harness.push(("a", 4))
    harness.advance(0.498)
    assert harness.output == []
    harness.advance(0.001)
    assert sorted(harness.output) == [("a", 5), ("b", 2)]
    assert harness.timestamps() == [999] * 2
    harness.advance(0.001)
    harness.push(("a", 8))
    harness.advance(2)
    assert harness.output[2:] == [("a", 8)] and harness.timestamps()[2:] == [1999]
    assert keeps_nothing(operator_of(harness))


def test_a_window_whose_accumulator_is_none_has_no_content(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).aggregate(Sum()))
    harness.push(("a", 5), ("a", 13), ("b", 13), ("b", 20), timestamps=[1, 2, 3, 4])
    harness.watermark(9)
    assert harness.output == [5]
    assert keeps_nothing(operator_of(harness))


@pytest.mark.parametrize("trigger", [None, OwnTrigger()], ids=["fast", "general"])
def test_a_row_that_is_none_is_refused(run: Any, trigger: Any) -> None:
    def fragment(stream: DataStream) -> DataStream:
        made = stream.key_by(lambda row: "a").window(TumblingEventTimeWindows.of(SIZE))
        return (made if trigger is None else made.trigger(trigger)).reduce(lambda first, second: first)

    harness = run(fragment)
    harness.push("row", timestamps=[1])
    with pytest.raises(FragmentFailedError, match="None cannot be added"):
        harness.push(None, timestamps=[1])


def test_a_row_without_a_timestamp_is_refused_with_its_key(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).reduce(add))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", 1))
    text = str(caught.value)
    assert "got a record without a timestamp" in text and "('a', 1)" in text and "of the key 'a'" in text


@pytest.mark.parametrize("rows", [[5, "x"], ["x", 5]])
def test_errors_of_functions_name_record_window_and_key(run: Any, windows: Any, rows: list[Any]) -> None:
    class Bad(Sum):
        def add(self, value: Any, accumulator: Any) -> Any:
            return super().add((value[0], int(value[1])), accumulator)

    harness = run(lambda s: windows(s).aggregate(Bad()))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(*[("a", row) for row in rows], timestamps=[11, 12])
    text = str(caught.value)
    assert "('a', 'x') (window TimeWindow(start=10, end=20) of the key 'a')" in text and "ValueError" in text


def test_errors_of_results_name_window_and_key(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).aggregate(Sum()))
    harness.push(("a", 0), timestamps=[11])
    with pytest.raises(FragmentFailedError) as caught:
        harness.watermark(19)
    text = str(caught.value)
    assert "timer at 19 (window TimeWindow(start=10, end=20) of the key 'a')" in text
    assert "ZeroDivisionError" in text


def test_a_function_may_change_a_result_that_it_has_given(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).aggregate(SameList()).map(list))
    harness.push(("a", 1), ("b", 2), ("c", 3), timestamps=[1, 2, 3])
    harness.watermark(9)
    assert sorted(harness.output) == [[1], [2], [3]]


def test_results_of_a_type_that_cannot_change_leave_at_once_and_name_a_failing_key(
    run: Any, windows: Any
) -> None:
    harness = run(lambda s: windows(s).aggregate(Sum(), None, Types.LONG(), Types.LONG()))
    harness.push(("a", 20), ("b", 50), timestamps=[1, 2])
    harness.watermark(9)
    assert (sorted(harness.output), harness.timestamps()) == ([2, 5], [9, 9])
    harness.push(("a", 20), ("zero", 0), ("b", 50), timestamps=[11, 12, 13])
    with pytest.raises(FragmentFailedError, match=r"start=10, end=20.*'zero'"):
        harness.watermark(19)


def test_functions_may_have_state_of_their_key(run: Any, windows: Any) -> None:
    harness = run(lambda s: windows(s).reduce(CountedCalls()))
    harness.push(*[(key, 0) for key in "aababb"], timestamps=[1, 2, 3, 4, 5, 15])
    harness.watermark(30)
    assert sorted(harness.output) == [("a", 2), ("b", 0), ("b", 1)]


def test_emitted_results_and_windows_are_apart(run: Any, windows: Any) -> None:
    class Listed(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return []

        def add(self, value: Any, accumulator: Any) -> Any:
            accumulator.append(value)
            return accumulator

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a + acc_b

    def spoiled(result: list[Any]) -> list[Any]:
        result.append("spoiled")
        return result[:-1]

    harness = run(lambda s: windows(s).allowed_lateness(10).aggregate(Listed()).map(spoiled))
    harness.push(("a", 1), timestamps=[1])
    harness.watermark(9)
    harness.push(("a", 2), timestamps=[2])
    assert harness.output == [[("a", 1)], [("a", 1), ("a", 2)]]


def test_equal_keys_of_other_types_and_borders_are_those_of_the_general_way(run: Any) -> None:
    class Shown(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
            return [(key, window.start, *(number for _, number in inputs))]

    def fragment(stream: DataStream) -> list[DataStream]:
        made = stream.key_by(lambda row: row[0]).window(
            TumblingEventTimeWindows.of(SIZE, Time.milliseconds(3))
        )
        other = stream.key_by(lambda row: row[0]).window(
            TumblingEventTimeWindows.of(SIZE, Time.milliseconds(3))
        )
        return [made.reduce(add, Shown()), other.trigger(OwnTrigger()).reduce(add, Shown())]

    harness = run(fragment)
    rows = [(key, 1 << at) for at, key in enumerate([1, 1.0, True, (1, 2), 1, "1", None, (1, 2), b"1", 1])]
    harness.push(*rows, timestamps=[2, 3, 2, 13, -7, -8, 0, 12, 3, 12])
    harness.watermark(40)
    assert sorted(harness.output, key=repr) == sorted(harness.outputs(1), key=repr)
    assert len(harness.output) > 6
