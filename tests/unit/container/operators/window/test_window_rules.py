"""Each rule of windows by its name, through the harness and on both state backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.compat.metrics import names
from tests.support.kept_windows import keeps_nothing
from yarrow.common.serializer import TypeSerializer
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    CountWindow,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
MAX = (1 << 63) - 1


def millis(number: int) -> Time:
    return Time.milliseconds(number)


def keyed(stream: DataStream) -> Any:
    return stream.key_by(lambda row: row[0])


def tumbling(stream: DataStream, size: int = 10) -> Any:
    return keyed(stream).window(TumblingEventTimeWindows.of(millis(size)))


class Shown(ProcessWindowFunction[Any, Any, Any, Any]):
    """Shows each firing: key, bounds of the window, numbers."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        yield key, (window.start, window.end), [number for _, number in elements]


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


def is_empty(harness: OperatorHarness) -> bool:
    """Whether no window, no timer and no state of one is left."""
    operator: Any = harness.tasks[0].chain.operators[0]
    return keeps_nothing(operator)


def test_a_window_has_its_start_and_not_its_end(run: Any) -> None:
    harness = run(lambda s: tumbling(s).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[0, 9, 10])
    harness.watermark(30)
    assert harness.output == [("a", (0, 10), [1, 2]), ("a", (10, 20), [3])]
    assert is_empty(harness)


def test_results_bear_the_last_time_of_their_window(run: Any) -> None:
    harness = run(lambda s: tumbling(s).reduce(add))
    harness.push(("a", 1), ("a", 2), ("b", 5), timestamps=[1, 3, 12])
    harness.watermark(8)
    assert harness.output == []
    harness.watermark(9)
    assert harness.output == [("a", 3)]
    harness.watermark(19)
    assert harness.output == [("a", 3), ("b", 5)]
    assert harness.timestamps() == [9, 19]


def test_windows_of_processing_time_stamp_their_results_too(run: Any) -> None:
    harness = run(lambda s: keyed(s).window(TumblingProcessingTimeWindows.of(millis(1000))).reduce(add))
    harness.push(("a", 1), ("a", 2))
    harness.advance(0.998)
    assert harness.output == []
    harness.advance(0.001)
    assert (harness.output, harness.timestamps()) == ([("a", 3)], [999])
    assert is_empty(harness)


def test_a_side_output_of_a_window_function_bears_the_last_time_of_the_window(run: Any) -> None:
    class Aside(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            yield OutputTag("aside", Types.STRING()), key
            yield len(list(elements))

    def fragment(stream: DataStream) -> list[DataStream]:
        main = tumbling(stream).process(Aside())
        return [main, main.get_side_output(OutputTag("aside", Types.STRING()))]

    harness = run(fragment)
    harness.push(("a", 1), ("a", 2), timestamps=[4, 1])
    harness.watermark(9)
    assert (harness.output, harness.timestamps()) == ([2], [9])
    assert (harness.outputs(1), harness.timestamps(1)) == (["a"], [9])


def test_a_row_is_late_when_the_watermark_has_reached_the_last_time_of_its_window(run: Any) -> None:
    harness = run(lambda s: tumbling(s).process(Shown()))
    harness.watermark(8)
    harness.push(("a", 1), timestamps=[0])
    harness.watermark(9)
    harness.push(("a", 2), timestamps=[9])
    harness.watermark(30)
    assert harness.output == [("a", (0, 10), [1])]
    assert late_dropped(harness) == 1


def late_dropped(harness: OperatorHarness) -> float:
    (metric,) = names.names(names.WINDOWS)
    (value,) = [v for name, v in harness.metrics().items() if name.endswith(f".{metric}")]
    return value


def test_a_late_row_goes_to_the_side_output_with_its_own_time_and_is_not_counted(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        main = tumbling(stream).side_output_late_data(LATE).process(Shown())
        return [main, main.get_side_output(LATE)]

    harness = run(fragment)
    harness.watermark(25)
    harness.push(("a", 1), ("a", 2), timestamps=[3, 26])
    harness.watermark(40)
    assert harness.output == [("a", (20, 30), [2])]
    assert (harness.outputs(1), harness.timestamps(1)) == ([("a", 1)], [3])
    assert late_dropped(harness) == 0


def test_a_late_row_inside_the_lateness_fires_the_window_again(run: Any) -> None:
    harness = run(lambda s: tumbling(s).allowed_lateness(5).process(Shown()))
    harness.push(("a", 1), timestamps=[3])
    harness.watermark(13)
    harness.push(("a", 2), timestamps=[4])
    assert harness.output == [("a", (0, 10), [1]), ("a", (0, 10), [1, 2])]
    assert harness.timestamps() == [9, 9]
    harness.watermark(14)
    assert is_empty(harness)
    harness.push(("a", 3), timestamps=[5])
    assert len(harness.output) == 2
    assert late_dropped(harness) == 1


def test_a_row_that_opens_a_window_inside_the_lateness_is_taken(run: Any) -> None:
    harness = run(lambda s: tumbling(s).allowed_lateness(5).process(Shown()))
    harness.watermark(13)
    harness.push(("a", 1), timestamps=[4])
    assert harness.output == [("a", (0, 10), [1])]
    harness.watermark(14)
    assert is_empty(harness)


def test_a_row_of_sliding_windows_is_late_only_if_all_its_windows_are(run: Any) -> None:
    sliding = SlidingEventTimeWindows.of(millis(10), millis(5))
    harness = run(lambda s: keyed(s).window(sliding).process(Shown()))
    harness.watermark(9)
    harness.push(("a", 1), timestamps=[7])
    harness.watermark(40)
    assert harness.output == [("a", (5, 15), [1])]
    assert late_dropped(harness) == 0


def test_a_row_that_no_window_contains_is_counted(run: Any) -> None:
    sliding = SlidingEventTimeWindows.of(millis(2), millis(10))
    harness = run(lambda s: keyed(s).window(sliding).process(Shown()))
    harness.push(("a", 1), ("a", 2), timestamps=[1, 5])
    harness.watermark(40)
    assert harness.output == [("a", (0, 2), [1])]
    assert late_dropped(harness) == 1


def test_windows_of_processing_time_know_no_lateness(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    windows = TumblingProcessingTimeWindows.of(millis(1000))
    harness = run(lambda s: keyed(s).window(windows).allowed_lateness(60_000).reduce(add))
    assert "allowed_lateness(60000) has no effect" in caplog.text
    harness.watermark(1 << 40)
    harness.push(("a", 1), timestamps=[5])
    harness.advance(1)
    assert harness.output == [("a", 1)]
    assert late_dropped(harness) == 0
    assert is_empty(harness)


def test_a_set_trigger_replaces_the_default_one(run: Any) -> None:
    harness = run(lambda s: tumbling(s).trigger(CountTrigger.of(2)).process(Shown()))
    harness.push(("a", 1), timestamps=[1])
    harness.push(("a", 2), ("a", 3), timestamps=[2, 3])
    harness.watermark(9)
    # FIRE keeps the content; the end of the window fires nothing and removes all.
    assert harness.output == [("a", (0, 10), [1, 2])]
    assert is_empty(harness)


def test_fire_keeps_the_content_and_purge_removes_it(run: Any) -> None:
    keeps = run(lambda s: tumbling(s).trigger(CountTrigger.of(2)).process(Shown()))
    keeps.push(*[("a", number) for number in range(4)], timestamps=[1, 2, 3, 4])
    assert keeps.output == [("a", (0, 10), [0, 1]), ("a", (0, 10), [0, 1, 2, 3])]
    purges = run(lambda s: tumbling(s).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(Shown()))
    purges.push(*[("a", number) for number in range(4)], timestamps=[1, 2, 3, 4])
    assert purges.output == [("a", (0, 10), [0, 1]), ("a", (0, 10), [2, 3])]
    purges.watermark(9)
    assert is_empty(purges)


class PurgesSecond(Trigger[Any, Any]):
    """Counts the rows of a window in its state, purges at the second, and fires at the third."""

    def __init__(self) -> None:
        self.count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        return {2: TriggerResult.PURGE, 3: TriggerResult.FIRE}.get(count.get(), TriggerResult.CONTINUE)

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.count).clear()


def test_purge_leaves_the_state_of_the_trigger(run: Any) -> None:
    harness = run(lambda s: tumbling(s).trigger(PurgesSecond()).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[1, 2, 3])
    assert harness.output == [("a", (0, 10), [3])]
    harness.watermark(9)
    assert is_empty(harness)


def test_purge_leaves_merging_windows(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    trigger = PurgingTrigger.of(CountTrigger.of(2))
    harness = run(lambda s: keyed(s).window(sessions).trigger(trigger).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), ("a", 4), timestamps=[0, 4, 8, 9])
    # The third row prolongs the session that was purged.
    assert harness.output == [("a", (0, 9), [1, 2]), ("a", (0, 14), [3, 4])]
    harness.watermark(13)
    assert is_empty(harness)


class Cleared(ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits the number of firings of its window, which is the window's own state; counts calls of `clear`."""

    calls: list[tuple[str, int]] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.fired = ValueStateDescriptor[int]("fired", Types.LONG())
        self.total = ValueStateDescriptor[int]("total", Types.LONG())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        fired = context.window_state().get_state(self.fired)
        total = context.global_state().get_state(self.total)
        fired.update((fired.value() or 0) + 1)
        total.update((total.value() or 0) + 1)
        yield key, context.window().start, fired.value(), total.value()

    def clear(self, context: Any) -> None:
        Cleared.calls.append(("clear", context.window().start))


@pytest.mark.differs("ProcessWindowFunction.clear", told="also what `clear` of a trigger or function forgot")
def test_state_of_a_window_ends_with_it_and_state_of_the_key_does_not(run: Any) -> None:
    Cleared.calls.clear()
    harness = run(lambda s: tumbling(s).allowed_lateness(20).process(Cleared()))
    harness.push(("a", 1), timestamps=[3])
    harness.watermark(10)
    harness.push(("a", 2), ("a", 3), timestamps=[4, 12])
    harness.watermark(28)
    assert harness.output == [("a", 0, 1, 1), ("a", 0, 2, 2), ("a", 10, 1, 3)]
    assert Cleared.calls == []
    harness.watermark(29)
    assert Cleared.calls == [("clear", 0)]
    harness.watermark(60)
    assert Cleared.calls == [("clear", 0), ("clear", 10)]
    assert is_empty(harness)


class Logged(EventTimeTrigger):
    """Notes what the operator calls, in order."""

    calls: list[str] = []  # noqa: RUF012

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        Logged.calls.append(f"time {time}")
        return super().on_event_time(time, window, ctx)

    def on_merge(self, window: Any, ctx: Any) -> None:
        Logged.calls.append(f"merge {window.start}-{window.end}")
        super().on_merge(window, ctx)

    def clear(self, window: Any, ctx: Any) -> None:
        Logged.calls.append(f"clear {window.start}-{window.end}")
        super().clear(window, ctx)


def test_at_one_time_the_trigger_comes_before_the_clean_up(run: Any) -> None:
    Logged.calls.clear()
    harness = run(lambda s: tumbling(s).trigger(Logged()).process(Shown()))
    harness.push(("a", 1), timestamps=[3])
    harness.watermark(50)
    assert harness.output == [("a", (0, 10), [1])]
    assert Logged.calls == ["time 9", "clear 0-10"]


def test_on_merge_comes_before_the_merged_windows_are_cleared(run: Any) -> None:
    Logged.calls.clear()
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).trigger(Logged()).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[0, 10, 5])
    assert Logged.calls == ["merge 0-15", "clear 0-5", "clear 10-15"]
    harness.watermark(14)
    assert harness.output == [("a", (0, 15), [1, 2, 3])]
    assert is_empty(harness)


def test_windows_that_touch_merge(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[0, 5, 11])
    harness.watermark(100)
    assert harness.output == [("a", (0, 10), [1, 2]), ("a", (11, 16), [3])]
    assert is_empty(harness)


def test_a_late_row_that_touches_a_live_session_belongs_to_it(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).process(Shown()))
    harness.push(("a", 1), timestamps=[10])
    harness.watermark(12)
    harness.push(("a", 2), ("b", 3), timestamps=[5, 5])
    harness.watermark(30)
    assert harness.output == [("a", (5, 15), [1, 2])]
    assert late_dropped(harness) == 1
    assert is_empty(harness)


@pytest.mark.parametrize("number", [1, 3])
def test_merged_sessions_reduce_and_aggregate(run: Any, number: int) -> None:
    class Average(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return 0, 0

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator[0] + value[1], accumulator[1] + 1

        def get_result(self, accumulator: Any) -> Any:
            return accumulator[0] / accumulator[1]

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = keyed(stream).window(EventTimeSessionWindows.with_gap(millis(5)))
        return [windows.reduce(add), windows.aggregate(Average())]

    harness = run(fragment)
    harness.push(("a", 1), ("a", 3), ("a", 8 * number), timestamps=[0, 8, 4])
    harness.watermark(100)
    assert harness.outputs(0) == [("a", 4 + 8 * number)]
    assert harness.outputs(1) == [(4 + 8 * number) / 3]


def test_a_gap_of_each_row_is_asked(run: Any) -> None:
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element: Any) -> int:
            return element[1]  # type: ignore[no-any-return]

    harness = run(
        lambda s: keyed(s).window(DynamicEventTimeSessionWindows.with_dynamic_gap(Gap())).process(Shown())
    )
    harness.push(("a", 2), ("a", 20), ("a", 3), timestamps=[0, 4, 30])
    harness.watermark(100)
    assert harness.output == [("a", (0, 2), [2]), ("a", (4, 24), [20]), ("a", (30, 33), [3])]
    harness.push(("a", 1), timestamps=[200])
    with pytest.raises(FragmentFailedError, match=r"(?s)Gap gave a gap of 0 ms.*\(of the key "):
        harness.push(("a", 0), timestamps=[201])


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (None, "gave None for .*: a gap is a whole number of milliseconds"),
        (2.5, "gave 2.5 for .*: a gap is a whole number of milliseconds"),
        (2**63, "the session would end beyond 64 bits"),
    ],
)
def test_a_gap_is_a_whole_number(run: Any, gap: Any, message: str) -> None:
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element: Any) -> int:
            return gap  # type: ignore[no-any-return]

    harness = run(
        lambda s: (
            keyed(s).window(DynamicProcessingTimeSessionWindows.with_dynamic_gap(Gap())).process(Shown())
        )
    )
    with pytest.raises(FragmentFailedError, match=f"Gap {message}" if gap != 2**63 else message):
        harness.push(("a", 0))


def test_sessions_of_processing_time(run: Any) -> None:
    sessions = ProcessingTimeSessionWindows.with_gap(millis(1000))
    harness = run(lambda s: keyed(s).window(sessions).reduce(add))
    harness.push(("a", 1))
    harness.advance(0.6)
    harness.push(("a", 2))
    harness.advance(0.6)
    assert harness.output == []
    harness.advance(0.4)
    assert (harness.output, harness.timestamps()) == ([("a", 3)], [1599])
    assert is_empty(harness)


def test_state_of_a_window_is_refused_where_windows_merge(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).process(Cleared()))
    harness.push(("a", 1), timestamps=[0])
    with pytest.raises(FragmentFailedError, match="windows that merge have no state of their own"):
        harness.watermark(100)


def test_global_windows_never_fire_by_themselves(run: Any) -> None:
    never = run(lambda s: keyed(s).window(GlobalWindows.create()).reduce(add))
    never.push(("a", 1), ("a", 2), timestamps=[1, 2])
    never.watermark(MAX)
    assert never.output == []
    counted = run(lambda s: keyed(s).window(GlobalWindows.create()).trigger(CountTrigger.of(2)).reduce(add))
    counted.push(("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5))
    assert (counted.output, counted.timestamps()) == ([("a", 3), ("a", 10)], [MAX, MAX])


def test_count_windows_hold_full_windows_only(run: Any) -> None:
    class Ids(WindowFunction[Any, Any, Any, CountWindow]):
        def apply(self, key: Any, window: CountWindow, inputs: Iterable[Any]) -> Iterable[Any]:
            return [(key, window.id, [number for _, number in inputs])]

    tumble = run(lambda s: keyed(s).count_window(2).apply(Ids()))
    tumble.push(*[("a", number) for number in range(5)], ("b", 7))
    assert tumble.output == [("a", 0, [0, 1]), ("a", 1, [2, 3])]
    slide = run(lambda s: keyed(s).count_window(3, 1).apply(Ids()))
    slide.push(*[("a", number) for number in range(5)])
    assert slide.output == [("a", 0, [0, 1, 2]), ("a", 1, [1, 2, 3]), ("a", 2, [2, 3, 4])]


def test_full_count_windows_leave_nothing(run: Any) -> None:
    class OwnTrigger(PurgingTrigger[Any, Any]):
        """Means what the default trigger means, and takes the general way."""

    windows = OwnTrigger(CountTrigger.of(2))
    harness = run(lambda s: keyed(s).count_window(2).trigger(windows).reduce(add))
    harness.push(*[(number % 7, number) for number in range(14 * 300)])
    assert len(harness.output) == 2100
    operator: Any = harness.tasks[0].chain.operators[0]
    operator._drop_empty()
    assert operator._contents.values.tables.windows() == []


def test_a_continuous_trigger_fires_at_its_interval_and_at_the_end(run: Any) -> None:
    trigger = ContinuousEventTimeTrigger.of(millis(4))
    harness = run(lambda s: tumbling(s).trigger(trigger).process(Shown()))
    harness.push(("a", 1), timestamps=[1])
    harness.watermark(4)
    harness.push(("a", 2), timestamps=[6])
    harness.watermark(8)
    harness.watermark(20)
    assert harness.output == [("a", (0, 10), [1]), ("a", (0, 10), [1, 2]), ("a", (0, 10), [1, 2])]
    assert is_empty(harness)


def test_incremental_functions_give_their_window_function_one_element(run: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        return [tumbling(stream).reduce(add, Shown()), tumbling(stream).aggregate(Largest(), Result())]

    class Result(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
            return [(key, list(inputs))]

    class Largest(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return [0]

        def add(self, value: Any, accumulator: Any) -> Any:
            accumulator[0] = max(accumulator[0], value[1])
            return accumulator

        def get_result(self, accumulator: Any) -> Any:
            return accumulator[0]

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            raise AssertionError("these windows do not merge")

    harness = run(fragment)
    harness.push(("a", 3), ("a", 9), ("a", 4), timestamps=[1, 2, 3])
    harness.watermark(9)
    assert harness.outputs(0) == [("a", (0, 10), [16])]
    assert harness.outputs(1) == [("a", [9])]


def test_windows_of_a_whole_stream(run: Any) -> None:
    class Sizes(AllWindowFunction[Any, Any, TimeWindow]):
        def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
            return [(window.start, sorted(inputs))]

    class Starts(ProcessAllWindowFunction[Any, Any, TimeWindow]):
        def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            yield context.window().start, len(list(elements))

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.window_all(TumblingEventTimeWindows.of(millis(10)))
        return [windows.apply(Sizes()), windows.process(Starts()), stream.count_window_all(2).reduce(min)]

    harness = run(fragment)
    harness.push(("b", 1), ("a", 2), ("c", 3), timestamps=[1, 2, 12])
    harness.watermark(100)
    assert harness.outputs(0) == [(0, [("a", 2), ("b", 1)]), (10, [("c", 3)])]
    assert harness.outputs(1) == [(0, 2), (10, 1)]
    assert harness.outputs(2) == [("a", 2)]
    windows = [operator for vertex in harness.graph.vertices for operator in vertex.operators]
    vertices = [vertex for vertex in harness.graph.vertices if "Windows" in vertex.operators[0].name]
    assert windows and [(v.parallelism, v.max_parallelism) for v in vertices] == [(1, 1)] * len(vertices)


def test_a_changed_element_does_not_change_the_window(run: Any) -> None:
    class Changes(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            yield [list(row) for row in elements]

    harness = run(
        lambda s: (
            s.map(lambda row: [row[0], row[1]])
            .key_by(lambda row: row[0])
            .window(TumblingEventTimeWindows.of(millis(10)))
            .trigger(CountTrigger.of(1))
            .process(Changes())
            .map(lambda rows: [row.append("changed") or row for row in rows])
        )
    )
    harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
    assert harness.output == [[["a", 1, "changed"]], [["a", 1, "changed"], ["a", 2, "changed"]]]


class ByLetter(WindowAssigner[Any, Any]):
    """Windows of a user's type: one for each letter, stored by a serializer of the user's."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [Letter(element[2])] if element[2] != "?" else ["no window"]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return CountTrigger.of(2)

    def get_window_serializer(self) -> Any:
        return LetterSerializer()

    def is_event_time(self) -> bool:
        return False


class Letter(Window):
    def __init__(self, letter: str) -> None:
        self.letter = letter

    def max_timestamp(self) -> int:
        return ord(self.letter)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Letter) and other.letter == self.letter

    def __hash__(self) -> int:
        return hash(self.letter)


class LetterSerializer(TypeSerializer[Letter]):
    def serialize(self, element: Letter, stream: Any) -> None:
        stream.write(element.letter.encode())

    def deserialize(self, stream: Any) -> Letter:
        return Letter(stream.read(1).decode())


def test_an_assigner_may_have_windows_of_its_own_type(run: Any) -> None:
    class Letters(WindowFunction[Any, Any, Any, Letter]):
        def apply(self, key: Any, window: Letter, inputs: Iterable[Any]) -> Iterable[Any]:
            return [(key, window.letter, [row[1] for row in inputs])]

    harness = run(lambda s: keyed(s).window(ByLetter()).apply(Letters()))
    harness.push(("a", 1, "x"), ("a", 2, "y"), ("a", 3, "x"))
    assert (harness.output, harness.timestamps()) == ([("a", "x", [1, 3])], [ord("x")])
    with pytest.raises(FragmentFailedError, match=r"ByLetter gave 'no window' of type str"):
        harness.push(("a", 1, "?"))


class ByRow(TumblingEventTimeWindows):
    """A window of the numbers that a row bears."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        return [TimeWindow(*element[1])]


def test_a_window_whose_end_is_no_int_is_refused_also_where_it_equals_another(run: Any) -> None:
    harness = run(lambda s: keyed(s).window(ByRow(10, 0)).trigger(CountTrigger.of(2)).process(Shown()))
    harness.push(("a", (0, 10)))
    with pytest.raises(FragmentFailedError, match=r"a timer was registered for 9\.0"):
        harness.push(("b", (0.0, 10.0)))


class Odd(EventTimeTrigger):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        if element[1] == 0:
            raise KeyError("nothing here")
        return None


def test_an_error_names_operator_record_window_and_key(run: Any) -> None:
    harness = run(lambda s: tumbling(s).trigger(Odd()).process(Shown()))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", 0), timestamps=[3])
    cause = caught.value.cause
    assert cause.operator_name == "TumblingEventTimeWindows"
    assert "('a', 0)" in cause.record and "TimeWindow(start=0, end=10)" in cause.record
    assert "the key 'a'" in cause.record


class ByPlainRow(TumblingEventTimeWindows):
    """A window of an assigner that no fast operator runs."""


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows, ByPlainRow])
def test_an_error_of_windows_of_a_whole_stream_names_no_key(run: Any, assigner: Any) -> None:
    def failing(first: Any, second: Any) -> Any:
        raise ValueError("no")

    harness = run(lambda s: s.window_all(assigner(10, 0)).reduce(failing))
    harness.push(1, timestamps=[3])
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(2, timestamps=[4])
    assert caught.value.cause.record == "2 (window TimeWindow(start=0, end=10))"


def test_an_error_of_a_count_window_of_a_whole_stream_names_no_key(run: Any) -> None:
    def failing(first: Any, second: Any) -> Any:
        raise ValueError("no")

    harness = run(lambda s: s.count_window_all(2).reduce(failing))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(1, 2)
    assert caught.value.cause.record == "2 (a window of 2 records)"


@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows.of(millis(10)), SlidingEventTimeWindows.of(millis(10), millis(5))],
    ids=["tumbling", "sliding"],
)
def test_a_window_beyond_64_bits_is_refused_with_its_key(run: Any, assigner: Any) -> None:
    harness = run(lambda s: keyed(s).window(assigner).reduce(add))
    harness.push(("a", 1), timestamps=[5])
    with pytest.raises(FragmentFailedError, match="has the position") as caught:
        harness.push(("b", 2), timestamps=[MAX - 2])
    assert "('b', 2) (window TimeWindow(start=92" in caught.value.cause.record
    assert caught.value.cause.record.endswith("of the key 'b')")


def test_an_assigner_that_gives_nothing_is_named(run: Any) -> None:
    class Forgets(TumblingEventTimeWindows):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
            return None

    harness = run(lambda s: keyed(s).window(Forgets(10, 0)).reduce(add))
    with pytest.raises(
        FragmentFailedError, match="Forgets gave None: assign_windows must return the windows"
    ):
        harness.push(("a", 1), timestamps=[3])


def test_a_trigger_that_answers_nothing_is_named(run: Any) -> None:
    harness = run(lambda s: tumbling(s).trigger(Odd()).process(Shown()))
    with pytest.raises(FragmentFailedError, match="the trigger Odd answered None: return a TriggerResult"):
        harness.push(("a", 1), timestamps=[3])


def test_a_row_without_timestamp_is_refused_by_name(run: Any) -> None:
    harness = run(lambda s: tumbling(s).process(Shown()))
    with pytest.raises(FragmentFailedError, match="assign_timestamps_and_watermarks"):
        harness.push(("a", 1))


class Collected(Trigger[Any, Any]):
    """Keeps a list of the numbers of a window, and fires when the windows that merged have three together."""

    def __init__(self) -> None:
        self.numbers = ListStateDescriptor[int]("numbers", Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        state = ctx.get_partitioned_state(self.numbers)
        state.add(element[1])
        return TriggerResult.FIRE if len(list(state.get())) == 3 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.numbers)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.numbers).clear()


def test_the_state_of_a_trigger_merges(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).trigger(Collected()).process(Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 3), timestamps=[0, 8, 4])
    assert harness.output == [("a", (0, 13), [1, 2, 3])]
    harness.watermark(12)
    assert is_empty(harness)


class Totalled(Collected):
    """Keeps an aggregate whose `merge` has forgotten to return the accumulator."""

    class Lost(AggregateFunction[int, list[int], int]):
        def create_accumulator(self) -> list[int]:
            return []

        def add(self, value: int, accumulator: list[int]) -> list[int]:
            return [*accumulator, value]

        def get_result(self, accumulator: list[int]) -> int:
            return sum(accumulator)

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            acc_a.extend(acc_b)

    def __init__(self) -> None:
        self.numbers: Any = AggregatingStateDescriptor("numbers", self.Lost(), Types.PICKLED_BYTE_ARRAY())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.get_partitioned_state(self.numbers).add(element[1])
        return TriggerResult.CONTINUE


def test_a_merge_of_a_triggers_state_that_returns_nothing_fails(run: Any) -> None:
    sessions = EventTimeSessionWindows.with_gap(millis(5))
    harness = run(lambda s: keyed(s).window(sessions).trigger(Totalled()).process(Shown()))
    harness.push(("a", 1), ("a", 2), timestamps=[0, 8])
    with pytest.raises(FragmentFailedError, match="merge of Lost returned None"):
        harness.push(("a", 3), timestamps=[4])


class Shrinking(EventTimeSessionWindows):
    """Merges windows into one that ended long ago."""

    def merge_windows(self, windows: Any, callback: Any) -> None:
        found = list(windows)
        if len(found) > 1:
            callback.merge(found, TimeWindow(0, 1))


def test_a_merged_window_must_not_end_before_the_watermark(run: Any) -> None:
    harness = run(lambda s: keyed(s).window(Shrinking(5)).process(Shown()))
    harness.watermark(10)
    harness.push(("a", 1), timestamps=[20])
    with pytest.raises(FragmentFailedError, match="a merged window must not end before its parts"):
        harness.push(("a", 2), timestamps=[21])


def test_a_trigger_that_cannot_merge_is_refused_when_the_program_is_built() -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([("a", 1)])
    windows = keyed(stream).window(EventTimeSessionWindows.with_gap(millis(5)))
    with pytest.raises(InvalidProgramError, match=r"trigger\(PurgesSecond\).*merge, and this trigger cannot"):
        windows.trigger(PurgesSecond())


class Pages(ProcessAllWindowFunction[Any, Any, Any]):
    """Numbers the firings of a window, and says what `clear` finds at its end."""

    FIRED: ValueStateDescriptor[int] = ValueStateDescriptor("fired", Types.LONG())
    cleared: list[tuple[int, int | None]] = []  # noqa: RUF012

    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        fired = context.window_state().get_state(self.FIRED)
        fired.update((fired.value() or 0) + 1)
        yield context.window().start, fired.value(), [number for _, number in elements]

    def clear(self, context: Any) -> None:
        fired = context.window_state().get_state(self.FIRED)
        self.cleared.append((context.window().start, fired.value()))
        fired.clear()


def test_a_function_of_all_rows_clears_its_state_once_its_window_has_ended(run: Any) -> None:
    Pages.cleared.clear()
    harness = run(
        lambda s: s.window_all(TumblingEventTimeWindows.of(millis(10))).allowed_lateness(5).process(Pages())
    )
    harness.push(("a", 1), ("b", 2), timestamps=[3, 4])
    harness.watermark(9)
    harness.push(("a", 3), timestamps=[5])
    assert harness.output == [(0, 1, [1, 2]), (0, 2, [1, 2, 3])]
    assert Pages.cleared == []
    harness.watermark(14)
    assert Pages.cleared == [(0, 2)]
    assert is_empty(harness)


def test_late_rows_of_windows_of_all_rows_go_to_a_side_output(run: Any) -> None:
    def windows(stream: DataStream) -> Any:
        cut = stream.window_all(TumblingEventTimeWindows.of(millis(10))).side_output_late_data(LATE)
        made = cut.reduce(add)
        return made, made.get_side_output(LATE)

    harness = run(windows)
    harness.push(("a", 1), timestamps=[3])
    harness.watermark(9)
    harness.push(("b", 2), ("c", 3), timestamps=[5, 12])
    harness.watermark(19)
    assert harness.output == [("a", 1), ("c", 3)]
    assert harness.outputs(1) == [("b", 2)] and harness.timestamps(1) == [5]
