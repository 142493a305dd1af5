"""Windows: arithmetic, assignment, merging, serial forms; triggers against a context driven by hand."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Duration, Time
from yarrow.common.metrics import MetricGroup
from yarrow.common.watermark_strategy import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.datastream.functions import RuntimeContext
from yarrow.datastream.state import (
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)

times = st.integers(min_value=-(10**12), max_value=10**12)


class HeldValue(ValueState[Any]):
    """A ValueState of one key."""

    def __init__(self) -> None:
        self.held: Any = None

    def value(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value

    def clear(self) -> None:
        self.held = None


class HeldReduction(ReducingState[Any]):
    """A ReducingState of one key and window."""

    def __init__(self, descriptor: ReducingStateDescriptor[Any]) -> None:
        self.reduce = descriptor.get_reduce_function().reduce
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    def add(self, value: Any) -> None:
        self.held = value if self.held is None else self.reduce(self.held, value)

    def clear(self) -> None:
        self.held = None


class OneKey(WindowAssigner.WindowAssignerContext):
    """The assigner's view of one key, at a time set by the test."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.values: dict[str, HeldValue] = {}

    def get_current_processing_time(self) -> int:
        return self.now

    def get_runtime_context(self) -> RuntimeContext:
        return self  # type: ignore[return-value]

    def get_state(self, state_descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        return self.values.setdefault(state_descriptor.get_name(), HeldValue())


class OneWindow(Trigger.OnMergeContext):
    """The trigger's view of one window, at times set by the test."""

    def __init__(self) -> None:
        self.processing_time = 0
        self.watermark = MIN_TIMESTAMP
        self.event_timers: set[int] = set()
        self.processing_timers: set[int] = set()
        self.states: dict[str, HeldReduction] = {}
        self.merged: list[str] = []

    def get_current_processing_time(self) -> int:
        return self.processing_time

    def get_current_watermark(self) -> int:
        return self.watermark

    def get_metric_group(self) -> MetricGroup:
        raise AssertionError("no trigger counts anything")

    def register_processing_time_timer(self, time: int) -> None:
        self.processing_timers.add(time)

    def register_event_time_timer(self, time: int) -> None:
        self.event_timers.add(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self.processing_timers.discard(time)

    def delete_event_time_timer(self, time: int) -> None:
        self.event_timers.discard(time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        assert isinstance(state_descriptor, ReducingStateDescriptor)
        return self.states.setdefault(state_descriptor.get_name(), HeldReduction(state_descriptor))

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self.merged.append(state_descriptor.get_name())


@given(times, st.integers(1, 10**6), st.integers(-(10**6), 10**6))
def test_a_tumbling_window_contains_its_time_and_starts_on_the_grid(
    time: int, size: int, offset: int
) -> None:
    offset %= size
    (window,) = TumblingEventTimeWindows(size, offset).assign_windows(None, time, OneKey())
    assert window.start <= time <= window.max_timestamp()
    assert window.end - window.start == size
    assert (window.start - offset) % size == 0


def test_a_tumbling_assigner_may_change_its_offset_between_two_elements() -> None:
    windows = TumblingEventTimeWindows(10, 0)
    found: list[TimeWindow] = []
    for windows.offset in (0, 3, 0):
        found += windows.assign_windows(None, 15, OneKey())
    assert found == [TimeWindow(10, 20), TimeWindow(13, 23), TimeWindow(10, 20)]


@given(times, st.integers(1, 1_000), st.integers(1, 1_000))
def test_sliding_windows_are_exactly_those_that_contain_the_time(time: int, size: int, slide: int) -> None:
    windows = list(SlidingEventTimeWindows(size, slide, 0).assign_windows(None, time, OneKey()))
    first = (time - size) // slide * slide
    expected = {TimeWindow(s, s + size) for s in range(first, time + 1, slide) if s <= time < s + size}
    assert set(windows) == expected
    assert len(windows) == len(expected)


@given(times, st.integers(1, 100), st.integers(1, 20), st.integers(-100, 100))
def test_cumulative_windows_of_one_start_end_behind_the_time(
    time: int, step: int, steps: int, offset: int
) -> None:
    size = step * steps
    offset %= size
    windows = list(CumulativeEventTimeWindows(size, step, offset).assign_windows(None, time, OneKey()))
    (start,) = {window.start for window in windows}
    assert (start - offset) % size == 0 and start <= time < start + size
    ends = [start + step * number for number in range(1, steps + 1)]
    assert [window.end for window in windows] == [end for end in ends if end > time]


def test_cumulative_windows_grow_by_the_clock_too() -> None:
    assigner = CumulativeProcessingTimeWindows.of(Time.seconds(3), Time.seconds(1), Time.milliseconds(100))
    assert list(assigner.assign_windows(None, MIN_TIMESTAMP, OneKey(now=1_500))) == [
        TimeWindow(100, 2_100),
        TimeWindow(100, 3_100),
    ]
    assert not assigner.is_event_time()


@pytest.mark.parametrize(("size", "step", "offset"), [(0, 1, 0), (10, 0, 0), (10, 3, 0), (10, 5, 10)])
def test_a_size_is_a_multiple_of_its_step(size: int, step: int, offset: int) -> None:
    with pytest.raises(ValueError, match="CumulativeEventTimeWindows needs a size"):
        CumulativeEventTimeWindows(size, step, offset)


def test_processing_time_windows_go_by_the_clock() -> None:
    assigner = TumblingProcessingTimeWindows.of(Time.seconds(1))
    assert list(assigner.assign_windows(None, MIN_TIMESTAMP, OneKey(now=1_500))) == [TimeWindow(1_000, 2_000)]
    assert not assigner.is_event_time()


def test_sizes_are_given_as_time_or_duration() -> None:
    of_time = TumblingEventTimeWindows.of(Time.hours(1), Time.minutes(-15))
    of_duration = TumblingEventTimeWindows.of(Duration.of_hours(1), Duration.of_minutes(-15))
    assert (of_time.size, of_time.offset) == (of_duration.size, of_duration.offset) == (3_600_000, -900_000)


@pytest.mark.parametrize(("size", "slide", "offset"), [(0, 1, 0), (1, 0, 0), (10, 5, 5), (10, 5, -5)])
def test_sizes_must_fit(size: int, slide: int, offset: int) -> None:
    with pytest.raises(ValueError, match="SlidingEventTimeWindows"):
        SlidingEventTimeWindows(size, slide, offset)


def test_event_time_needs_a_timestamp() -> None:
    with pytest.raises(ValueError, match="assign_timestamps_and_watermarks"):
        TumblingEventTimeWindows(10, 0).assign_windows(None, MIN_TIMESTAMP, OneKey())


class Merges:
    """A merge callback that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, windows_to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        self.calls.append((list(windows_to_be_merged), merge_result))


def test_sessions_merge_where_they_overlap_or_touch() -> None:
    windows = [
        TimeWindow(30, 40),
        TimeWindow(0, 10),
        TimeWindow(10, 15),
        TimeWindow(16, 20),
        TimeWindow(12, 13),
    ]
    merges = Merges()
    EventTimeSessionWindows(5).merge_windows(windows, merges)  # type: ignore[arg-type]
    assert merges.calls == [([TimeWindow(0, 10), TimeWindow(10, 15), TimeWindow(12, 13)], TimeWindow(0, 15))]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 20)), max_size=12))
def test_merged_windows_cover_the_same_times_and_no_longer_touch(spans: list[tuple[int, int]]) -> None:
    windows = [TimeWindow(start, start + length) for start, length in spans]
    left = set(windows)

    def replace(group: Iterable[TimeWindow], result: TimeWindow) -> None:
        left.difference_update(group)
        left.add(result)

    TimeWindow.merge_windows(windows, replace)
    ordered = sorted(left)
    assert not any(a.intersects(b) for a, b in pairwise(ordered))
    covered = {t for w in windows for t in range(w.start, w.end)}
    assert {t for w in ordered for t in range(w.start, w.end)} == covered


def test_a_dynamic_gap_comes_from_the_record() -> None:
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element: int) -> int:
            return element

    assigner = EventTimeSessionWindows.with_dynamic_gap(Gap())
    assert list(assigner.assign_windows(7, 100, OneKey())) == [TimeWindow(100, 107)]
    with pytest.raises(ValueError, match="gap of 0 ms"):
        assigner.assign_windows(0, 100, OneKey())


def test_count_windows_hold_their_places() -> None:
    context = OneKey()
    tumbling = CountTumblingWindowAssigner.of(2)
    assert [list(tumbling.assign_windows(None, 0, context)) for _ in range(4)] == [
        [CountWindow(0)],
        [CountWindow(0)],
        [CountWindow(1)],
        [CountWindow(1)],
    ]


@given(st.integers(1, 7), st.integers(1, 7))
def test_sliding_count_windows_are_those_that_hold_the_place(size: int, slide: int) -> None:
    context, assigner = OneKey(), CountSlidingWindowAssigner.of(size, slide)
    for place in range(30):
        windows = {window.id for window in assigner.assign_windows(None, 0, context)}
        assert windows == {n for n in range(31) if n * slide <= place < n * slide + size}


def test_windows_come_back_from_their_bytes() -> None:
    stream = BytesIO()
    TimeWindowSerializer().serialize(TimeWindow(-5, 7), stream)
    CountWindowSerializer().serialize(CountWindow(3), stream)
    GlobalWindowSerializer().serialize(GlobalWindow.get(), stream)
    assert stream.getvalue().hex() == "fffffffffffffffb0000000000000007" + "0000000000000003" + "00"
    stream.seek(0)
    assert TimeWindowSerializer().deserialize(stream) == TimeWindow(-5, 7)
    assert CountWindowSerializer().deserialize(stream) == CountWindow(3)
    assert GlobalWindowSerializer().deserialize(stream) == GlobalWindow.get()
    with pytest.raises(EOFError):
        TimeWindowSerializer().deserialize(stream)


WINDOW = TimeWindow(0, 100)


def test_the_event_time_trigger_fires_at_the_end_and_for_late_records() -> None:
    trigger, context = EventTimeTrigger.create(), OneWindow()
    assert trigger.on_element(None, 5, WINDOW, context) is TriggerResult.CONTINUE
    assert context.event_timers == {99}
    assert trigger.on_event_time(98, WINDOW, context) is TriggerResult.CONTINUE
    assert trigger.on_event_time(99, WINDOW, context) is TriggerResult.FIRE
    context.watermark = 99
    assert trigger.on_element(None, 5, WINDOW, context) is TriggerResult.FIRE
    trigger.clear(WINDOW, context)
    assert context.event_timers == set()


def test_a_merged_window_gets_its_timer_unless_it_is_already_late() -> None:
    context = OneWindow()
    EventTimeTrigger().on_merge(WINDOW, context)
    assert context.event_timers == {99}
    late = OneWindow()
    late.watermark = 99
    EventTimeTrigger().on_merge(WINDOW, late)
    assert late.event_timers == set()


def test_the_processing_time_trigger_fires_by_the_clock() -> None:
    trigger, context = ProcessingTimeTrigger.create(), OneWindow()
    assert trigger.on_element(None, 5, WINDOW, context) is TriggerResult.CONTINUE
    assert context.processing_timers == {99}
    assert trigger.on_processing_time(99, WINDOW, context) is TriggerResult.FIRE


def test_the_count_trigger_fires_at_every_nth_record() -> None:
    trigger, context = CountTrigger.of(2), OneWindow()
    results = [trigger.on_element(None, 0, WINDOW, context) for _ in range(4)]
    assert results == [TriggerResult.CONTINUE, TriggerResult.FIRE] * 2
    trigger.on_merge(WINDOW, context)
    assert len(context.merged) == 1


def test_the_continuous_event_time_trigger_fires_at_intervals_and_at_the_end() -> None:
    trigger, context = ContinuousEventTimeTrigger.of(Time.milliseconds(40)), OneWindow()
    assert trigger.on_element(None, 5, WINDOW, context) is TriggerResult.CONTINUE
    assert context.event_timers == {40, 99}
    assert trigger.on_event_time(40, WINDOW, context) is TriggerResult.FIRE
    assert trigger.on_event_time(80, WINDOW, context) is TriggerResult.FIRE
    assert context.event_timers == {40, 80, 99}
    assert trigger.on_event_time(99, WINDOW, context) is TriggerResult.FIRE


def test_the_continuous_processing_time_trigger_stops_at_the_end() -> None:
    trigger, context = ContinuousProcessingTimeTrigger.of(Time.milliseconds(60)), OneWindow()
    trigger.on_element(None, 5, WINDOW, context)
    assert context.processing_timers == {60}
    assert trigger.on_processing_time(60, WINDOW, context) is TriggerResult.FIRE
    assert context.processing_timers == {60, 99}
    assert trigger.on_processing_time(99, WINDOW, context) is TriggerResult.FIRE
    assert context.processing_timers == {60, 99}


def test_a_purging_trigger_purges_only_when_the_other_fires() -> None:
    trigger, context = PurgingTrigger.of(CountTrigger.of(2)), OneWindow()
    results = [trigger.on_element(None, 0, WINDOW, context) for _ in range(2)]
    assert results == [TriggerResult.CONTINUE, TriggerResult.FIRE_AND_PURGE]


def test_global_windows_never_fire_by_themselves() -> None:
    trigger = GlobalWindows.create().get_default_trigger(None)
    assert isinstance(trigger, NeverTrigger)
    assert trigger.on_element(None, 0, GlobalWindow.get(), OneWindow()) is TriggerResult.CONTINUE
    assert list(GlobalWindows().assign_windows(None, 0, OneKey())) == [GlobalWindow.get()]


@pytest.mark.parametrize(("result", "fires", "purges"), [("FIRE", True, False), ("PURGE", False, True)])
def test_trigger_results(result: str, fires: bool, purges: bool) -> None:
    assert TriggerResult[result].is_fire() is fires
    assert TriggerResult[result].is_purge() is purges


def test_windows_that_are_no_time_end_with_all_time() -> None:
    assert TimeWindow(10, 20).max_timestamp() == 19
    assert CountWindow(3).max_timestamp() == GlobalWindow.get().max_timestamp() == MAX_TIMESTAMP
    assert MAX_TIMESTAMP == (1 << 63) - 1


@pytest.mark.parametrize(
    ("first", "second", "covering"),
    [
        ((0, 10), (5, 20), (0, 20)),
        ((5, 20), (0, 10), (0, 20)),
        ((0, 3), (7, 9), (0, 9)),
        ((0, 9), (2, 4), (0, 9)),
    ],
)
def test_the_covering_window_is_the_smallest_that_holds_both(
    first: tuple[int, int], second: tuple[int, int], covering: tuple[int, int]
) -> None:
    assert TimeWindow(*first).cover(TimeWindow(*second)) == TimeWindow(*covering)
