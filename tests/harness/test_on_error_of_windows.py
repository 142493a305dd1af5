"""on_error of windows: a row at which reduce or aggregate fails leaves as a letter, and everything is as before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, KeyedStream, OutputTag
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import PARTIAL_VALUE
from yarrow.datastream.functions import AggregateFunction, ProcessWindowFunction
from yarrow.datastream.window import (
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
#: A key and a number; negative ones fail.
Pair = tuple[str, int]


class Numbers(AggregateFunction):  # type: ignore[type-arg]
    """The numbers of a window in a list that changes in place, also before a number fails."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Pair, accumulator: Any) -> Any:
        accumulator.append(value[1])
        if value[1] < 0:
            raise ValueError(f"no {value[1]}")
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a.extend(acc_b)
        return acc_a


def add(first: Any, second: Any) -> Any:
    if second[1] < 0:
        raise ValueError(f"no {second[1]}")
    return first[0], first[1] + second[1]


def key_of(pair: Pair) -> str:
    return pair[0]


def by_key(stream: DataStream) -> KeyedStream:
    return stream.key_by(key_of, Types.STRING())


Windows = Callable[[DataStream], Any]
WINDOWS: dict[str, Windows] = {
    "tumbling": lambda s: by_key(s).window(TumblingEventTimeWindows.of(Time.milliseconds(10))),
    "sliding": lambda s: by_key(s).window(
        SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4))
    ),
    "cumulative": lambda s: by_key(s).window(
        CumulativeEventTimeWindows.of(Time.milliseconds(12), Time.milliseconds(4))
    ),
    "sessions": lambda s: by_key(s).window(EventTimeSessionWindows.with_gap(Time.milliseconds(5))),
    "count": lambda s: by_key(s).count_window(3),
    "sliding count": lambda s: by_key(s).count_window(3, 2),
    "all": lambda s: s.window_all(TumblingEventTimeWindows.of(Time.milliseconds(10))),
    "all sessions": lambda s: s.window_all(EventTimeSessionWindows.with_gap(Time.milliseconds(5))),
    "every second": lambda s: (
        by_key(s)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .trigger(PurgingTrigger.of(CountTrigger.of(2)))
    ),
}
FOLDS: dict[str, Callable[[Any], DataStream]] = {
    "aggregate": lambda windows: windows.aggregate(Numbers(), output_type=Types.PICKLED_BYTE_ARRAY()),
    "reduce": lambda windows: windows.reduce(add),
}


#: The same, which never fail. A row that begins a window is not reduced, so that it cannot fail there.
UNFAILING: dict[str, Callable[[Any], DataStream]] = {
    "aggregate": FOLDS["aggregate"],
    "reduce": lambda windows: windows.reduce(lambda first, second: (first[0], first[1] + second[1])),
}


class Step(NamedTuple):
    """A row and its time; then the watermark, None = it stays."""

    row: Pair
    time: int
    watermark: int | None


STEPS = st.lists(
    st.builds(
        Step,
        st.tuples(st.sampled_from("ab"), st.integers(-3, 20)),
        st.integers(0, 40),
        st.none() | st.integers(0, 40),
    ),
    max_size=10,
)


def lateness(windows: Any) -> Any:
    return windows.allowed_lateness(6).side_output_late_data(LATE)


def with_letters(stream: DataStream) -> list[DataStream]:
    late = stream.get_side_output(LATE)
    stream = stream.uid("the windows").on_error("dead_letter")
    return [stream, late, stream.dead_letters()]


def without(stream: DataStream) -> list[DataStream]:
    return [stream, stream.get_side_output(LATE)]


def feed(harness: OperatorHarness, steps: list[Step], reached: int) -> int:
    """Push rows and watermarks that rise; returns the last watermark."""
    for step in steps:
        harness.push(step.row, timestamps=[step.time])
        if step.watermark is not None and step.watermark > reached:
            reached = step.watermark
            harness.watermark(reached)
    harness.run()
    return reached


def rows_of(letters: list[DeadLetter]) -> list[Pair]:
    load = serializer_for(PAIR).load_rows
    return [row for letter in letters for row in load(letter.raw or b"")]


@pytest.mark.parametrize("windows", WINDOWS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=8)
@given(st.sampled_from([*FOLDS]), STEPS, st.integers(0, 10), st.booleans())
def test_a_row_that_fails_changes_nothing(
    windows: str, fold: str, steps: list[Step], cut: int, restarts: bool
) -> None:
    """The results are those of the same windows, on any operator, without the rows that have become letters."""
    # Each row is another one, so that a letter tells which row it was.
    steps = [step._replace(row=(step.row[0], step.row[1] * 100 + place)) for place, step in enumerate(steps)]
    takes_lateness = "count" not in windows

    def fragment(
        build: Callable[[DataStream], list[DataStream]],
        folds: Mapping[str, Callable[[Any], DataStream]] = FOLDS,
    ) -> Callable[[DataStream], list[DataStream]]:
        made = WINDOWS[windows]
        return lambda s: build(folds[fold](lateness(made(s)) if takes_lateness else made(s)))

    found: list[list[Any]] = [[], [], []]
    with OperatorHarness(fragment(with_letters), types=[PAIR]) as harness:
        reached = feed(harness, steps[:cut], -1)
        current = harness
        if restarts:
            found = [harness.outputs(index) for index in range(3)]
            current = harness.restarted(harness.snapshot())
        with current:
            feed(current, steps[cut:], reached)
            current.watermark(1000)
            current.run()
            found = [before + current.outputs(index) for index, before in enumerate(found)]
    failed = rows_of(found[2])
    for place, (row, time, _) in enumerate(steps):
        if row in failed and row[1] >= 0:
            # The row would join an earlier session to one that has begun with a negative number.
            assert fold == "reduce" and "sessions" in windows
            begun = [step for step in steps[:place] if step.row[1] < 0 and step.row not in failed]
            assert any(step.time > time and (step.row[0] == row[0] or "all" in windows) for step in begun)
    assert len(set(failed)) == len(failed)
    good = [step for step in steps if step.row not in failed]
    with OperatorHarness(fragment(without, UNFAILING), types=[PAIR]) as harness:
        reached = -1
        for step in steps:
            if step in good:
                harness.push(step.row, timestamps=[step.time])
            if step.watermark is not None and step.watermark > reached:
                reached = step.watermark
                harness.watermark(reached)
        harness.watermark(1000)
        harness.run()
        assert sorted(map(repr, found[0])) == sorted(map(repr, harness.outputs(0)))
        assert sorted(map(repr, found[1])) == sorted(map(repr, harness.outputs(1)))


def test_a_letter_tells_the_row_its_key_and_its_time() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        return with_letters(FOLDS["aggregate"](lateness(WINDOWS["sliding"](stream))))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", -7), ("b", 2), timestamps=[3, 4, 5])
        harness.watermark(100)
        harness.run()
        (letter,) = harness.outputs(2)
        assert rows_of([letter]) == [("a", -7)]
        assert (letter.operator, letter.input, letter.timestamp) == ("the windows", 0, 4)
        assert (letter.error, letter.error_class) == ("ValueError: no -7", "ValueError")
        assert letter.key == encode_key("a") and letter.record_type == str(PAIR)
        assert "raise ValueError" in letter.traceback
        assert sorted(harness.outputs(0)) == [(1,), (1,), (2,), (2,), (2,)]
        assert harness.metrics()["SlidingEventTimeWindows.numRecordsInErrors"] == 1


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max_per_minute": 2}, "5 records within a minute"),
        ({"max_share": 0.4}, "5 of the latest 10 records"),
    ],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(
            lambda s: FOLDS["aggregate"](WINDOWS["tumbling"](s)).on_error("skip", **bounds), types=[PAIR]
        ) as harness,
    ):
        harness.push(
            *[("a", number if number % 2 else -number) for number in range(1, 11)], timestamps=[1] * 10
        )
        harness.end()
        harness.run()


class FewNumbers(Numbers):
    """Fails at a window whose numbers have an odd sum; it has changed the accumulator before."""

    def add(self, value: Pair, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        accumulator.sort()
        if sum(accumulator) % 2:
            raise ValueError(f"odd: {accumulator.pop()}")
        return tuple(accumulator)


class EvenSums(ProcessWindowFunction):  # type: ignore[type-arg]
    """Gives the results of a window one by one, and fails behind the first of one with an odd sum."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (element,) = elements
        yield element
        if sum(element[1:]) % 2:
            raise ValueError("odd")
        yield element


#: Windows of which some fail when they fire, and the function that makes their content of the rows.
FAILING: dict[str, tuple[Callable[[Any], DataStream], Callable[[list[Pair]], Any]]] = {
    "get_result": (
        lambda windows: windows.aggregate(FewNumbers(), output_type=Types.PICKLED_BYTE_ARRAY()),
        lambda rows: [number for _, number in rows],
    ),
    "window function": (
        lambda windows: windows.reduce(lambda a, b: (a[0], a[1] + b[1]), EvenSums()),
        lambda rows: (rows[0][0], sum(number for _, number in rows)),
    ),
}


@pytest.mark.parametrize("fails", FAILING)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_window_at_which_a_function_fails_leaves_as_its_value(fails: str, restarts: bool) -> None:
    fold, content_of = FAILING[fails]

    def fragment(stream: DataStream) -> list[DataStream]:
        return with_letters(fold(lateness(WINDOWS["tumbling"](stream))))

    rows = {("a", 0): [("a", 4), ("a", 1)], ("b", 0): [("b", 1), ("b", 3)], ("a", 10): [("a", 7)]}
    with OperatorHarness(fragment, types=[PAIR]) as harness:
        for (_, start), of_window in rows.items():
            harness.push(*of_window, timestamps=[start + 1 + at for at in range(len(of_window))])
        current = harness
        if restarts:
            current = harness.restarted(harness.snapshot())
        with current:
            current.watermark(9)
            # The window that has failed begins anew with a late row.
            current.push(("a", 6), timestamps=[5])
            current.watermark(100)
            current.run()
            results, late, letters = (current.outputs(index) for index in range(3))
            assert late == []
            good = content_of(rows["b", 0]), content_of([("a", 6)])
            expected = [tuple(each) for each in good] if fails == "get_result" else [*good, *good]
            assert sorted(results) == sorted(expected)
            told = [(letter.key, letter.timestamp, letter.input) for letter in letters]
            assert told == [(encode_key("a"), 9, PARTIAL_VALUE), (encode_key("a"), 19, PARTIAL_VALUE)]
            load = serializer_for(PAIR if fails == "window function" else None).load_rows
            values = [value for letter in letters for value in load(letter.raw or b"")]
            assert values == [content_of(rows["a", 0]), content_of(rows["a", 10])]
            assert "odd" in letters[0].error and "leaves as one value" in letters[0].error
            assert "raise ValueError" in letters[0].traceback
            name = "TumblingEventTimeWindows.numRecordsInErrors"
            assert current.metrics()[name] == 2


def test_the_letter_of_a_window_by_count_has_no_time() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        return with_letters(WINDOWS["count"](stream).aggregate(FewNumbers()))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", 2), ("a", 4), ("a", 2), ("a", 4), ("a", 6))
        harness.run()
        assert harness.outputs(0) == [(2, 4, 6)]
        (letter,) = harness.outputs(2)
        assert letter.timestamp is None
        assert serializer_for(None).load_rows(letter.raw or b"") == [[1, 2, 4]]


def test_each_window_of_a_row_that_fires_them_fails_by_itself() -> None:
    """The trigger fires the windows of a row one after the other, and only one of them has a failing sum."""

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = WINDOWS["sliding"](stream).trigger(CountTrigger.of(2))
        return with_letters(windows.reduce(lambda a, b: (a[0], a[1] + b[1]), EvenSums()))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        # [4, 14) has both rows, and fails; the other windows have one of them.
        harness.push(("a", 1), ("a", 2), timestamps=[5, 13])
        # Another row in [8, 18) and [12, 22) fires them: 2 + 4.
        harness.push(("a", 4), timestamps=[15])
        harness.run()
        assert harness.outputs(0) == [("a", 6)] * 4
        (letter,) = harness.outputs(2)
        assert serializer_for(PAIR).load_rows(letter.raw or b"") == [("a", 3)]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 1}, "2 records within a minute"), ({"max_share": 0.4}, "2 of the latest 3 records")],
)
def test_past_a_bound_failing_windows_fail_the_job(bounds: dict[str, Any], expected: str) -> None:
    def fragment(stream: DataStream) -> DataStream:
        folded: DataStream = WINDOWS["tumbling"](stream).aggregate(FewNumbers())
        return folded.on_error("skip", **bounds)

    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(fragment, types=[PAIR]) as harness,
    ):
        harness.push(("a", 1), ("b", 3), ("c", 2), timestamps=[1, 2, 3])
        harness.watermark(100)
        harness.end()
        harness.run()


def test_errors_that_are_none_of_a_window_fail_the_job() -> None:
    class OutOfMemory(Numbers):
        def get_result(self, accumulator: Any) -> Any:
            raise MemoryError("no more")

    with (
        pytest.raises(FragmentFailedError, match="no more"),
        OperatorHarness(
            lambda s: WINDOWS["tumbling"](s).aggregate(OutOfMemory()).on_error("skip"), types=[PAIR]
        ) as harness,
    ):
        harness.push(("a", 1), timestamps=[1])
        harness.watermark(100)
        harness.run()


def test_rows_without_a_time_fail_the_job() -> None:
    with (
        pytest.raises(FragmentFailedError, match="timestamp"),
        OperatorHarness(
            lambda s: FOLDS["reduce"](WINDOWS["tumbling"](s)).on_error("skip"), types=[PAIR]
        ) as harness,
    ):
        harness.push(("a", 1))
        harness.run()


def test_an_assigner_that_gives_no_windows_fails_the_job() -> None:
    class Forgets(TumblingEventTimeWindows):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
            return None

    with (
        pytest.raises(FragmentFailedError, match="Forgets gave None: assign_windows must return the windows"),
        OperatorHarness(
            lambda s: by_key(s).window(Forgets(10, 0)).reduce(add).on_error("skip"), types=[PAIR]
        ) as harness,
    ):
        harness.push(("a", 1), timestamps=[1])
        harness.run()


class Twice(TumblingEventTimeWindows):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [*super().assign_windows(element, timestamp, context)] * 2


class Overlapping(EventTimeSessionWindows):
    """Two windows for each row, which become one."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [TimeWindow(timestamp, timestamp + 5), TimeWindow(timestamp + 3, timestamp + 8)]


@pytest.mark.parametrize("assigner", [Twice(10, 0), Overlapping(5)])
@pytest.mark.parametrize("guarded", [False, True])
def test_rows_that_a_trigger_has_purged_do_not_come_back(assigner: Any, guarded: bool) -> None:
    """The second window of a row has the content that the trigger left in the first one."""

    def fragment(stream: DataStream) -> DataStream:
        windows = by_key(stream).window(assigner).trigger(PurgingTrigger.of(CountTrigger.of(1)))
        folded = FOLDS["aggregate"](windows)
        return folded.on_error("skip") if guarded else folded

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", 2), timestamps=[1, 2])
        harness.run()
        assert harness.outputs(0) == [(1,), (1,), (2,), (2,)]


def test_state_of_the_fast_operator_is_taken_up() -> None:
    def plain(stream: DataStream) -> list[DataStream]:
        return without(lateness(WINDOWS["tumbling"](stream)).aggregate(Numbers()).uid("the windows"))

    def guarded(stream: DataStream) -> list[DataStream]:
        return with_letters(lateness(WINDOWS["tumbling"](stream)).aggregate(Numbers()))

    with OperatorHarness(plain, types=[PAIR]) as harness:
        harness.push(("a", 1), timestamps=[1])
        with harness.restarted(harness.snapshot(), fragment=guarded) as again:
            again.push(("a", -1), ("a", 2), timestamps=[2, 3])
            with again.restarted(again.snapshot(), fragment=plain) as last:
                last.push(("a", 3), timestamps=[4])
                last.watermark(100)
                last.run()
                assert last.outputs(0) == [(1, 2, 3)]
