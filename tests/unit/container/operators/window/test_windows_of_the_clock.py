"""Windows of processing time that overlap, sessions whose records give their own gap, and lateness without keys."""

from __future__ import annotations

from typing import Any

from tests.unit.container.operators.window.test_window_rules import add, is_empty, keyed, millis
from yarrow.datastream.window import (
    DynamicProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
)


class GapOfRow(SessionWindowTimeGapExtractor):
    """A hundred milliseconds for each unit of the second field."""

    def extract(self, element: Any) -> int:
        return 100 * int(element[1])


def test_overlapping_windows_of_processing_time(run: Any) -> None:
    sliding = SlidingProcessingTimeWindows.of(millis(1000), millis(500))
    harness = run(lambda s: keyed(s).window(sliding).reduce(add))
    harness.push(("a", 1))
    harness.advance(0.6)
    assert (harness.output, harness.timestamps()) == ([("a", 1)], [499])
    harness.push(("a", 2))
    harness.advance(0.5)
    harness.advance(0.5)
    assert (harness.output, harness.timestamps()) == ([("a", 1), ("a", 3), ("a", 2)], [499, 999, 1499])
    # A key is forgotten when a window without its rows ends.
    harness.advance(0.5)
    assert len(harness.output) == 3
    assert is_empty(harness)


def test_sessions_of_processing_time_whose_records_give_the_gap(run: Any) -> None:
    sessions = DynamicProcessingTimeSessionWindows.with_dynamic_gap(GapOfRow())
    harness = run(lambda s: keyed(s).window(sessions).reduce(add))
    harness.push(("a", 3))
    harness.advance(0.2)
    harness.push(("a", 1))
    harness.advance(0.09)
    assert harness.output == []
    harness.advance(0.02)
    assert (harness.output, harness.timestamps()) == ([("a", 4)], [299])
    assert is_empty(harness)


def test_late_records_of_windows_without_keys_correct_their_result(run: Any) -> None:
    tumbling = TumblingEventTimeWindows.of(millis(10))
    harness = run(lambda s: s.window_all(tumbling).allowed_lateness(5).reduce(add))
    harness.push(("a", 1), timestamps=[1])
    harness.watermark(10)
    harness.push(("b", 2), timestamps=[2])
    harness.watermark(20)
    harness.push(("c", 4), timestamps=[3])
    assert harness.output == [("a", 1), ("a", 3)]
    assert is_empty(harness)
