"""Windows with an evictor, each rule by its name, through the harness and on both state backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.container.operators.window.test_window_rules import (
    Shown,
    add,
    is_empty,
    keyed,
    millis,
    tumbling,
)
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.functions import AggregateFunction, ProcessAllWindowFunction, WindowFunction
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    PurgingTrigger,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TumblingEventTimeWindows,
)
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

MAX = (1 << 63) - 1
FIRST = TimeWindow(0, 10)


def content(harness: OperatorHarness, window: Any, key: Any = "a") -> Any:
    """The stored rows of a window with their times."""
    operator: Any = harness.tasks[0].chain.operators[0]
    found = operator._contents.values.get(window, key)
    return found if isinstance(found, list) else None


def test_evicted_rows_are_neither_shown_nor_kept(run: Any) -> None:
    harness = run(
        lambda s: (
            tumbling(s)
            .allowed_lateness(5)
            .trigger(CountTrigger.of(3))
            .evictor(CountEvictor.of(2))
            .process(Shown())
        )
    )
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 2, 3])
    assert harness.take() == [("a", (0, 10), [2, 3])]
    assert content(harness, FIRST) == [(("a", 2), 2), (("a", 3), 3)]
    harness.push(("a", 4), ("a", 5), ("a", 6), timestamps=[4, 5, 6])
    assert harness.take() == [("a", (0, 10), [5, 6])]
    harness.watermark(20)
    assert harness.output == []
    assert is_empty(harness)


def test_rows_that_are_evicted_behind_the_function_are_shown_once(run: Any) -> None:
    harness = run(
        lambda s: tumbling(s).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(1, True)).process(Shown())
    )
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    assert content(harness, FIRST) == [(("a", 2), 2)]
    harness.push(("a", 3), ("a", 4), timestamps=[3, 4])
    assert harness.output == [("a", (0, 10), [1, 2]), ("a", (0, 10), [2, 3, 4])]


def test_rows_are_kept_with_their_times_of_which_one_may_be_missing(run: Any) -> None:
    harness = run(
        lambda s: (
            keyed(s)
            .window(GlobalWindows.create())
            .trigger(CountTrigger.of(3))
            .evictor(TimeEvictor.of(5))
            .apply(Numbers())
        )
    )
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 9, 8])
    assert harness.take() == [("a", [2, 3])]
    harness.push(("b", 1), ("b", 2), ("b", 3), timestamps=[None, 1, 9])
    assert harness.take() == [("b", [1, 2, 3])]
    assert content(harness, GlobalWindow.get(), "b") == [
        (("b", 1), MIN_TIMESTAMP), (("b", 2), 1), (("b", 3), 9),
    ]  # fmt: skip


class Numbers(WindowFunction[Any, Any, Any, Any]):
    """Key and numbers of a window."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, [number for _, number in inputs])]


class Total(AggregateFunction[Any, Any, Any]):
    """The sum of the numbers, without a merge."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        return "total", sum(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise AssertionError("rows merge, accumulators do not exist")


def test_reduce_and_aggregate_run_over_what_is_left(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        last_two = tumbling(stream).evictor(CountEvictor.of(2))
        return [
            last_two.reduce(add), last_two.aggregate(Total()), last_two.reduce(add, Numbers()),
            last_two.aggregate(Total(), Numbers()),
        ]  # fmt: skip

    harness = run(fragment)
    harness.push(("a", 1), ("a", 20), ("a", 300), timestamps=[1, 2, 3])
    harness.watermark(9)
    assert [harness.outputs(number) for number in range(4)] == [
        [("a", 320)], [("total", 320)], [("a", [320])], [("a", [320])],
    ]  # fmt: skip
    assert [harness.timestamps(number) for number in range(4)] == [[9]] * 4


def test_a_function_runs_without_rows_if_all_were_evicted_and_then_no_more(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        none = (
            tumbling(stream)
            .allowed_lateness(5)
            .trigger(ContinuousEventTimeTrigger.of(millis(5)))
            .evictor(CountEvictor.of(0))
        )
        return [
            none.process(Shown()), none.reduce(add), none.reduce(add, Numbers()), none.aggregate(Total()),
        ]  # fmt: skip

    harness = run(fragment)
    harness.push(("a", 1), timestamps=[1])
    harness.watermark(5)
    # Without rows reduce has no result, as it has no first row. An aggregate is that of nothing.
    expected = [[("a", (0, 10), [])], [], [("a", [])], [("total", 0)]]
    assert [harness.outputs(number) for number in range(4)] == expected
    harness.watermark(9)
    assert [harness.outputs(number) for number in range(4)] == expected
    harness.watermark(20)
    assert is_empty(harness)


def test_a_late_row_fires_what_the_evictor_has_left(run: Any) -> None:
    harness = run(lambda s: tumbling(s).allowed_lateness(5).evictor(CountEvictor.of(2)).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 2, 3])
    harness.watermark(9)
    harness.push(("a", 4), timestamps=[0])
    assert harness.output == [("a", (0, 10), [2, 3]), ("a", (0, 10), [3, 4])]
    harness.watermark(14)
    assert is_empty(harness)


def test_merged_sessions_have_the_rows_that_evictors_have_left(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(
        lambda s: (
            keyed(s).window(sessions).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(1)).process(Shown())
        )
    )
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[0, 1, 9])
    assert harness.take() == [("a", (0, 6), [2])]
    # The row at 5 joins both sessions, of which the first has lost a row.
    harness.push(("a", 4), timestamps=[5])
    assert content(harness, TimeWindow(0, 5)) == [(("a", 4), 5)]
    assert harness.take() == [("a", (0, 14), [4])]
    harness.watermark(20)
    assert is_empty(harness)


def test_purge_comes_behind_the_evictor(run: Any) -> None:
    purging = PurgingTrigger.of(CountTrigger.of(2))
    harness = run(lambda s: tumbling(s).trigger(purging).evictor(CountEvictor.of(1, True)).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 2, 3])
    assert harness.output == [("a", (0, 10), [1, 2])]
    assert content(harness, FIRST) == [(("a", 3), 3)]


def test_delta_trigger_and_delta_evictor_on_global_windows(run: Any) -> None:
    def far(old: Any, new: Any) -> float:
        return abs(float(new[1] - old[1]))

    harness = run(
        lambda s: (
            keyed(s)
            .window(GlobalWindows.create())
            .trigger(DeltaTrigger.of(10, far))
            .evictor(DeltaEvictor.of(5, far))
        ).apply(Numbers())
    )
    harness.push(("a", 1), ("b", 1), ("a", 9), ("a", 12), ("a", 15), ("b", 11), ("a", 30))
    assert harness.output == [("a", [9, 12]), ("a", [30])]
    assert content(harness, GlobalWindow.get(), "b") == [
        (("b", 1), MIN_TIMESTAMP),
        (("b", 11), MIN_TIMESTAMP),
    ]


def test_windows_of_a_whole_stream_take_an_evictor(run: Any) -> None:
    class All(ProcessAllWindowFunction[Any, Any, Any]):
        def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            yield context.window().start, list(elements)

    def fragment(stream: DataStream) -> DataStream:
        windows = stream.window_all(TumblingEventTimeWindows.of(millis(10)))
        return windows.evictor(CountEvictor.of(1)).process(All())

    harness = run(fragment)
    harness.push(("a", 1), ("b", 2), ("c", 3), timestamps=[0, 9, 10])
    harness.watermark(19)
    assert harness.output == [(0, [("b", 2)]), (10, [("c", 3)])]


@pytest.mark.parametrize("after", [False, True])
def test_global_windows_fire_at_the_end_of_the_stream_and_leave_nothing(run: Any, after: bool) -> None:
    windows = GlobalWindows.create_with_end_of_stream_trigger()
    harness = run(lambda s: keyed(s).window(windows).evictor(CountEvictor.of(2, after)).apply(Numbers()))
    harness.push(("a", 1), ("b", 2), ("a", 3), ("a", 4), timestamps=[5, None, 1, 7])
    harness.watermark(MAX - 1)
    assert harness.output == []
    harness.watermark(MAX)
    assert sorted(harness.output) == [("a", [1, 3, 4] if after else [3, 4]), ("b", [2])]
    assert is_empty(harness)


class Asks(Evictor[Any, Any]):
    """Tells what it was given."""

    def evict_before(self, elements: list[TimestampedValue[Any]], size: int, window: Any, ctx: Any) -> None:
        shown = [(each.value, each.timestamp) for each in elements]
        print("before", shown, size, window, ctx.get_current_processing_time(), ctx.get_current_watermark())
        ctx.get_metric_group().counter("evicted").inc()
        del elements[0]

    def evict_after(self, elements: list[TimestampedValue[Any]], size: int, window: Any, ctx: Any) -> None:
        print("after", [each.value for each in elements], size)


def test_an_evictor_of_ones_own_asks_for_clocks_and_metrics(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = run(lambda s: tumbling(s).evictor(Asks()).process(Shown()))
    harness.advance(7)
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    harness.watermark(9)
    assert capsys.readouterr().out.splitlines() == [
        "before [(('a', 1), 1), (('a', 2), 2)] 2 TimeWindow(start=0, end=10) 7000 9",
        "after [('a', 2)] 1",
    ]
    assert harness.output == [("a", (0, 10), [2])]
    assert [value for name, value in harness.metrics().items() if name.endswith("evicted")] == [1]


class Adds(Evictor[Any, Any]):
    """Does what an evictor must not do."""

    def __init__(self, what: str) -> None:
        self.what = what

    def evict_before(self, elements: list[TimestampedValue[Any]], size: int, window: Any, ctx: Any) -> None:
        if self.what == "add":
            elements.append(TimestampedValue(("a", 5), 5))
        elif self.what == "replace":
            elements[0] = TimestampedValue(("a", 5), 5)
        elif self.what == "move":
            elements.reverse()
        else:
            raise ValueError("an evictor's own error")

    def evict_after(self, elements: list[TimestampedValue[Any]], size: int, window: Any, ctx: Any) -> None:
        pass


@pytest.mark.parametrize("what", ["add", "replace", "move"])
def test_an_evictor_only_removes(run: Any, what: str) -> None:
    harness = run(lambda s: tumbling(s).evictor(Adds(what)).process(Shown()))
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    with pytest.raises(FragmentFailedError, match="the evictor Adds has added, replaced or moved elements"):
        harness.watermark(9)


def test_an_error_of_an_evictor_names_operator_window_and_key(run: Any) -> None:
    harness = run(lambda s: tumbling(s).evictor(Adds("raise")).process(Shown()))
    harness.push(("a", 1), timestamps=[1])
    message = (
        r"(?s)an evictor's own error.*'TumblingEventTimeWindows'.*timer at 9 \(window Time.*of the key 'a'\)"
    )
    with pytest.raises(FragmentFailedError, match=message):
        harness.watermark(9)


def grow(first: Any, second: Any) -> Any:
    first.append(second[1])
    return first


class Grow(AggregateFunction[Any, Any, Any]):
    """The first row is the accumulator."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value if accumulator is None else grow(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise AssertionError("nothing merges")


@pytest.mark.parametrize(
    "fold", [lambda w: w.reduce(grow), lambda w: w.aggregate(Grow())], ids=["reduce", "aggregate"]
)
def test_a_function_that_changes_its_rows_does_not_change_the_window(run: Any, fold: Any) -> None:
    def fragment(stream: DataStream) -> Any:
        lists = stream.map(lambda row: [row[0], row[1]])
        windows = tumbling(lists).trigger(CountTrigger.of(1)).evictor(CountEvictor.of(3))
        return fold(windows)

    harness = run(fragment)
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 2, 3])
    assert harness.output == [["a", 1], ["a", 1, 2], ["a", 1, 2, 3]]


def test_rows_of_a_declared_type_are_kept_with_their_times(run: Any) -> None:
    row = Types.TUPLE([Types.STRING(), Types.LONG()])
    harness = run(
        lambda s: tumbling(s).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(2)).reduce(add), types=[row]
    )
    harness.push(("a", 1), ("a", 2), ("a", 4), ("a", 8), timestamps=[1, 2, 3, 4])
    assert harness.output == [("a", 3), ("a", 12)]
