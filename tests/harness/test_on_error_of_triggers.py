"""on_error of windows whose trigger fails at a row: the row leaves as a letter, and everything is as before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.crashed_runs import feed, outputs_over_a_crash
from tests.harness.test_on_error_of_windows import (
    PAIR,
    UNFAILING,
    WINDOWS,
    Overlapping,
    Twice,
    by_key,
    rows_of,
)
from tests.support.kept_windows import keeps_nothing
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.functions import AggregateFunction, ProcessAllWindowFunction, ProcessWindowFunction
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from yarrow.datastream.window import (
    CountEvictor,
    DeltaTrigger,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from yarrow.runtime.data.keys import encode_key
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class Numbers(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, [number for _, number in elements]


class AllNumbers(ProcessAllWindowFunction):  # type: ignore[type-arg]
    def process(self, context: Any, elements: Any) -> Any:
        yield [number for _, number in elements]


class InPlace(AggregateFunction):  # type: ignore[type-arg]
    """An accumulator that changes in place."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [*acc_a, *acc_b]


class Shaky(Trigger):  # type: ignore[type-arg]
    """Fires at every second element, and purges at some. Fails at numbers below 0 in some windows, behind changes."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self._count = ReducingStateDescriptor("count", lambda first, second: first + second, Types.LONG())
        self._seen = AggregatingStateDescriptor("seen", InPlace(), Types.LIST(Types.LONG()))
        self._times: ListStateDescriptor[int] = ListStateDescriptor("times", Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count, seen = ctx.get_partitioned_state(self._count), ctx.get_partitioned_state(self._seen)
        number = element[1]
        count.add(1)
        seen.add(number)
        ctx.get_partitioned_state(self._times).add(timestamp)
        ctx.register_event_time_timer(window.max_timestamp())
        # A number deletes the timer that another one has set.
        early = window.start + 2
        if number % 2:
            ctx.register_event_time_timer(early)
        else:
            ctx.delete_event_time_timer(early)
        if number < 0 and window.start % 8 == 0 and self._fails:
            ctx.delete_event_time_timer(window.max_timestamp())
            ctx.register_event_time_timer(window.start + 3)
            ctx.register_processing_time_timer(5)
            # A state that no other row has asked for.
            if number % 3:
                ctx.get_partitioned_state(ValueStateDescriptor("rare", Types.LONG())).update(1)
            count.clear()
            raise ValueError(f"no {number}")
        if count.get() % 2:
            return TriggerResult.CONTINUE
        return TriggerResult.FIRE_AND_PURGE if sum(seen.get()) % 3 == 0 else TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        for state in (self._count, self._seen, self._times):
            ctx.merge_partitioned_state(state)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Any) -> None:
        for state in (self._count, self._seen, self._times):
            ctx.get_partitioned_state(state).clear()
        ctx.delete_event_time_timer(window.start + 2)


Windows = Callable[[DataStream], Any]
CUTS: dict[str, Windows] = {
    **{name: WINDOWS[name] for name in ("tumbling", "sliding", "cumulative", "sessions", "all")},
    "twice": lambda s: by_key(s).window(Twice(10, 0)),
    "two that become one": lambda s: by_key(s).window(Overlapping(5)),
}
FOLDS: dict[str, Callable[[Any], DataStream]] = {
    "reduce": UNFAILING["reduce"],
    "aggregate": lambda windows: windows.aggregate(InPlace(), output_type=Types.PICKLED_BYTE_ARRAY()),
    "process": lambda windows: windows.process(Numbers()),
    "evictor": lambda windows: windows.evictor(CountEvictor.of(2)).process(Numbers()),
}
STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from("ab"), st.integers(-3, 8)),
        st.integers(0, 30),
        st.none() | st.integers(0, 30),
    ),
    max_size=10,
)


@pytest.mark.parametrize("cut", CUTS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=14)
@given(STEPS, st.sampled_from([*FOLDS]), st.integers(0, 10), st.sampled_from(["hashmap", "rocksdb"]))
def test_a_row_at_which_the_trigger_fails_changes_nothing(
    cut: str, drawn: list[Any], fold: str, crash: int, backend: str
) -> None:
    """The results are those of the same windows without the rows that have become letters."""
    # Each row is another one, so that a letter tells which row it was.
    steps = [((key, number * 100 + at), time, mark) for at, ((key, number), time, mark) in enumerate(drawn)]

    def folded(stream: DataStream, fails: bool) -> DataStream:
        windows = CUTS[cut](stream).trigger(Shaky(fails)).allowed_lateness(6)
        if cut == "all" and fold in ("process", "evictor"):
            return cast(DataStream, windows.process(AllNumbers()))
        return FOLDS[fold](windows)

    def guarded(stream: DataStream) -> list[DataStream]:
        made = folded(stream, True).uid("the windows").on_error("dead_letter")
        return [made, made.dead_letters()]

    found, letters = outputs_over_a_crash(guarded, PAIR, steps, crash, backend, outputs=2)
    failed = rows_of(letters)
    assert all(number < 0 for _, number in failed) and len(set(failed)) == len(failed)
    kept = [(None if row in failed else row, time, mark) for row, time, mark in steps]
    with OperatorHarness(lambda s: folded(s, False), types=[PAIR]) as harness:
        feed(harness, kept, -1)
        harness.watermark(1000)
        harness.run()
        assert sorted(map(repr, found)) == sorted(map(repr, harness.outputs(0)))


@pytest.mark.parametrize("fold", FOLDS)
def test_a_row_that_fails_in_its_second_window_leaves_no_trace(fold: str) -> None:
    """The results of its first window never leave."""

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = by_key(stream).window(
            SlidingEventTimeWindows.of(Time.milliseconds(8), Time.milliseconds(4))
        )
        made = FOLDS[fold](windows.trigger(Shaky(True))).uid("the windows").on_error("dead_letter")
        return [made, made.dead_letters()]

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        # Windows begin at 4 and 0. That at 4 has an element already, so that it would fire.
        harness.push(("a", 4), timestamps=[9])
        (operator,) = (each for each in harness.tasks[0].chain.operators if each.failed is not None)
        before = len(cast(Any, operator)._timers.event_timers)
        harness.push(("a", -7), timestamps=[5])
        assert harness.outputs(0) == []
        assert len(cast(Any, operator)._timers.event_timers) == before
        (letter,) = harness.outputs(1)
        assert rows_of([letter]) == [("a", -7)]
        assert (letter.operator, letter.input, letter.timestamp) == ("the windows", 0, 5)
        assert (letter.error, letter.key) == ("ValueError: no -7", encode_key("a"))
        assert "on_element" in letter.traceback
        harness.watermark(1000)
        harness.run()
        assert len(harness.outputs(0)) == 2
        assert keeps_nothing(cast(Any, operator))
        assert harness.metrics()["SlidingEventTimeWindows.numRecordsInErrors"] == 1


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_that_a_restored_trigger_has_not_asked_for_yet_stays(backend: str) -> None:
    """Of the windows of the failing row, that from 4 on counts two elements when the next row comes."""

    def fragment(stream: DataStream) -> DataStream:
        windows = by_key(stream).window(
            SlidingEventTimeWindows.of(Time.milliseconds(8), Time.milliseconds(4))
        )
        return windows.trigger(Shaky(True)).process(Numbers()).uid("the windows").on_error("skip")

    configuration = {"state.backend.type": backend}
    with OperatorHarness(fragment, types=[PAIR], configuration=configuration) as harness:
        harness.push(("a", 4), timestamps=[9])
        with harness.restarted(harness.snapshot()) as again:
            again.push(("a", -7), ("a", 6), timestamps=[5, 9])
            again.run()
            assert again.outputs(0) == [("a", [4, 6]), ("a", [4, 6])]


class Refuses(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        raise ValueError("no window")


def test_rows_of_a_window_that_has_failed_before_the_trigger_come_back() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = by_key(stream).window(
            SlidingEventTimeWindows.of(Time.milliseconds(8), Time.milliseconds(4))
        )
        made = windows.trigger(Shaky(True)).process(Refuses()).on_error("dead_letter")
        return [made, made.dead_letters()]

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 4), timestamps=[9])
        # The function fails in the window from 4 on, and then the trigger in that from 0 on.
        harness.push(("a", -7), timestamps=[5])
        harness.run()
        assert [(letter.input, letter.error_class) for letter in harness.outputs(1)] == [(0, "ValueError")]
        assert harness.metrics()["SlidingEventTimeWindows.numRecordsInErrors"] == 1
        harness.watermark(1000)
        harness.run()
        assert rows_of(harness.outputs(1)) == [("a", -7), ("a", 4), ("a", 4)]
        assert harness.metrics()["SlidingEventTimeWindows.numRecordsInErrors"] == 3


def test_the_delta_function_of_a_trigger_of_this_package() -> None:
    def delta(old: Any, new: Any) -> float:
        return float(new[1] / old[1])

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = by_key(stream).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        made = windows.trigger(DeltaTrigger.of(3.0, delta)).process(Numbers()).on_error("dead_letter")
        return [made, made.dead_letters()]

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 0), ("a", 1), ("b", 1), ("b", 7), timestamps=[1, 2, 3, 4])
        harness.run()
        assert harness.outputs(0) == [("b", [1, 7])]
        (letter,) = harness.outputs(1)
        assert rows_of([letter]) == [("a", 1)] and letter.error_class == "ZeroDivisionError"


class OnTime(Shaky):
    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        raise ValueError("no time")


class Forgets(Shaky):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("trigger", "expected"), [(OnTime(False), "no time"), (Forgets(False), "Forgets.*TriggerResult")]
)
def test_errors_that_are_of_no_row_fail_the_job(trigger: Any, expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=expected),
        OperatorHarness(
            lambda s: UNFAILING["reduce"](WINDOWS["tumbling"](s).trigger(trigger)).on_error("skip"),
            types=[PAIR],
        ) as harness,
    ):
        harness.push(("a", 1), timestamps=[1])
        harness.watermark(100)
        harness.run()


class Merges(Shaky):
    def on_merge(self, window: Any, ctx: Any) -> None:
        super().on_merge(window, ctx)
        if window.end > 15:
            raise ValueError(f"no {window.end}")


def test_a_row_whose_windows_the_trigger_cannot_merge_leaves_too() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = WINDOWS["sessions"](stream).trigger(Merges(False))
        made = windows.process(Numbers()).on_error("dead_letter")
        return [made, made.dead_letters()]

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        # The last one joins the second session.
        harness.push(("a", 2), ("a", 4), ("a", 8), timestamps=[1, 12, 8])
        harness.watermark(1000)
        harness.run()
        assert harness.outputs(0) == [("a", [2]), ("a", [4])]
        (letter,) = harness.outputs(1)
        assert rows_of([letter]) == [("a", 8)] and letter.error == "ValueError: no 17"
        (operator,) = (each for each in harness.tasks[0].chain.operators if each.failed is not None)
        assert keeps_nothing(cast(Any, operator))
