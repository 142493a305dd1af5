"""Windows of processing time on a clock that runs: rows of the last millisecond belong to their window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common.time import Time
from yarrow.datastream import DataStream
from yarrow.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from yarrow.datastream.window import (
    CumulativeProcessingTimeWindows,
    ProcessingTimeSessionWindows,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)
from yarrow.runtime.common.clock import ManualClock


class RunningClock(ManualClock):
    """A clock in the middle of its millisecond, as that of a machine is."""

    def passed_ms(self) -> int:
        return self.epoch_ms() - 1


class Numbers(ProcessWindowFunction[Any, Any, Any, Any]):
    """End and rows of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield context.window().end, sorted(number for _, number in elements)


class EndAndSum(ProcessWindowFunction[Any, Any, Any, Any]):
    """End and sum of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield context.window().end, [number for _, number in elements]


def millis(number: int) -> Time:
    return Time.milliseconds(number)


TUMBLING = TumblingProcessingTimeWindows.of(millis(10))
SLIDING = SlidingProcessingTimeWindows.of(millis(10), millis(5))
SESSIONS = ProcessingTimeSessionWindows.with_gap(millis(1))


def all_rows(assigner: Any) -> Callable[[DataStream], DataStream]:
    return lambda stream: stream.key_by(lambda row: row[0]).window(assigner).process(Numbers())


def reduced(assigner: Any) -> Callable[[DataStream], DataStream]:
    def build(stream: DataStream) -> DataStream:
        windows = stream.key_by(lambda row: row[0]).window(assigner)
        return windows.reduce(lambda left, right: (left[0], left[1] + right[1]), EndAndSum())

    return build


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (all_rows(TUMBLING), [(10, [1, 2])]),
        (reduced(TUMBLING), [(10, [3])]),
        (all_rows(SLIDING), [(10, [1, 2]), (15, [1, 2])]),
        (reduced(SLIDING), [(10, [3]), (15, [3])]),
        (all_rows(SESSIONS), [(10, [1, 2])]),
    ],
)
def test_a_row_of_the_last_millisecond_comes_before_its_window_fires(
    run: Any, build: Callable[[DataStream], DataStream], expected: list[Any]
) -> None:
    harness = run(build, clock=RunningClock(9))
    harness.push(("a", 1))
    harness.advance(0)
    harness.push(("a", 2))
    assert harness.output == []
    harness.advance(0.001)
    assert harness.output == expected[:1]
    harness.advance(0.1)
    assert harness.output == expected


@pytest.mark.parametrize(
    ("assigner", "second", "expected"),
    [
        (SlidingProcessingTimeWindows.of(millis(10), millis(4)), 3, {2: [1], 6: [1, 2], 10: [1, 2]}),
        (SlidingProcessingTimeWindows.of(millis(3), millis(4)), 5, {3: [1], 7: [2]}),
        (CumulativeProcessingTimeWindows.of(millis(12), millis(4)), 6, {4: [1], 8: [1, 2], 12: [1, 2]}),
    ],
)
@pytest.mark.parametrize("fold", [all_rows, reduced])
def test_a_row_belongs_to_the_windows_of_its_time_also_where_others_have_fired(
    run: Any, fold: Any, assigner: Any, second: int, expected: dict[int, list[int]]
) -> None:
    harness = run(fold(assigner))
    harness.push(("a", 1))
    harness.advance(second / 1000)
    harness.push(("a", 2))
    harness.advance(0.1)
    whole = fold is all_rows
    assert harness.output == [
        (end, numbers if whole else [sum(numbers)]) for end, numbers in expected.items()
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_row_before_windows_that_have_fired_is_not_late_behind_a_restore(run: Any, restarts: bool) -> None:
    """The clock of another machine may be behind."""
    harness = run(reduced(CumulativeProcessingTimeWindows.of(millis(12), millis(4))))
    harness.push(("a", 1))
    harness.advance(0.011)
    assert harness.output == [(4, [1]), (8, [1]), (12, [1])]
    current = harness.restarted() if restarts else harness
    current.push(("a", 2))
    current.advance(0.1)
    assert [(end, numbers) for end, numbers in current.output if end > 12] == [
        (16, [2]),
        (20, [2]),
        (24, [2]),
    ]
    current.close()


class Alarm(KeyedProcessFunction[Any, Any, Any]):
    """Emits the time of a timer that each row sets for its own millisecond."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield timestamp


def test_a_timer_fires_when_its_millisecond_is_over(run: Any) -> None:
    harness = run(lambda stream: stream.key_by(lambda row: row[0]).process(Alarm()), clock=RunningClock(9))
    harness.push(("a", 1), ("a", 2))
    assert harness.output == []
    harness.advance(0.001)
    assert harness.output == [9]
