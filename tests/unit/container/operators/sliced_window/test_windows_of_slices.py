"""Windows made of slices: their rules, each by name, on both backends, and merges against a model without slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from tests.support.kept_windows import keeps_nothing
from tests.support.window_functions import CountedCalls
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.sliced_window.windows_of_slices import WindowsOfSlices
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import (
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
SLIDING = SlidingEventTimeWindows(10, 5, 0)
CUMULATIVE = CumulativeEventTimeWindows(15, 5, 0)


class Sum(AggregateFunction[Any, Any, Any]):
    """The sum of the numbers of rows."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Numbers(AggregateFunction[Any, Any, Any]):
    """The numbers of rows in a list, which `add` and `merge` change in place."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a += acc_b
        return acc_a


class Texts(AggregateFunction[Any, str, list[int]]):
    """The same in a text, which nothing changes: merges run in the generated loop. 99 and a number make merges fail."""

    def create_accumulator(self) -> str:
        return ""

    def add(self, value: Any, accumulator: str) -> str:
        return accumulator + f"{value[1]} "

    def get_result(self, accumulator: str) -> list[int]:
        return list(map(int, accumulator.split()))

    def merge(self, acc_a: str, acc_b: str) -> str:
        return acc_a + (acc_b if acc_a != "99 " else acc_b[99])


class Shown(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        (numbers,) = inputs
        yield key, window.start, window.end, tuple(sorted(numbers))


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


def cut(stream: DataStream, assigner: WindowAssigner[Any, Any] = SLIDING) -> Any:
    return stream.key_by(lambda row: row[0]).window(assigner)


def operator_of(harness: OperatorHarness) -> Any:
    return harness.tasks[0].chain.operators[0]


def test_overlapping_windows_with_an_incremental_function_are_made_of_slices(run: Any) -> None:
    for assigner in (SLIDING, CUMULATIVE):
        assert type(operator_of(run(lambda s, a=assigner: cut(s, a).reduce(add)))) is WindowsOfSlices
    late = run(lambda s: cut(s).allowed_lateness(1).reduce(add))
    assert type(operator_of(late)) is WindowsOfSlices


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_merges_are_those_of_all_rows_whatever_the_numbers_of_windows(seed: int) -> None:
    random = Random(seed)
    for size, slide in [(1, 1), (7, 1), (12, 3), (10, 4), (9, 7), (3, 5), (24, 2)]:
        for cumulative in (False, True):
            step = slide if not cumulative else next(n for n in (slide, 1) if size % n == 0)
            assigner: Any = (
                CumulativeEventTimeWindows(size, step, 0)
                if cumulative
                else SlidingEventTimeWindows(size, slide, 0)
            )
            check_merges(assigner, size, random, lambda windows: windows.aggregate(Numbers(), Shown()))
            check_merges(
                assigner, size, random, lambda windows: windows.aggregate(Texts(), Shown(), Types.STRING())
            )


def check_merges(assigner: Any, size: int, random: Random, aggregated: Any) -> None:
    """One key has a row at each time, one at few times, and some rows come behind windows of theirs."""
    harness = OperatorHarness(lambda s: aggregated(cut(s, assigner)))
    windows: dict[Any, list[int]] = {}
    watermark, number = -1, 0
    for now in range(4 * size + 20):
        for key in ("dense", *(["sparse"] if now % (size + 2) < 2 else [])):
            time = now if random.random() < 0.7 else max(0, now - random.randrange(size + 1))
            number += 1
            harness.push((key, number), timestamps=[time])
            for window in assigner.assign_windows(None, time, None):
                if window.end - 1 > watermark:
                    windows.setdefault((key, window.start, window.end), []).append(number)
        watermark = max(watermark, now - random.randrange(3))
        harness.watermark(watermark)
    harness.watermark(10_000)
    assert Counter(harness.output) == Counter((*window, tuple(found)) for window, found in windows.items())
    assert keeps_nothing(operator_of(harness))
    harness.close()


def test_a_row_behind_a_window_belongs_to_those_that_have_not_fired(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        main = cut(stream).side_output_late_data(LATE).reduce(add)
        return [main, main.get_side_output(LATE)]

    harness = run(fragment)
    harness.push(("a", 1), timestamps=[7])
    harness.watermark(9)
    harness.push(("a", 2), ("b", 4), ("a", 8), ("b", 16), timestamps=[8, 5, 4, 9])
    harness.watermark(30)
    assert (sorted(harness.output), harness.timestamps()) == ([("a", 1), ("a", 3), ("b", 20)], [9, 14, 14])
    assert (harness.outputs(1), harness.timestamps(1)) == ([("a", 8)], [4])
    assert operator_of(harness).late_dropped == 0
    assert keeps_nothing(operator_of(harness))


def test_late_rows_and_rows_of_no_window_are_dropped_and_counted(run: Any) -> None:
    harness = run(lambda s: cut(s, SlidingEventTimeWindows(3, 5, 0)).aggregate(Sum()))
    harness.push(("a", 1), ("a", 2), timestamps=[2, 4])
    harness.watermark(2)
    harness.push(("a", 4), timestamps=[1])
    harness.watermark(30)
    assert harness.output == [1]
    assert operator_of(harness).late_dropped == 2
    assert keeps_nothing(operator_of(harness))


def test_cumulative_windows_keep_a_slice_until_it_has_fired_once(run: Any) -> None:
    harness = run(lambda s: cut(s, CUMULATIVE).aggregate(Sum()))
    harness.push(("a", 1), ("a", 2), ("b", 4), timestamps=[0, 6, 11])
    harness.watermark(9)
    assert list(operator_of(harness)._slices) == [10]
    harness.push(("a", 8), ("c", 16), timestamps=[3, 3])
    harness.watermark(14)
    assert sorted(harness.output) == [1, 3, 4, 11, 16]
    assert not list(operator_of(harness)._slices)
    harness.push(("a", 32), timestamps=[15])
    harness.watermark(19)
    assert harness.output[5:] == [32]
    harness.watermark(100)
    assert keeps_nothing(operator_of(harness))


@pytest.mark.parametrize(
    "assigner",
    [SlidingProcessingTimeWindows(1000, 500, 0), CumulativeProcessingTimeWindows(1000, 500, 0)],
    ids=["sliding", "cumulative"],
)
def test_windows_of_the_machines_clock_end_by_it(run: Any, assigner: Any) -> None:
    harness = run(lambda s: cut(s, assigner).reduce(add))
    harness.push(("a", 1), ("b", 2))
    harness.advance(0.499)
    assert sorted(harness.output) == [("a", 1), ("b", 2)]
    # The window of this millisecond has fired: the row belongs to the next one.
    harness.push(("a", 4))
    harness.advance(0.5)
    assert sorted(harness.output[2:]) == [("a", 5), ("b", 2)]
    harness.advance(5)
    rest = [("a", 4)] if isinstance(assigner, SlidingProcessingTimeWindows) else []
    assert harness.output[4:] == rest
    assert harness.timestamps() == [499, 499, 999, 999, *([1499] if rest else [])]
    assert keeps_nothing(operator_of(harness))


def test_errors_of_merges_name_window_and_key(run: Any) -> None:
    class Bad(Sum):
        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a // (acc_b - 2)

    harness = run(lambda s: cut(s).aggregate(Bad()))
    harness.push(("a", 1), ("a", 2), timestamps=[1, 6])
    with pytest.raises(FragmentFailedError) as caught:
        harness.watermark(9)
    text = str(caught.value)
    assert "timer at 9 (window TimeWindow(start=0, end=10) of the key 'a')" in text
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize("assigner", [SLIDING, SlidingEventTimeWindows(15, 5, 0), CUMULATIVE])
def test_a_merge_that_returns_nothing_fails(run: Any, assigner: Any) -> None:
    class Lost(Numbers):
        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a.extend(acc_b)

    harness = run(lambda s: cut(s, assigner).aggregate(Lost()))
    assert type(operator_of(harness)) is WindowsOfSlices
    harness.push(("a", 1), ("a", 2), ("b", 1), timestamps=[1, 6, 1])
    with pytest.raises(FragmentFailedError) as caught:
        harness.watermark(14)
    text = str(caught.value)
    assert "timer at 9 (window TimeWindow(start=" in text and ", end=10) of the key 'a')" in text
    assert "merge of Lost returned None" in text


@pytest.mark.parametrize("inlines", ["true", "false"])
def test_a_merge_that_returns_nothing_in_the_loop_names_window_and_key(inlines: str) -> None:
    class Forgetful(Texts):
        def merge(self, acc_a: str, acc_b: str) -> Any:
            return None if "99 " in acc_a + acc_b else acc_a + acc_b

    def fragment(stream: DataStream) -> DataStream:
        assigner = SlidingEventTimeWindows(15, 5, 0)
        sums: DataStream = cut(stream, assigner).aggregate(Forgetful(), accumulator_type=Types.STRING())
        return sums

    for numbers in ([1, 2, 3, 99], [1, 2, 3, 4, 99]):
        with OperatorHarness(fragment, configuration={"pipeline.inline-functions": inlines}) as harness:
            for place, number in enumerate(numbers):
                harness.push(("a", 5), ("b", number), ("c", 5), timestamps=[1 + 5 * place] * 3)
            end = 5 * len(numbers)
            harness.watermark(end - 5)
            loop = operator_of(harness)._stacks._loops._stacks
            assert ("merge_" in loop.source) is (inlines == "false")
            with pytest.raises(FragmentFailedError) as caught:
                harness.watermark(end)
        text = str(caught.value)
        assert f"(window TimeWindow(start={end - 15}, end={end}) of the key 'b')" in text
        assert "merge of Forgetful returned None" in text


@pytest.mark.parametrize("inlines", ["true", "false"])
def test_a_merge_that_fails_in_a_new_front_names_window_and_key(inlines: str) -> None:
    class Divides(Sum):
        def merge(self, acc_a: int, acc_b: int) -> int:
            return acc_a // (acc_b - 99) + acc_b

    def fragment(stream: DataStream) -> DataStream:
        assigner = SlidingEventTimeWindows(15, 5, 0)
        sums: DataStream = cut(stream, assigner).aggregate(Divides(), accumulator_type=Types.LONG())
        return sums

    with OperatorHarness(fragment, configuration={"pipeline.inline-functions": inlines}) as harness:
        for place, number in enumerate([1, 2, 3, 99]):
            harness.push(("a", 5), ("b", number), ("c", 5), timestamps=[1 + 5 * place] * 3)
        harness.watermark(14)
        assert ("merge_" in operator_of(harness)._stacks._loops._front.source) is (inlines == "false")
        with pytest.raises(FragmentFailedError) as caught:
            harness.watermark(19)
    text = str(caught.value)
    assert "timer at 19 (window TimeWindow(start=5, end=20) of the key 'b')" in text
    assert "division or modulo by zero" in text and "in merge" in text


@pytest.mark.parametrize("inlines", ["true", "false"])
@pytest.mark.parametrize("assigner", [SLIDING, TumblingEventTimeWindows(10, 0)])
def test_a_result_that_fails_among_others_names_window_and_key(inlines: str, assigner: Any) -> None:
    class Inverse(Sum):
        def get_result(self, accumulator: int) -> float:
            return 60 / accumulator

    def fragment(stream: DataStream) -> DataStream:
        windows = cut(stream, assigner)
        results: DataStream = windows.aggregate(
            Inverse(), accumulator_type=Types.LONG(), output_type=Types.DOUBLE()
        )
        return results

    with OperatorHarness(fragment, configuration={"pipeline.inline-functions": inlines}) as harness:
        harness.push(("a", 5), ("b", 3), timestamps=[1, 1])
        harness.watermark(9)
        assert set(harness.output) == {12, 20}
        harness.push(("c", 5), ("d", 0), ("e", 5), timestamps=[21] * 3)
        with pytest.raises(FragmentFailedError) as caught:
            harness.watermark(29)
    text = str(caught.value)
    assert "of the key 'd')" in text and "division by zero" in text and "in get_result" in text


def test_rows_reduced_to_none_are_no_content(run: Any) -> None:
    harness = run(lambda s: cut(s).reduce(lambda first, second: None))
    harness.push(("a", 1), ("a", 2), ("b", 1), timestamps=[1, 6, 6])
    harness.watermark(9)
    assert harness.output == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("watermark", [0, 9], ids=["in time", "behind a window"])
def test_errors_of_rows_name_record_window_and_key(run: Any, watermark: int) -> None:
    harness = run(lambda s: cut(s).aggregate(Sum()))
    harness.push(("a", 1), timestamps=[6])
    harness.watermark(watermark)
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", "x"), timestamps=[7])
    end = 15 if watermark else 10
    assert f"('a', 'x') (window TimeWindow(start={end - 10}, end={end}) of the key 'a')" in str(caught.value)


def test_a_row_without_a_timestamp_is_refused_with_its_key(run: Any) -> None:
    harness = run(lambda s: cut(s).reduce(add))
    with pytest.raises(FragmentFailedError, match="got a record without a timestamp"):
        harness.push(("a", 1))


def test_functions_may_have_state_of_their_key(run: Any) -> None:
    harness = run(lambda s: cut(s).reduce(CountedCalls()))
    harness.push(*[(key, 0) for key in "abaab"], timestamps=[1, 1, 2, 6, 6])
    harness.watermark(9)
    # The first window ends at 5: one call for "a". The second one merges two slices.
    assert sorted(harness.output) == [("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_emitted_results_and_slices_are_apart(run: Any) -> None:
    def spoiled(result: list[Any]) -> list[Any]:
        result.append("spoiled")
        return result[:-1]

    harness = run(lambda s: cut(s, SlidingEventTimeWindows(15, 5, 0)).aggregate(Numbers()).map(spoiled))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 6, 11])
    harness.watermark(100)
    assert harness.output == [[1], [1, 2], [1, 2, 3], [2, 3], [3]]


def test_what_a_window_costs_does_not_grow_with_its_slices(run: Any) -> None:
    calls = [0]

    class Counting(Sum):
        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            calls[0] += 1
            return acc_a + acc_b

    merges = {}
    for size in (10, 100):
        calls[0] = 0
        harness = run(
            lambda s, size=size: cut(s, SlidingEventTimeWindows(size, 1, 0)).aggregate(
                Counting(), accumulator_type=Types.LONG()
            )
        )
        for time in range(5 * size):
            harness.push(("a", 1), timestamps=[time])
            harness.watermark(time)
        assert harness.output == [min(time + 1, size) for time in range(5 * size)]
        merges[size] = calls[0] / (5 * size)
        assert len(list(operator_of(harness)._slices)) == size - 1
    assert max(merges.values()) < 3


def test_windows_of_a_whole_stream_are_made_of_slices(run: Any) -> None:
    harness = run(lambda s: s.window_all(SlidingEventTimeWindows.of(Time(10), Time(5))).aggregate(Sum()))
    harness.push(("a", 1), ("b", 2), timestamps=[1, 6])
    harness.watermark(30)
    assert harness.output == [1, 3, 2]


class Windows(ProcessWindowFunction[Any, Any, Any, Any]):
    """Shows each firing with its number for key and window, and notes each clean-up."""

    def __init__(self) -> None:
        self.firings = ValueStateDescriptor[int]("firings", Types.LONG())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        count = context.window_state().get_state(self.firings)
        count.update((count.value() or 0) + 1)
        yield key, context.window().start, count.value(), *elements

    def clear(self, context: Any) -> None:
        window = context.window()
        CLEARED.append((window.start, context.window_state().get_state(self.firings).value()))
        context.window_state().get_state(self.firings).clear()


#: Windows that have been cleaned up: start, and how often they have fired.
CLEARED: list[tuple[int, int]] = []


def test_a_row_inside_the_lateness_fires_each_window_that_has_fired_again(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        main = cut(stream).allowed_lateness(6).side_output_late_data(LATE).aggregate(Sum(), Windows())
        return [main, main.get_side_output(LATE)]

    CLEARED.clear()
    harness = run(fragment)
    harness.push(("a", 1), ("a", 2), timestamps=[2, 7])
    harness.watermark(9)
    assert harness.output == [("a", -5, 1, 1), ("a", 0, 1, 3)]
    # Window [-5, 5) and [0, 10) have fired, window [5, 15) has not.
    harness.push(("a", 4), ("a", 8), timestamps=[2, 7])
    assert sorted(harness.output[2:]) == [("a", -5, 2, 5), ("a", 0, 2, 7), ("a", 0, 3, 15)]
    assert sorted(harness.timestamps()[2:]) == [4, 9, 9]
    # Window [-5, 5) is over at 4 + 6; a key without rows in window [0, 10) begins it.
    harness.watermark(10)
    assert CLEARED == [(-5, 2)]
    harness.push(("a", 16), ("b", 32), timestamps=[2, 2])
    assert harness.output[5:] == [("a", 0, 4, 31), ("b", 0, 1, 32)]
    harness.watermark(14)
    assert harness.output[7:] == [("a", 5, 1, 10)]
    harness.watermark(15)
    assert sorted(CLEARED) == [(-5, 2), (0, 1), (0, 4)]
    harness.push(("a", 64), timestamps=[2])
    assert (harness.outputs(1), harness.timestamps(1)) == ([("a", 64)], [2])
    harness.push(("a", 128), timestamps=[8])
    assert harness.output[8:] == [("a", 5, 2, 138)]
    harness.watermark(20)
    assert (harness.output[9:], CLEARED[3:]) == ([], [(5, 2)])
    assert operator_of(harness).late_dropped == 0
    assert keeps_nothing(operator_of(harness))


def test_cumulative_windows_fire_again_for_a_late_row(run: Any) -> None:
    harness = run(lambda s: cut(s, CUMULATIVE).allowed_lateness(20).aggregate(Sum()))
    harness.push(("a", 1), ("a", 2), timestamps=[0, 6])
    harness.watermark(9)
    assert harness.output == [1, 3]
    harness.push(("a", 4), timestamps=[3])
    assert harness.output[2:] == [5, 7]
    harness.watermark(14)
    assert harness.output[4:] == [7]
    harness.push(("a", 8), timestamps=[7])
    assert harness.output[5:] == [15, 15]
    harness.watermark(34)
    assert keeps_nothing(operator_of(harness))


def test_late_rows_and_slices_are_apart(run: Any) -> None:
    harness = run(
        lambda s: cut(s, SlidingEventTimeWindows(15, 5, 0)).allowed_lateness(50).aggregate(Numbers(), Shown())
    )
    harness.push(("a", 1), ("a", 2), timestamps=[1, 6])
    harness.watermark(9)
    harness.push(("a", 3), ("a", 4), timestamps=[6, 1])
    before = len(harness.output)
    harness.watermark(19)
    assert sorted(harness.output[before:]) == [("a", 0, 15, (1, 2, 3, 4)), ("a", 5, 20, (2, 3))]
    harness.push(("a", 5), timestamps=[6])
    assert sorted(harness.output[-3:]) == [
        ("a", -5, 10, (1, 2, 3, 4, 5)),
        ("a", 0, 15, (1, 2, 3, 4, 5)),
        ("a", 5, 20, (2, 3, 5)),
    ]


def test_errors_of_late_rows_name_record_window_and_key(run: Any) -> None:
    harness = run(lambda s: cut(s).allowed_lateness(50).aggregate(Sum()))
    harness.push(("a", 1), timestamps=[6])
    harness.watermark(30)
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", "x"), timestamps=[7])
    assert "('a', 'x') (window TimeWindow(start=0, end=10) of the key 'a')" in str(caught.value)


@pytest.mark.parametrize("inlines", ["true", "false"])
def test_a_merge_that_fails_in_the_loop_names_window_and_key(inlines: str) -> None:
    def fragment(stream: DataStream) -> DataStream:
        assigner = SlidingEventTimeWindows(15, 5, 0)
        sums: DataStream = cut(stream, assigner).aggregate(Texts(), accumulator_type=Types.STRING())
        return sums

    with OperatorHarness(fragment, configuration={"pipeline.inline-functions": inlines}) as harness:
        numbers = [(1, 1), (2, 6), (99, 11), (3, 16)]
        for number, time in numbers:
            harness.push(("a", 5), ("b", number), ("c", 5), timestamps=[time] * 3)
        harness.watermark(14)
        loop = operator_of(harness)._stacks._loops._stacks
        assert ("merge_" in loop.source) is (inlines == "false")
        with pytest.raises(FragmentFailedError) as caught:
            harness.watermark(24)
    text = str(caught.value)
    assert "of the key 'b')" in text and "string index out of range" in text and "in merge" in text
