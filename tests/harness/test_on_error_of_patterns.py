"""on_error of patterns: a row at which a condition fails leaves as a letter, and so does a match without results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.crashed_runs import feed, outputs_over_a_crash
from tests.harness.failing_patterns import DRAWN_ROWS, FailingPattern, Row
from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.cep import (
    CEP,
    AfterMatchSkipStrategy,
    Pattern,
    PatternProcessFunction,
    TimedOutPartialMatchHandler,
)
from yarrow.cep.conditions import IterativeCondition
from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import DataStream
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import LAST_OF_MATCH
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

#: A key, a letter and a number of its own. The letter "x" fails every condition.
ROW = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def is_letter(letter: str) -> Callable[[Row], bool]:
    def condition(row: Row) -> bool:
        if row[1] == "x":
            raise ValueError(f"no {row[2]}")
        return row[1] == letter

    return condition


class Rises(IterativeCondition):
    """A "b" with a greater number than all before it."""

    def filter(self, value: Any, ctx: Any) -> bool:
        if value[1] == "x":
            raise ValueError(f"no {value[2]}")
        return value[1] == "b" and all(row[2] < value[2] for row in ctx.get_events_for_pattern("first"))


def within(pattern: Any) -> Any:
    return pattern.within(Time.milliseconds(30))


PATTERNS: dict[str, Callable[[], Any]] = {
    "next": lambda: within(Pattern.begin("first").where(is_letter("a")).next("last").where(is_letter("b"))),
    "followed by": lambda: within(
        Pattern.begin("first").where(is_letter("a")).followed_by("last").where(is_letter("b"))
    ),
    "looping": lambda: within(
        Pattern.begin("first").where(is_letter("a")).one_or_more().followed_by("last").where(is_letter("b"))
    ),
    "iterative": lambda: within(
        Pattern.begin("first").where(is_letter("a")).followed_by_any("last").where(Rises())
    ),
    "skipping": lambda: within(
        Pattern.begin("first", AfterMatchSkipStrategy.skip_past_last_event())
        .where(is_letter("a"))
        .followed_by_any("last")
        .where(is_letter("b"))
    ),
}


class Shown(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield repr(match), ctx.timestamp()


def matching(pattern: Any, stream: DataStream) -> DataStream:
    return CEP.pattern(stream.key_by(lambda row: row[0], Types.STRING()), pattern).process(Shown())


def with_letters(stream: DataStream) -> list[DataStream]:
    stream = stream.uid("the pattern").on_error("dead_letter")
    return [stream, stream.dead_letters()]


def rows_of(letters: list[DeadLetter]) -> list[Row]:
    load = serializer_for(ROW).load_rows
    return [row for letter in letters for row in load(letter.raw or b"")]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=10)
@given(DRAWN_ROWS, st.integers(0, 12), st.sampled_from(["hashmap", "rocksdb"]))
def test_a_row_that_fails_changes_no_partial_match(
    pattern: str, drawn: list[Any], cut: int, backend: str
) -> None:
    build = PATTERNS[pattern]
    failing = FailingPattern(
        lambda s: with_letters(matching(build(), s)), lambda s: matching(build(), s), ROW, rows_of
    )
    failing.check_failing_rows(drawn, cut, backend)


def test_a_letter_of_a_condition_tells_the_row_its_key_and_its_time() -> None:
    with OperatorHarness(lambda s: with_letters(matching(PATTERNS["next"](), s)), types=[ROW]) as harness:
        harness.push(("k", "a", 1), ("k", "x", 2), ("k", "b", 3), timestamps=[1, 2, 3])
        harness.watermark(10)
        harness.run()
        assert [time for _, time in harness.outputs(0)] == [3]
        (letter,) = harness.outputs(1)
        assert rows_of([letter]) == [("k", "x", 2)]
        assert (letter.operator, letter.input, letter.timestamp) == ("the pattern", 0, 2)
        assert (letter.error, letter.key) == ("ValueError: no 2", encode_key("k"))
        assert "raise ValueError" in letter.traceback and letter.record_type == str(ROW)
        assert harness.metrics()["CEP.numRecordsInErrors"] == 1


class Refuses(PatternProcessFunction):
    """Fails behind its first result, if the last number is even."""

    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        made = [match["first"][0][2]]
        yield made
        made.append(match["last"][0][2])
        if made[1] % 2 == 0:
            raise ValueError(f"no {made[1]}")
        yield made


def test_a_match_that_fails_gives_a_letter_with_its_last_row() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        keyed = stream.key_by(lambda row: row[0], Types.STRING())
        return with_letters(CEP.pattern(keyed, PATTERNS["followed by"]()).process(Refuses()))

    with OperatorHarness(fragment, types=[ROW]) as harness:
        harness.push(("k", "a", 1), ("k", "b", 2), ("k", "a", 3), timestamps=[1, 2, 3])
        harness.watermark(3)
        snapshot = harness.snapshot()
        first = harness.outputs(1)
        with harness.restarted(snapshot) as again:
            again.push(("k", "b", 5), timestamps=[5])
            again.watermark(100)
            again.run()
            assert (again.outputs(0), again.outputs(1)) == ([[3], [3, 5]], [])
    (letter,) = first
    assert rows_of([letter]) == [("k", "b", 2)]
    assert (letter.input, letter.timestamp, letter.key) == (LAST_OF_MATCH, 2, encode_key("k"))
    assert letter.error == "ValueError: no 2; match {'first': [('k', 'a', 1)], 'last': [('k', 'b', 2)]}"
    assert letter.record_type == str(ROW)
    assert letter.steps == ("first", "last") and (letter.match_time, letter.timed_out) == (2, False)
    assert serializer_for(ROW).load_rows(letter.rows or b"") == [("k", "a", 1), ("k", "b", 2)]
    assert DeadLetter.from_json(letter.to_json()) == letter


class RefusesPartialOnes(Shown, TimedOutPartialMatchHandler):
    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        raise ValueError(f"no {ctx.timestamp()}")


def test_a_partial_match_that_fails_gives_a_letter_that_says_so() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        keyed = stream.key_by(lambda row: row[0], Types.STRING())
        return with_letters(CEP.pattern(keyed, PATTERNS["looping"]()).process(RefusesPartialOnes()))

    with OperatorHarness(fragment, types=[ROW]) as harness:
        harness.push(("k", "a", 1), ("k", "a", 2), timestamps=[1, 2])
        harness.watermark(100)
        harness.run()
        found: list[DeadLetter] = harness.outputs(1)
    assert [(letter.steps, letter.match_time, letter.timed_out) for letter in found] == [
        (("first", "first"), 31, True),
        (("first",), 31, True),
        (("first",), 32, True),
    ]


def test_a_match_of_rows_that_do_not_fit_their_type_gives_a_letter_without_them() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        keyed = stream.key_by(lambda row: row[0], Types.STRING())
        return with_letters(CEP.pattern(keyed, PATTERNS["followed by"]()).process(Refuses()))

    with OperatorHarness(fragment, types=[ROW]) as harness:
        harness.push(("k", "a", "one"), ("k", "b", 2), timestamps=[1, 2])
        harness.watermark(100)
        harness.run()
        (letter,) = harness.outputs(1)
    assert rows_of([letter]) == [("k", "b", 2)]
    assert (letter.steps, letter.rows) == ((), None)


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_by_the_clock_of_the_machine(keyed: bool) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        read = stream.key_by(lambda row: row[0], Types.STRING()) if keyed else stream
        return with_letters(CEP.pattern(read, PATTERNS["next"]()).in_processing_time().process(Shown()))

    with OperatorHarness(fragment, types=[ROW]) as harness:
        harness.push(("k", "x", 0), ("k", "a", 1), ("k", "x", 2), ("k", "b", 3))
        harness.run()
        assert len(harness.outputs(0)) == 1
        assert [(row[2], letter.timestamp) for letter in harness.outputs(1) for row in rows_of([letter])] == [
            (0, None),
            (2, None),
        ]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 2}, "3 records within a minute"), ({"max_share": 0.4}, "3 of the latest 6 records")],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(
            lambda s: matching(PATTERNS["next"](), s).on_error("skip", **bounds), types=[ROW]
        ) as harness,
    ):
        harness.push(*[("k", letter, at) for at, letter in enumerate("cxcxcx")], timestamps=range(1, 7))
        harness.watermark(100)
        harness.end()
        harness.run()


def by_number(one: Row, other: Row) -> int:
    """Fails at the letter "x", with itself too, and at numbers one of which is a text."""
    if "x" in (one[1], other[1]):
        raise ValueError(f"no {one} beside {other}")
    return (one[2] > other[2]) - (one[2] < other[2])


def compared(stream: DataStream, clock: str = "event") -> DataStream:
    pattern = Pattern.begin("first").next("last").within(Time.milliseconds(30))
    found = CEP.pattern(stream.key_by(lambda row: row[0], Types.STRING()), pattern, by_number)
    return (found if clock == "event" else found.in_processing_time()).process(Shown())


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("kl"), st.sampled_from("aabx"), st.integers(0, 3), st.none() | st.integers(0, 3)
        ),
        max_size=12,
    ),
    st.integers(0, 12),
    st.sampled_from(["hashmap", "rocksdb"]),
)
def test_rows_that_cannot_be_compared_are_left_out(drawn: list[Any], cut: int, backend: str) -> None:
    steps = [((key, letter, -at), time, watermark) for at, (key, letter, time, watermark) in enumerate(drawn)]
    configuration = {"state.backend.type": backend}
    found = outputs_over_a_crash(lambda s: with_letters(compared(s)), ROW, steps, cut, backend, outputs=2)
    failed = rows_of(found[1])
    reached = -1
    of_times: dict[tuple[str, int], list[Row]] = {}
    for row, time, watermark in steps:
        if time > reached:
            of_times.setdefault((row[0], time), []).append(row)
        reached = reached if watermark is None else max(reached, watermark)
    # A row that comes alone is not compared.
    due = [row for rows in of_times.values() if len(rows) > 1 for row in rows if row[1] == "x"]
    assert sorted(failed) == sorted(due)
    good = [(None if row in failed else row, time, watermark) for row, time, watermark in steps]
    with OperatorHarness(compared, types=[ROW], configuration=configuration) as harness:
        feed(harness, good, -1)
        harness.watermark(1000)
        harness.run()
        assert sorted(found[0]) == sorted(harness.output)


@pytest.mark.parametrize("clock", ["event", "processing"])
def test_of_two_rows_that_cannot_be_compared_the_later_one_leaves(clock: str) -> None:
    rows = [("k", "a", 2), ("k", "b", "text"), ("k", "c", 1), ("k", "x", 3)]
    with OperatorHarness(lambda s: with_letters(compared(s, clock))) as harness:
        harness.push(*rows, timestamps=[5] * 4 if clock == "event" else None)
        if clock == "event":
            harness.watermark(10)
        else:
            harness.advance(0.001)
        harness.run()
        assert [text for text, _ in harness.outputs(0)] == [
            "{'first': [('k', 'c', 1)], 'last': [('k', 'a', 2)]}"
        ]
        letters: list[DeadLetter] = harness.outputs(1)
    loaded = [row for each in letters for row in serializer_for(None).load_rows(each.raw or b"")]
    assert loaded == [rows[3], rows[1]]
    assert [letter.error_class for letter in letters] == ["ValueError", "TypeError"]
    assert {letter.timestamp for letter in letters} == {5 if clock == "event" else None}
    assert {(letter.input, letter.key) for letter in letters} == {(0, encode_key("k"))}


def test_without_on_error_a_comparator_that_fails_fails_the_job() -> None:
    with (
        pytest.raises(FragmentFailedError, match="beside"),
        OperatorHarness(compared, types=[ROW]) as harness,
    ):
        harness.push(("k", "x", 1), ("k", "a", 2), timestamps=[5, 5])
        harness.watermark(10)
        harness.run()


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number: int = value[2]
        return number


def test_a_bounded_input() -> None:
    env = environment(2)
    rows = [("k", "a", 1), ("k", "x", 2), ("k", "b", 3), ("l", "x", 4)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    stream = env.from_collection(rows, ROW).assign_timestamps_and_watermarks(strategy)
    found = matching(PATTERNS["next"](), stream).uid("the pattern").on_error("dead_letter")
    letters = found.dead_letters().map(lambda letter: (letter.operator, letter.timestamp))
    assert sorted(time for _, time in collect(env, found.union(letters))) == [2, 3, 4]
