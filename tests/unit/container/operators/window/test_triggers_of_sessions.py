"""Triggers of windows that merge, against a model of Flink's window operator and of its triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.common import TimestampAssigner, Types, WatermarkStrategy
from yarrow.common.time import Time
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream import DataStream
from yarrow.datastream.functions import ProcessWindowFunction
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from yarrow.testing.operator_harness import OperatorHarness

#: First and last time of a window, which both belong to it.
Span = tuple[int, int]
#: A session that has fired: its start, its end, and its rows.
Shown = tuple[int, int, tuple[int, ...]]

#: Nobody asks for this number of firings.
NEVER = 1 << 20


class SessionModel:
    """Sessions of event time of one key, as Flink's WindowOperator and its triggers have them.

    `interval` is that of ContinuousEventTimeTrigger, `count` that of CountTrigger. Without them the trigger is
    EventTimeTrigger.
    """

    def __init__(
        self, gap: int, lateness: int, *, interval: int = 0, count: int = 0, purging: bool = False
    ) -> None:
        self.gap, self.lateness = gap, lateness
        self.interval, self.count, self.purging = interval, count, purging
        self.watermark = -NEVER
        self.rows: dict[Span, list[int]] = {}
        self.next_fire: dict[Span, int] = {}
        self.counted: Counter[Span] = Counter()
        self.timers: set[tuple[int, Span]] = set()
        self.shown: list[Shown] = []

    def row(self, time: int) -> None:
        first, last = time, time + self.gap - 1
        merged = [span for span in self.rows if span[0] <= last + 1 and first <= span[1] + 1]
        window = min([first, *(span[0] for span in merged)]), max([last, *(span[1] for span in merged)])
        if window[1] + self.lateness <= self.watermark:
            return
        parts = [span for span in merged if span != window]
        if parts:
            self._merge(window, parts)
        self.rows.setdefault(window, []).append(time)
        if self._fires_at_row(time, window):
            self._fire(window)
        self.timers.add((window[1] + self.lateness, window))

    def _merge(self, window: Span, parts: list[Span]) -> None:
        self.rows[window] = [
            *self.rows.get(window, []),
            *(row for part in parts for row in self.rows.pop(part)),
        ]
        found = [self.next_fire.pop(span) for span in (*parts, window) if span in self.next_fire]
        if found:
            self.next_fire[window] = min(found)
            self.timers.add((min(found), window))
        self.counted[window] += sum(self.counted.pop(part, 0) for part in parts)
        if not self.interval and not self.count and window[1] > self.watermark:
            self.timers.add((window[1], window))

    def _fires_at_row(self, time: int, window: Span) -> bool:
        if self.count:
            self.counted[window] += 1
            if self.counted[window] < self.count:
                return False
            del self.counted[window]
            return True
        if window[1] <= self.watermark:
            return True
        self.timers.add((window[1], window))
        if self.interval and window not in self.next_fire:
            self._set_next(time - time % self.interval, window)
        return False

    def _set_next(self, time: int, window: Span) -> None:
        self.next_fire[window] = min(time + self.interval, window[1])
        self.timers.add((self.next_fire[window], window))

    def _fire(self, window: Span) -> None:
        if self.rows[window]:
            self.shown.append((window[0], window[1] + 1, tuple(sorted(self.rows[window]))))
        if self.purging:
            self.rows[window] = []

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        while due := sorted(timer for timer in self.timers if timer[0] <= watermark):
            self.timers.remove(due[0])
            time, window = due[0]
            if window not in self.rows:
                continue
            if self._fires_at_time(time, window):
                self._fire(window)
            if time == window[1] + self.lateness:
                del self.rows[window]
                self.next_fire.pop(window, None)
                self.counted.pop(window, None)

    def _fires_at_time(self, time: int, window: Span) -> bool:
        if self.count:
            return False
        if time == window[1]:
            return True
        if self.next_fire.get(window) != time:
            return False
        self._set_next(time, window)
        return True


class ShowRows(ProcessWindowFunction[Any, Any, Any, Any]):
    """Bounds and rows of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield window.start, window.end, tuple(sorted(time for _, time in elements))


def millis(number: int) -> Time:
    return Time.milliseconds(number)


def advance_to(harness: OperatorHarness, now: int) -> None:
    harness.advance((now - harness.clock.epoch_ms()) / 1000)
    assert harness.clock.epoch_ms() == now


def sessions(gap: int, lateness: int, trigger: Any) -> Callable[[DataStream], DataStream]:
    def windowed(stream: DataStream) -> DataStream:
        windows = stream.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(millis(gap)))
        return windows.trigger(trigger).allowed_lateness(lateness).process(ShowRows())

    return windowed


def compare(model: SessionModel, trigger: Any, steps: list[tuple[bool, int]]) -> None:
    """Runs rows (True, time) and watermarks (False, step) through the model and through the operator."""
    harness, watermark = OperatorHarness(sessions(model.gap, model.lateness, trigger)), -1
    try:
        for is_row, number in [*steps, (False, 100)]:
            model.shown.clear()
            before = len(harness.output)
            if is_row:
                model.row(number)
                harness.push(("a", number), timestamps=[number])
            else:
                watermark += number
                model.advance(watermark)
                harness.watermark(watermark)
            assert Counter(harness.output[before:]) == Counter(model.shown), (is_row, number)
    finally:
        harness.close()


steps = st.lists(
    st.tuples(st.just(True), st.integers(0, 30)) | st.tuples(st.just(False), st.integers(1, 12)), max_size=14
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([0, 3, 20]), st.booleans(), steps)
@example(1, 5, 0, False, [(True, 10), (True, 11)])
def test_continuous_firings_of_sessions_are_those_of_flink(
    gap: int, interval: int, lateness: int, purging: bool, steps: list[tuple[bool, int]]
) -> None:
    trigger: Any = ContinuousEventTimeTrigger.of(millis(interval))
    model = SessionModel(gap, lateness, interval=interval, purging=purging)
    compare(model, PurgingTrigger.of(trigger) if purging else trigger, steps)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from([0, 3, 20]), st.booleans(), steps)
def test_counts_and_ends_of_sessions_are_those_of_flink(
    gap: int, count: int, lateness: int, purging: bool, steps: list[tuple[bool, int]]
) -> None:
    trigger: Any = CountTrigger.of(count) if count else EventTimeTrigger.create()
    model = SessionModel(gap, lateness, count=count, purging=purging)
    compare(model, PurgingTrigger.of(trigger) if purging else trigger, steps)


def test_a_session_that_ends_at_an_interval_fires_there_though_a_row_prolongs_it(run: Any) -> None:
    trigger = ContinuousEventTimeTrigger.of(millis(5))
    harness = run(sessions(1, 0, trigger))
    harness.push(("a", 10), timestamps=[10])
    harness.push(("a", 11), timestamps=[11])
    harness.watermark(20)
    assert harness.output == [(10, 12, (10, 11))] * 2


@pytest.mark.parametrize(
    "assigner",
    [TumblingProcessingTimeWindows.of(millis(5)), ProcessingTimeSessionWindows.with_gap(millis(1))],
)
def test_a_window_of_processing_time_fires_also_for_its_last_millisecond(run: Any, assigner: Any) -> None:
    trigger = ContinuousProcessingTimeTrigger.of(millis(3))

    def windowed(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).window(assigner).trigger(trigger).process(ShowRows())

    harness = run(windowed)
    advance_to(harness, 9)
    harness.push(("a", 1))
    advance_to(harness, 30)
    assert [rows for _, _, rows in harness.output] == [(1,)]


def test_windows_of_event_time_fire_by_the_clock_also_where_it_has_passed_their_end(run: Any) -> None:
    trigger = ContinuousProcessingTimeTrigger.of(millis(100))

    def windowed(stream: DataStream) -> DataStream:
        windows = stream.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(millis(10)))
        return windows.trigger(trigger).process(ShowRows())

    harness = run(windowed)
    advance_to(harness, 1020)
    harness.push(("a", 3), timestamps=[3])
    advance_to(harness, 1100)
    assert harness.output == [(0, 10, (3,))]
    advance_to(harness, 1500)
    harness.push(("a", 4), timestamps=[4])
    advance_to(harness, 1600)
    assert harness.output == [(0, 10, (3,)), (0, 10, (3, 4))]


@pytest.mark.parametrize(
    ("trigger", "firings"),
    [(ContinuousEventTimeTrigger.of(millis(3)), 2), (ContinuousProcessingTimeTrigger.of(millis(3)), 0)],
)
def test_global_windows_end_with_their_stream(run: Any, trigger: Any, firings: int) -> None:
    def windowed(stream: DataStream) -> DataStream:
        return (
            stream.key_by(lambda row: row[0]).window(GlobalWindows.create()).trigger(trigger).reduce(first_of)
        )

    harness = run(windowed)
    harness.push(("a", 5), timestamps=[5])
    harness.watermark(MAX_TIMESTAMP)
    assert harness.output == [("a", 5)] * firings


@pytest.mark.parametrize(
    ("trigger", "firings"),
    [(ContinuousEventTimeTrigger.of(millis(3)), 2), (ContinuousProcessingTimeTrigger.of(millis(3)), 1)],
)
def test_global_windows_of_a_bounded_job_end(trigger: Any, firings: int) -> None:
    env = environment(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    rows = env.from_collection([("a", 5)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    keyed = rows.assign_timestamps_and_watermarks(strategy).key_by(lambda row: row[0], Types.STRING())
    assert (
        collect(env, keyed.window(GlobalWindows.create()).trigger(trigger).reduce(first_of))
        == [("a", 5)] * firings
    )


def first_of(left: Any, right: Any) -> Any:
    return left


class SecondField(TimestampAssigner):
    """The time is the second field of a row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])
