"""Evictors, DeltaTrigger and the trigger of the end of the stream, each against lists and contexts of the test."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.datastream.test_windows import HeldValue, OneWindow
from yarrow.common import Duration, Time, Types
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream.state import StateDescriptor
from yarrow.datastream.window import (
    CountEvictor,
    DeltaEvictor,
    DeltaFunction,
    DeltaTrigger,
    EndOfStreamTrigger,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    TimeEvictor,
    TimestampedValue,
    TriggerResult,
)

WINDOW = GlobalWindow.get()
CONTEXT: Any = None


def elements(*values: Any, times: list[int | None] | None = None) -> list[TimestampedValue[Any]]:
    stamps: list[int | None] = [None] * len(values) if times is None else times
    return [TimestampedValue(value, stamp) for value, stamp in zip(values, stamps, strict=True)]


def left_by(
    evictor: Evictor[Any, Any], given: list[TimestampedValue[Any]], *, after: bool = False
) -> list[Any]:
    """The values that are left in the very list that the evictor got."""
    evict = evictor.evict_after if after else evictor.evict_before
    evict(given, len(given), WINDOW, CONTEXT)
    return [each.value for each in given]


def distance(old: int, new: int) -> int:
    return abs(new - old)


@pytest.mark.parametrize(("count", "left"), [(0, []), (1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (9, [1, 2, 3])])
def test_a_count_evictor_keeps_the_last_records(count: int, left: list[int]) -> None:
    assert left_by(CountEvictor.of(count), elements(1, 2, 3)) == left


@pytest.mark.parametrize(
    "evictor_of",
    [
        lambda after: CountEvictor.of(1, after),
        lambda after: TimeEvictor.of(1, after),
        lambda after: DeltaEvictor.of(1, distance, after),
    ],
    ids=["count", "time", "delta"],
)
def test_an_evictor_acts_on_one_side_of_the_function(evictor_of: Callable[[bool], Evictor[Any, Any]]) -> None:
    times: list[int | None] = [0, 5]
    for after in (False, True):
        assert left_by(evictor_of(after), elements(7, 9, times=times), after=after) == [9]
        assert left_by(evictor_of(after), elements(7, 9, times=times), after=not after) == [7, 9]
        assert left_by(evictor_of(after), [], after=after) == []


def test_a_time_evictor_keeps_what_is_less_than_its_size_older_than_the_latest_record() -> None:
    given = elements("late", "tie", "edge", "in", "latest", times=[3, 10, 5, 6, 10])
    assert left_by(TimeEvictor.of(5), given) == ["tie", "in", "latest"]


def test_a_time_evictor_removes_nothing_if_the_first_record_has_no_time() -> None:
    assert left_by(TimeEvictor.of(1), elements("a", "b", "c", times=[None, 0, 100])) == ["a", "b", "c"]


def test_a_time_evictor_keeps_later_records_without_time() -> None:
    assert left_by(TimeEvictor.of(1), elements("a", "b", "c", times=[0, None, 100])) == ["b", "c"]


@pytest.mark.parametrize(
    "size", [1500, Time.milliseconds(1500), Duration.of_millis(1500), timedelta(seconds=1.5)]
)
def test_a_length_of_time_may_be_given_in_each_form(size: Any) -> None:
    assert TimeEvictor.of(size).window_size == 1500


def test_a_delta_evictor_removes_what_is_at_least_the_threshold_from_the_last_record() -> None:
    assert left_by(DeltaEvictor.of(3, distance), elements(10, 13, 7, 11, 10)) == [10, 11, 10]
    # The order of the arguments: the element, then the last one.
    assert left_by(DeltaEvictor.of(3, lambda old, new: new - old), elements(6, 14, 7, 10)) == [14, 10]
    # The last record too is compared with itself.
    assert left_by(DeltaEvictor.of(0, distance), elements(1, 2)) == []


class Distance(DeltaFunction[int]):
    def get_delta(self, old_data_point: int, new_data_point: int) -> float:
        return abs(new_data_point - old_data_point)


def test_a_distance_may_be_a_delta_function() -> None:
    evictor: Any = pickle.loads(pickle.dumps(DeltaEvictor.of(3, Distance())))
    assert left_by(evictor, elements(1, 5, 6)) == [5, 6]


class OneWindowOfValues(OneWindow):
    """A context whose only state is a value."""

    def __init__(self) -> None:
        super().__init__()
        self.value = HeldValue()

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        assert state_descriptor.get_name() == "last-element"
        return self.value


def test_a_delta_trigger_fires_above_its_threshold_and_compares_with_the_record_that_fired_last() -> None:
    trigger, context = DeltaTrigger.of(3.0, distance, Types.LONG()), OneWindowOfValues()
    answers = [trigger.on_element(value, 0, WINDOW, context) for value in (10, 13, 14, 16, 18, 15)]
    fire, go_on = TriggerResult.FIRE, TriggerResult.CONTINUE
    # 10 is kept; 13 is 3 from it, which is not above; 14 fires; 18 is 4 from 14; 15 is 3 from 18.
    assert answers == [go_on, go_on, fire, go_on, fire, go_on]
    assert context.value.held == 18
    assert trigger.on_event_time(5, WINDOW, context) is go_on
    assert trigger.on_processing_time(5, WINDOW, context) is go_on
    assert not (context.event_timers or context.processing_timers or trigger.can_merge())
    trigger.clear(WINDOW, context)
    assert context.value.held is None


def test_global_windows_may_fire_at_the_end_of_the_stream() -> None:
    trigger: Any = GlobalWindows.create_with_end_of_stream_trigger().get_default_trigger(None)
    assert isinstance(trigger, EndOfStreamTrigger)
    context = OneWindow()
    assert trigger.on_element(1, 0, WINDOW, context) is TriggerResult.CONTINUE
    assert context.event_timers == {MAX_TIMESTAMP}
    assert trigger.on_event_time(MAX_TIMESTAMP - 1, WINDOW, context) is TriggerResult.CONTINUE
    assert trigger.on_event_time(MAX_TIMESTAMP, WINDOW, context) is TriggerResult.FIRE_AND_PURGE
    trigger.clear(WINDOW, context)
    assert not context.event_timers


def test_an_element_says_its_time() -> None:
    timed, plain = TimestampedValue("a", 5), TimestampedValue("a")
    assert (timed.has_timestamp(), plain.has_timestamp()) == (True, False)
    assert repr(timed) == "TimestampedValue('a', 5)"
    # Equal records of a window stay apart, so that `elements.remove` removes the one that it is given.
    assert TimestampedValue("a", 5) != timed


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "negative count": (lambda: CountEvictor.of(-1), ValueError, "CountEvictor keeps a whole number.*keep -1"),
    "count that is no number": (lambda: CountEvictor.of(True), ValueError, "whole number"),
    "size of nothing": (lambda: TimeEvictor.of(0), ValueError, "at least 1 ms"),
    "negative size": (lambda: TimeEvictor.of(Time.milliseconds(-5)), ValueError, "cannot keep -5 ms"),
    "size that is no time": (lambda: TimeEvictor.of("1 s"), TypeError, "window_size must be a Time"),  # type: ignore[arg-type]
    "threshold": (
        lambda: DeltaEvictor.of("3", distance), ValueError,  # type: ignore[arg-type]
        "threshold of DeltaEvictor must be a number, not '3'",
    ),
    "threshold that is not a number": (
        lambda: DeltaTrigger.of(float("nan"), distance), ValueError, "threshold of DeltaTrigger must be a number",
    ),
    "distance": (lambda: DeltaTrigger.of(1, 5), TypeError, "DeltaTrigger takes a DeltaFunction"),  # type: ignore[arg-type]
    "class of distances": (
        lambda: DeltaEvictor.of(1, Distance), TypeError, "DeltaEvictor takes a DeltaFunction",  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_bad_input_is_refused_by_name(what: str) -> None:
    make, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        make()
