"""Sessions in one list a key: their rules by name, on both backends, each also on the general operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.kept_windows import keeps_nothing
from tests.support.window_functions import CountedCalls, OwnTrigger
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.window.session_windows import SessionWindows
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.functions import (
    AggregateFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
GAP = Time.milliseconds(10)


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


class Numbers(AggregateFunction[Any, Any, Any]):
    """The numbers of a session in a list that changes in place; 13 makes it nothing, and 14 fails."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        if value[1] == 14:
            raise ValueError("fourteen")
        accumulator.append(value[1])
        return None if value[1] == 13 else accumulator

    def get_result(self, accumulator: Any) -> Any:
        if 15 in accumulator:
            raise ValueError("fifteen")
        return tuple(sorted(accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Bounds(WindowFunction[Any, Any, Any, Any]):
    """Key, bounds and element of a session."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield key, window.start, window.end, *inputs


class Shown(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key, bounds and element of a session; it counts the ends of sessions in the state of the key."""

    ENDED: ValueStateDescriptor[int] = ValueStateDescriptor("ended", Types.LONG())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        ended = context.global_state().get_state(self.ENDED).value() or 0
        yield key, context.window().start, context.window().end, *elements, ended

    def clear(self, context: Any) -> None:
        ended = context.global_state().get_state(self.ENDED)
        ended.update((ended.value() or 0) + 1)


@pytest.fixture(params=["fast", "general"])
def sessions(request: pytest.FixtureRequest) -> Callable[[DataStream], Any]:
    """Cuts a stream into sessions that take one way or the other: each test holds for both."""

    def cut(stream: DataStream) -> Any:
        made = stream.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(GAP))
        return made if request.param == "fast" else made.trigger(OwnTrigger())

    return cut


def operator_of(harness: OperatorHarness) -> Any:
    return harness.tasks[0].chain.operators[0]


class GapOfRow(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 10


def test_sessions_with_one_gap_and_the_default_trigger_take_the_fast_way(run: Any) -> None:
    def way(assigner: Any, cut: Callable[[Any], Any] = lambda windows: windows) -> Any:
        return type(
            operator_of(run(lambda s: cut(s.key_by(lambda row: row[0]).window(assigner)).reduce(add)))
        )

    assert way(EventTimeSessionWindows.with_gap(GAP)) is SessionWindows
    assert way(EventTimeSessionWindows.with_gap(GAP), lambda w: w.trigger(OwnTrigger())) is WindowingOperator
    assert way(ProcessingTimeSessionWindows.with_gap(GAP)) is WindowingOperator
    assert way(DynamicEventTimeSessionWindows.with_dynamic_gap(GapOfRow())) is WindowingOperator


def test_a_session_ends_a_gap_behind_its_last_row(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).reduce(add))
    harness.push(("a", 1), ("a", 2), ("b", 4), ("a", 8), timestamps=[0, 9, 5, 20])
    harness.watermark(13)
    assert (harness.output, harness.timestamps()) == ([], [])
    harness.watermark(14)
    assert (harness.output, harness.timestamps()) == ([("b", 4)], [14])
    # Windows that touch are one session: 9 + 10 is 19, and the row at 20 comes behind it.
    harness.watermark(18)
    harness.watermark(29)
    assert (harness.output[1:], harness.timestamps()[1:]) == ([("a", 3), ("a", 8)], [18, 29])
    assert keeps_nothing(operator_of(harness))


def test_a_row_between_two_sessions_joins_them(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).aggregate(Numbers(), Shown()))
    harness.push(("a", 1), ("a", 2), ("a", 4), timestamps=[0, 20, 40])
    harness.push(("a", 8), timestamps=[10])
    harness.watermark(100)
    assert harness.output == [("a", 0, 30, (1, 2, 8), 0), ("a", 40, 50, (4,), 1)]


def test_a_row_before_all_sessions_begins_one_that_fires_first(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).reduce(add))
    harness.push(("a", 1), ("a", 2), timestamps=[50, 20])
    harness.watermark(29)
    assert harness.output == [("a", 2)]
    harness.watermark(59)
    assert harness.output == [("a", 2), ("a", 1)]
    assert keeps_nothing(operator_of(harness))


def test_a_late_row_that_touches_a_live_session_belongs_to_it(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).reduce(add))
    harness.push(("a", 1), ("b", 1), timestamps=[20, 20])
    harness.watermark(25)
    # Alone the row would be late, as that of the key "c" is.
    harness.push(("a", 2), ("b", 2), ("c", 2), timestamps=[10, 9, 10])
    harness.watermark(29)
    assert sorted(harness.output) == [("a", 3), ("b", 1)]
    assert operator_of(harness).late_dropped == 2


def test_late_rows_go_to_their_side_output_with_their_own_time(run: Any, sessions: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        main = sessions(stream).side_output_late_data(LATE).reduce(add)
        return [main, main.get_side_output(LATE)]

    harness = run(fragment)
    harness.watermark(30)
    harness.push(("a", 1), ("a", 2), ("a", 4), timestamps=[21, 22, 3])
    assert (harness.outputs(1), harness.timestamps(1)) == ([("a", 1), ("a", 4)], [21, 3])
    harness.watermark(100)
    assert (harness.output, harness.timestamps()) == ([("a", 2)], [31])
    report: Any = operator_of(harness)._ledger.report()
    assert sum(report.places.values()) == 2
    assert [(record.timestamp, record.delay_ms, record.key) for record in report.last] == [
        (21, 1, "'a'"),
        (3, 19, "'a'"),
    ]


def test_a_row_inside_the_lateness_fires_its_session_again(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).allowed_lateness(20).aggregate(Numbers(), Shown()))
    harness.push(("a", 1), ("b", 2), timestamps=[0, 0])
    harness.watermark(9)
    harness.push(("a", 4), timestamps=[0])
    assert sorted(harness.output) == [("a", 0, 10, (1,), 0), ("a", 0, 10, (1, 4), 0), ("b", 0, 10, (2,), 0)]
    # The row prolongs a session that has fired beyond the watermark: it fires at its new end.
    harness.push(("b", 8), timestamps=[5])
    assert len(harness.output) == 3
    harness.watermark(14)
    assert harness.output[3:] == [("b", 0, 15, (2, 8), 0)]
    harness.watermark(28)
    harness.push(("a", 16), ("b", 32), timestamps=[9, 9])
    assert harness.output[4:] == [("a", 0, 19, (1, 4, 16), 0), ("b", 0, 19, (2, 8, 32), 0)]
    assert operator_of(harness).late_dropped == 0
    harness.watermark(38)
    assert keeps_nothing(operator_of(harness))
    harness.push(("a", 64), timestamps=[9])
    assert operator_of(harness).late_dropped == 1
    harness.push(("a", 64), timestamps=[50])
    harness.watermark(59)
    assert harness.output[6:] == [("a", 50, 60, (64,), 1)]


def test_at_the_greatest_watermark_everything_left_fires_at_once(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).allowed_lateness(1000).reduce(add))
    harness.push(*[("a", 1 << at) for at in range(6)], timestamps=[0, 3, 50, 53, 53, 100])
    harness.watermark(MAX_TIMESTAMP)
    assert sorted(harness.output) == [("a", 3), ("a", 28), ("a", 32)]
    assert keeps_nothing(operator_of(harness))


def test_a_session_has_one_timer_which_is_armed_again_when_it_comes_too_early(run: Any) -> None:
    harness = run(
        lambda s: s.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(GAP)).reduce(add)
    )
    operator = operator_of(harness)
    timers = operator._timers.event_timers
    harness.push(*[("a", 1)] * 5, timestamps=[0, 5, 3, 9, 15])
    assert (len(timers), timers.next_timestamp) == (1, 9)
    harness.watermark(12)
    assert harness.output == []
    assert (len(timers), timers.next_timestamp) == (1, 24)
    harness.push(("a", 1), timestamps=[40])
    harness.push(("a", 1), timestamps=[30])
    assert (len(timers), timers.next_timestamp) == (2, 24)
    # The row joins all of them: one timer is left.
    harness.push(("a", 1), timestamps=[24])
    assert (len(timers), timers.next_timestamp) == (1, 24)
    harness.watermark(60)
    assert harness.output == [("a", 8)]
    assert operator.fired_timers == 2


def test_a_session_that_keeps_nothing_has_no_result(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).aggregate(Numbers()))
    harness.push(*[("a", n) for n in (5, 13, 13, 20)], timestamps=[1, 2, 31, 61])
    harness.push(("b", 5), ("b", 13), ("b", 6), timestamps=[1, 2, 3])
    # A session that keeps nothing still joins others.
    harness.push(("a", 7), timestamps=[21])
    harness.watermark(100)
    assert sorted(harness.output) == [(6,), (7,), (20,)]
    assert keeps_nothing(operator_of(harness))


def test_functions_may_have_state_of_their_key(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).reduce(CountedCalls()))
    harness.push(*[(key, 0) for key in "aababb"], timestamps=[1, 2, 3, 4, 5, 35])
    harness.watermark(60)
    assert sorted(harness.output) == [("a", 2), ("b", 0), ("b", 1)]


def test_state_of_one_window_is_refused(run: Any, sessions: Any) -> None:
    class OfWindow(Shown):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            context.window_state()
            return ()

    harness = run(lambda s: sessions(s).reduce(add, OfWindow()))
    harness.push(("a", 1), timestamps=[1])
    with pytest.raises(FragmentFailedError, match="windows that merge have no state of their own"):
        harness.watermark(20)


def test_a_row_that_is_none_is_refused(run: Any) -> None:
    windows = EventTimeSessionWindows.with_gap(GAP)
    harness = run(lambda s: s.key_by(lambda row: "a").window(windows).reduce(lambda first, second: first))
    with pytest.raises(FragmentFailedError, match="'_sessions': None cannot be added"):
        harness.push(None, timestamps=[1])


def test_a_row_without_a_timestamp_is_refused_with_its_key(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).reduce(add))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", 1))
    text = str(caught.value)
    assert "got a record without a timestamp" in text and "('a', 1)" in text and "of the key 'a'" in text


@pytest.mark.parametrize("times", [[MAX_TIMESTAMP - 9], [MAX_TIMESTAMP - 12, MAX_TIMESTAMP - 9]])
def test_a_session_that_ends_beyond_64_bits_is_refused(run: Any, times: list[int]) -> None:
    windows = EventTimeSessionWindows.with_gap(GAP)
    harness = run(lambda s: s.key_by(lambda row: row[0]).window(windows).reduce(add))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(*[("a", 2)] * len(times), timestamps=times)
    text = str(caught.value)
    assert f"the time {times[-1]} and the gap of 10 ms give an end beyond 64 bits" in text
    assert "('a', 2) (window TimeWindow(" in text and "of the key 'a')" in text


@pytest.mark.parametrize("rows", [[(14, 0)], [(1, 0), (14, 3)], [(1, 5), (14, 0)]])
def test_errors_of_functions_name_record_window_and_key(
    run: Any, sessions: Any, rows: list[tuple[int, int]]
) -> None:
    harness = run(lambda s: sessions(s).aggregate(Numbers()))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(*[("a", number) for number, _ in rows], timestamps=[time for _, time in rows])
    text = str(caught.value)
    assert "('a', 14) (window TimeWindow(start=" in text and "of the key 'a')" in text
    assert "ValueError: fourteen" in text


def test_errors_of_results_name_window_and_key(run: Any, sessions: Any) -> None:
    harness = run(lambda s: sessions(s).aggregate(Numbers()))
    harness.push(("a", 15), timestamps=[11])
    with pytest.raises(FragmentFailedError) as caught:
        harness.watermark(20)
    text = str(caught.value)
    assert "timer at 20 (window TimeWindow(start=11, end=21) of the key 'a')" in text and "fifteen" in text


def test_an_aggregate_whose_merge_is_missing_fails_where_sessions_merge(run: Any, sessions: Any) -> None:
    class Apart(Numbers):
        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            raise NotImplementedError("these accumulators do not merge")

    harness = run(lambda s: sessions(s).aggregate(Apart()))
    harness.push(("a", 1), ("a", 2), timestamps=[0, 20])
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", 4), timestamps=[10])
    text = str(caught.value)
    assert "('a', 4) (window TimeWindow(start=0, end=30) of the key 'a')" in text
    assert "NotImplementedError: these accumulators do not merge" in text


def test_an_aggregate_whose_merge_returns_nothing_fails_where_sessions_merge(run: Any, sessions: Any) -> None:
    class Lost(Numbers):
        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            """The program has forgotten the return."""

    harness = run(lambda s: sessions(s).aggregate(Lost()))
    harness.push(("a", 1), ("a", 2), timestamps=[0, 20])
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(("a", 4), timestamps=[10])
    text = str(caught.value)
    assert "('a', 4) (window TimeWindow(start=0, end=30) of the key 'a')" in text
    assert "merge of Lost returned None" in text


def test_emitted_results_and_sessions_are_apart(run: Any, sessions: Any) -> None:
    class Listed(Numbers):
        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    def spoiled(result: list[Any]) -> list[Any]:
        result.append("spoiled")
        return result[:-1]

    harness = run(lambda s: sessions(s).allowed_lateness(10).aggregate(Listed()).map(spoiled))
    harness.push(("a", 1), timestamps=[1])
    harness.watermark(10)
    harness.push(("a", 2), timestamps=[1])
    assert harness.output == [[1], [1, 2]]


def test_sessions_of_a_whole_stream(run: Any) -> None:
    harness = run(lambda s: s.window_all(EventTimeSessionWindows.with_gap(GAP)).reduce(add))
    harness.push(("a", 1), ("b", 2), ("c", 4), timestamps=[0, 5, 30])
    harness.watermark(50)
    assert harness.output == [("a", 3), ("c", 4)]
    (vertex,) = (v for v in harness.graph.vertices if "Session" in v.operators[0].name)
    assert (vertex.parallelism, vertex.max_parallelism) == (1, 1)
    assert type(operator_of(harness)) is SessionWindows


@pytest.mark.parametrize("chained", [False, True], ids=["head", "chained"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.one_of(
            st.lists(
                st.tuples(
                    st.sampled_from([1, 2.5, "c", None, (1, "d")]), st.integers(0, 9), st.integers(0, 90)
                ),
                min_size=1,
                max_size=8,
            ),
            st.integers(0, 90),
        ),
        max_size=12,
    ),
    lateness=st.sampled_from([0, 15]),
)
def test_both_ways_give_the_same(run: Any, chained: bool, steps: list[Any], lateness: int) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        stream = stream.map(lambda row: row) if chained else stream
        made: list[DataStream] = []
        for trigger in (None, OwnTrigger()):
            windows = stream.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(GAP))
            windows = windows.allowed_lateness(lateness).side_output_late_data(LATE)
            windows = windows if trigger is None else windows.trigger(trigger)
            results = windows.aggregate(Numbers(), Bounds())
            made += [results, results.get_side_output(LATE)]
        return made

    harness = run(fragment)
    for step in [*steps, 1000]:
        if isinstance(step, list):
            harness.push(*[row[:2] for row in step], timestamps=[row[2] for row in step])
        else:
            harness.watermark(step)
        for fast, general in ((0, 2), (1, 3)):
            assert found(harness, fast) == found(harness, general)
    harness.close()


def found(harness: OperatorHarness, output: int) -> list[str]:
    """Rows with their times, in no order: none is promised among keys."""
    pairs = zip(harness.outputs(output), harness.timestamps(output), strict=True)
    return sorted(map(repr, pairs))


class WalkedList(list[Any]):
    """A list that counts how often a program walks over it."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_a_row_that_begins_a_session_does_not_walk_over_the_others_of_its_key() -> None:
    def fragment(rows: DataStream) -> DataStream:
        return rows.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(GAP)).reduce(add)

    with OperatorHarness(fragment) as harness:
        harness.push(*[("a", 1)] * 2, timestamps=[0, 100])
        operator: Any = harness.tasks[0].chain.operators[0]
        _, entries, (*last, before, first, behind) = operator._table.find("a")
        entries["a"] = (*last, walked := WalkedList(before), first, behind)
        harness.push(*[("a", 1)] * 20, timestamps=[100 * number for number in range(2, 22)])
        assert operator._table.find("a")[2][-3] is walked
        assert len(walked) == 21 and walked.walks == 0
