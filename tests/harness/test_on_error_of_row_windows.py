"""on_error of windows of all rows: where the function of a window fails, each of its rows leaves as a letter, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.crashed_runs import feed, outputs_over_a_crash
from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time, TimestampAssigner, WatermarkStrategy
from yarrow.common.typeinfo import Types
from yarrow.datastream import CoGroupFunction, DataStream, KeyedStream, OutputTag
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import ROW_OF_WINDOW
from yarrow.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from yarrow.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ASIDE = OutputTag("aside", Types.LONG())
#: A key and a number; a window with a number below 0 fails.
Pair = tuple[str, int]


def ms(number: int) -> Time:
    return Time.milliseconds(number)


def numbers_of(elements: Any) -> tuple[int, ...]:
    return tuple(sorted(number for _, number in elements))


class Numbers(ProcessWindowFunction):  # type: ignore[type-arg]
    """Fails behind its first results, one of them aside."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        numbers = numbers_of(elements)
        yield numbers
        yield ASIDE, numbers[0]
        if numbers and numbers[0] < 0:
            raise ValueError(f"no {numbers[0]}")


class AllNumbers(ProcessAllWindowFunction):  # type: ignore[type-arg]
    def process(self, context: Any, elements: Any) -> Any:
        return Numbers().process(None, context, elements)


def by_key(stream: DataStream) -> KeyedStream:
    return stream.key_by(lambda pair: pair[0], Types.STRING())


WINDOWS: dict[str, Callable[[DataStream], DataStream]] = {
    "tumbling": lambda s: by_key(s).window(TumblingEventTimeWindows.of(ms(10))).process(Numbers()),
    "sliding": lambda s: by_key(s).window(SlidingEventTimeWindows.of(ms(10), ms(4))).process(Numbers()),
    "sessions": lambda s: by_key(s).window(EventTimeSessionWindows.with_gap(ms(5))).process(Numbers()),
    "all": lambda s: s.window_all(TumblingEventTimeWindows.of(ms(10))).process(AllNumbers()),
    "evictor": lambda s: (
        by_key(s).window(TumblingEventTimeWindows.of(ms(10))).evictor(CountEvictor.of(100)).process(Numbers())
    ),
    "count": lambda s: by_key(s).count_window(3).process(Numbers()),
}


def with_letters(stream: DataStream) -> list[DataStream]:
    aside = stream.get_side_output(ASIDE)
    stream = stream.uid("the windows").on_error("dead_letter")
    return [stream, aside, stream.dead_letters()]


def rows_of(letters: list[DeadLetter], declared: Any = PAIR) -> list[Any]:
    load = serializer_for(declared).load_rows
    return [row for letter in letters for row in load(letter.raw or b"")]


STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from("ab"), st.integers(-3, 20)),
        st.integers(0, 40),
        st.none() | st.integers(0, 40),
    ),
    max_size=10,
)


class Kept(ProcessWindowFunction):  # type: ignore[type-arg]
    """The rows of each window, which never fails."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield tuple(elements)


class AllKept(ProcessAllWindowFunction):  # type: ignore[type-arg]
    def process(self, context: Any, elements: Any) -> Any:
        yield tuple(elements)


def kept(windows: str) -> Callable[[DataStream], DataStream]:
    """The same windows with a function that never fails."""
    build: dict[str, Callable[[DataStream], DataStream]] = {
        "tumbling": lambda s: by_key(s).window(TumblingEventTimeWindows.of(ms(10))).process(Kept()),
        "sliding": lambda s: by_key(s).window(SlidingEventTimeWindows.of(ms(10), ms(4))).process(Kept()),
        "sessions": lambda s: by_key(s).window(EventTimeSessionWindows.with_gap(ms(5))).process(Kept()),
        "all": lambda s: s.window_all(TumblingEventTimeWindows.of(ms(10))).process(AllKept()),
        "evictor": lambda s: by_key(s).window(TumblingEventTimeWindows.of(ms(10))).process(Kept()),
        "count": lambda s: by_key(s).count_window(3).process(Kept()),
    }
    return build[windows]


@pytest.mark.parametrize("windows", WINDOWS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=10)
@given(STEPS, st.integers(0, 10), st.sampled_from(["hashmap", "rocksdb"]))
def test_rows_of_a_window_that_fails_leave_once_each(
    windows: str, drawn: list[Any], cut: int, backend: str
) -> None:
    # Each row is another one.
    steps = [((key, number * 100 + at), time, mark) for at, ((key, number), time, mark) in enumerate(drawn)]
    configuration = {"state.backend.type": backend}
    found = outputs_over_a_crash(
        lambda s: with_letters(WINDOWS[windows](s)), PAIR, steps, cut, backend, outputs=3
    )
    with OperatorHarness(kept(windows), types=[PAIR], configuration=configuration) as harness:
        feed(harness, steps, -1)
        harness.watermark(1000)
        harness.run()
        fired = harness.output
    good = [numbers_of(rows) for rows in fired if numbers_of(rows)[0] >= 0]
    bad = [row for rows in fired if numbers_of(rows)[0] < 0 for row in rows]
    assert Counter(found[0]) == Counter(good)
    assert Counter(found[1]) == Counter(numbers[0] for numbers in good)
    assert Counter(rows_of(found[2])) == Counter(bad)
    times = {row: time for row, time, _ in steps}
    assert all(letter.timestamp == times[rows_of([letter])[0]] for letter in found[2])


def test_a_letter_tells_the_window_and_one_has_the_traceback() -> None:
    with OperatorHarness(lambda s: with_letters(WINDOWS["tumbling"](s)), types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", -7), ("b", 2), timestamps=[3, 4, 5])
        harness.watermark(100)
        harness.run()
        assert (harness.outputs(0), harness.outputs(1)) == ([(2,)], [2])
        first, second = harness.outputs(2)
        assert rows_of([first, second]) == [("a", 1), ("a", -7)]
        for letter in (first, second):
            assert (letter.operator, letter.input, letter.key) == (
                "the windows",
                ROW_OF_WINDOW,
                encode_key("a"),
            )
            assert letter.error.startswith("ValueError: no -7; all 2 rows of the window TimeWindow(")
            assert letter.record_type == str(PAIR)
        assert "raise ValueError" in first.traceback and second.traceback == ""
        assert harness.metrics()["TumblingEventTimeWindows.numRecordsInErrors"] == 2


def test_late_rows_begin_a_window_anew() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = by_key(stream).window(TumblingEventTimeWindows.of(ms(10))).allowed_lateness(50)
        return with_letters(windows.process(Numbers()))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", -7), timestamps=[3, 4])
        harness.watermark(20)
        harness.push(("a", 5), timestamps=[5])
        harness.watermark(100)
        harness.run()
        assert harness.outputs(0) == [(5,)] and len(harness.outputs(2)) == 2


class ChangesRows(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for element in elements:
            element.append("changed")
        raise ValueError("no")


def test_a_letter_holds_the_row_as_it_came() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(ms(10)))
        return with_letters(windows.process(ChangesRows()))

    with OperatorHarness(fragment) as harness:
        harness.push(["a", 1], ["a", 2], timestamps=[1, 2])
        harness.watermark(100)
        harness.run()
        assert rows_of(harness.outputs(2), None) == [["a", 1], ["a", 2]]


def test_a_reduce_behind_an_evictor_fails_as_a_window_does() -> None:
    def refuse(first: Pair, second: Pair) -> Pair:
        raise ValueError("no pair")

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = by_key(stream).window(TumblingEventTimeWindows.of(ms(10))).evictor(CountEvictor.of(2))
        return with_letters(windows.reduce(refuse))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("a", 2), ("a", 3), ("b", 4), timestamps=[1, 2, 3, 4])
        harness.watermark(100)
        harness.run()
        # The evictor had removed one: the window leaves with all its rows.
        assert harness.outputs(0) == [("b", 4)]
        assert rows_of(harness.outputs(2)) == [("a", 1), ("a", 2), ("a", 3)]


class Refuses(TumblingEventTimeWindows):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        if element[1] < 0:
            raise ValueError("no window")
        return super().assign_windows(element, timestamp, context)


def test_a_row_at_which_the_assigner_fails_leaves_alone() -> None:
    with OperatorHarness(
        lambda s: with_letters(by_key(s).window(Refuses(10, 0)).process(Numbers())), types=[PAIR]
    ) as harness:
        harness.push(("a", 1), ("a", -7), timestamps=[3, 4])
        harness.watermark(100)
        harness.run()
        (letter,) = harness.outputs(2)
        assert (harness.outputs(0), letter.input, letter.timestamp) == ([(1,)], 0, 4)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 2}, "4 records within a minute"), ({"max_share": 0.4}, "4 of the latest 6 records")],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(lambda s: WINDOWS["tumbling"](s).on_error("skip", **bounds), types=[PAIR]) as harness,
    ):
        harness.push(*[("a", number) for number in (-1, 2, 3, 4)], ("b", 5), ("b", 6), timestamps=[1] * 6)
        harness.watermark(100)
        harness.end()
        harness.run()


def test_a_share_counts_the_rows_of_a_window_when_it_fires() -> None:
    """The window that fails has all rows of the latest blocks, and a fifth of the rows of windows."""
    with OperatorHarness(
        lambda s: WINDOWS["tumbling"](s).on_error("skip", max_share=0.5), types=[PAIR]
    ) as harness:
        harness.push(*[("a", 5)] * 4000, timestamps=[1] * 4000)
        harness.run()
        for _ in range(2):
            harness.push(*[("b", -1)] * 500, timestamps=[11] * 500)
            harness.run()
        harness.watermark(100)
        harness.end()
        harness.run()
        assert harness.outputs(0) == [(5,) * 4000]


class Both(CoGroupFunction):  # type: ignore[type-arg]
    def co_group(self, first: Any, second: Any) -> Any:
        rows = [*first, *second]
        if any(number < 0 for _, number in rows):
            raise ValueError("no group")
        return [numbers_of(rows)]


def add(left: Pair, right: Pair) -> int:
    if left[1] < 0:
        raise ValueError("no pair")
    return left[1] + right[1]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: a.co_group(b), [(2, 20)]),
        (lambda a, b: a.join(b), [22]),
    ],
)
def test_rows_of_two_streams_leave_tagged(build: Any, expected: list[Any]) -> None:
    def fragment(a: DataStream, b: DataStream) -> list[DataStream]:
        both = build(a, b).where(lambda row: row[0], Types.STRING()).equal_to(lambda row: row[0])
        windows = both.window(TumblingEventTimeWindows.of(ms(10)))
        return with_letters(windows.apply(Both() if expected == [(2, 20)] else add))

    tagged = Types.TUPLE([Types.BYTE(), PAIR, PAIR])
    with OperatorHarness(fragment, inputs=2, types=[PAIR, PAIR]) as harness:
        harness.push(("a", -1), ("a", 1), ("b", 2), timestamps=[1, 2, 3])
        harness.push(("a", 10), ("b", 20), timestamps=[1, 2], input=1)
        for each in (0, 1):
            harness.watermark(100, input=each)
        harness.run()
        assert harness.outputs(0) == expected
        assert sorted(map(repr, rows_of(harness.outputs(2), tagged))) == sorted(
            map(repr, [(0, ("a", -1), None), (0, ("a", 1), None), (1, None, ("a", 10))])
        )
        assert {letter.record_type for letter in harness.outputs(2)} == {str(tagged)}


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 5


def test_a_bounded_input() -> None:
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    rows = env.from_collection([("a", 1), ("a", -2), ("b", 3)], PAIR).assign_timestamps_and_watermarks(
        strategy
    )
    found = WINDOWS["tumbling"](rows).uid("the windows").on_error("dead_letter")
    letters = found.dead_letters().map(lambda letter: (letter.operator, letter.timestamp))
    assert sorted(map(str, collect(env, found.union(letters)))) == sorted(
        map(str, [(3,), ("the windows", 5), ("the windows", 5)])
    )


def plain(windows: str) -> Callable[[DataStream], DataStream]:
    return lambda s: WINDOWS[windows](s).uid("the windows")


def guarded(windows: str) -> Callable[[DataStream], list[DataStream]]:
    return lambda s: with_letters(WINDOWS[windows](s))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("windows", "ends"),
    [
        ("tumbling", {19: (-5, 1, 2)}),
        ("sliding", {17: (-5, 1, 2), 21: (-5, 1, 2)}),
        ("all", {19: (-5, 1, 2)}),
        ("count", {None: (-5, 1, 2)}),
    ],
)
def test_on_error_is_added_and_removed_while_windows_are_open(
    windows: str, ends: dict[int | None, tuple[int, ...]], backend: str
) -> None:
    """The rows from before on_error bear the start of their window in letters."""
    settings = {"state.backend.type": backend}
    with OperatorHarness(plain(windows), types=[PAIR], configuration=settings) as first:
        first.push(("a", 1), timestamps=[14])
        with first.restarted(fragment=guarded(windows)) as second:
            second.push(("a", 2), timestamps=[15])
            third = second.restarted(fragment=plain(windows))
            with third.restarted(fragment=guarded(windows)) as fourth:
                fourth.push(("a", -5), timestamps=[15])
                fourth.watermark(100)
                fourth.run()
                letters = fourth.outputs(2)
                assert fourth.outputs(0) == []
    rows = rows_of(letters)
    assert Counter(number for _, number in rows) == Counter(n for each in ends.values() for n in each)
    starts: list[int | None] = [end - 9 for end in ends if end is not None]
    times = {
        number: [each.timestamp for each in letters if row_of(each)[1] == number] for number in (1, 2, -5)
    }
    assert times == {1: starts or [None], 2: starts or [None], -5: [15] * len(ends)}


def row_of(letter: DeadLetter) -> Any:
    (row,) = rows_of([letter])
    return row


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_give_the_rows_from_before_when_on_error_is_removed(windows: str, backend: str) -> None:
    settings = {"state.backend.type": backend}
    with OperatorHarness(guarded(windows), types=[PAIR], configuration=settings) as harness:
        harness.push(("a", 1), ("a", 2), timestamps=[14, 15])
        with harness.restarted(fragment=plain(windows)) as again:
            again.push(("a", 3), timestamps=[16])
            again.watermark(100)
            assert {row for row in again.output if len(row) == 3} == {(1, 2, 3)}


def test_sessions_without_the_times_of_their_rows_are_refused_by_name() -> None:
    with OperatorHarness(plain("sessions"), types=[PAIR]) as harness:
        harness.push(("a", 1), timestamps=[1])
        snapshot = harness.snapshot()
        with pytest.raises(
            FragmentFailedError, match="'_window_contents': the snapshot holds windows without"
        ):
            harness.restarted(snapshot, fragment=guarded("sessions")).close()
