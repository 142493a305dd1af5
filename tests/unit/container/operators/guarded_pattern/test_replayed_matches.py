"""Matches of dead letters: the function of the pattern gets each as the pattern had given it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from yarrow.cep import PatternProcessFunction, TimedOutPartialMatchHandler
from yarrow.cep.pattern_functions import SelectingMatches
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.connectors.dead_letters import LAST_OF_MATCH, DeadLetter, LeftOutMatch
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.pattern_spec import ReplayedMatchesOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

LATE = OutputTag("late", Types.STRING())


class Shown(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Fails at a match with the number 7, and at partial ones with 8."""

    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield f"{match} at {ctx.timestamp()}"
        if 7 in match["first"]:
            raise ValueError("no 7")
        yield LATE, "a value for another output"

    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        if 8 in match["first"]:
            raise ValueError("no 8")
        yield LATE, f"{match} until {ctx.timestamp()}"


class Counted(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield len(match)


def replaying(stream: DataStream, function: Any = None, *, event_time: bool = True) -> DataStream:
    environment = stream.get_execution_environment()
    builder = environment.graph_builder
    spec = ReplayedMatchesOperator(
        function=builder.pickle(function or Shown(), "CEP"),
        event_time=event_time,
        row_type=Types.LONG().to_spec(),
        uid_of_letters="the pattern",
    )
    return DataStream(environment, builder.one_input(stream.transformation, "CEP", spec=spec)).uid("another")


def with_letters(stream: DataStream, **how: Any) -> list[DataStream]:
    made = replaying(stream, **how).on_error("dead_letter")
    return [made, made.get_side_output(LATE), made.dead_letters()]


def match(number: int, *, timed_out: bool = False) -> LeftOutMatch:
    return LeftOutMatch({"first": [number, 1], "last": [2]}, 50, timed_out, b"key")


def test_the_function_gets_matches_with_their_times() -> None:
    with OperatorHarness(with_letters) as harness:
        harness.push(match(5), match(6, timed_out=True), timestamps=[50, 50])
        harness.run()
        assert harness.outputs(0) == ["{'first': [5, 1], 'last': [2]} at 50"]
        assert harness.timestamps(0) == [50]
        assert harness.outputs(1) == [
            "a value for another output",
            "{'first': [6, 1], 'last': [2]} until 50",
        ]
        assert harness.outputs(2) == []


@pytest.mark.parametrize("event_time", [True, False])
@pytest.mark.parametrize("timed_out", [True, False])
def test_a_match_that_fails_again_is_the_same_letter(event_time: bool, timed_out: bool) -> None:
    number = 8 if timed_out else 7
    with OperatorHarness(lambda s: with_letters(s, event_time=event_time)) as harness:
        harness.push(
            match(number, timed_out=timed_out), match(5), timestamps=[50, 50] if event_time else None
        )
        harness.run()
        assert harness.outputs(0) == ["{'first': [5, 1], 'last': [2]} at 50"]
        (letter,) = harness.outputs(2)
        assert isinstance(letter, DeadLetter)
    assert (letter.operator, letter.input, letter.key) == ("the pattern", LAST_OF_MATCH, b"key")
    assert (letter.match_time, letter.timed_out) == (50, timed_out)
    assert letter.timestamp == (50 if event_time else None)
    assert letter.steps == ("first", "first", "last")
    load = serializer_for(Types.LONG()).load_rows
    assert (load(letter.raw or b""), load(letter.rows or b"")) == ([2], [number, 1, 2])


def test_without_on_error_a_match_that_fails_fails_the_job() -> None:
    with (
        pytest.raises(FragmentFailedError, match=r"(?s)no 7.*'CEP'.*match \{'first': \[7, 1\]"),
        OperatorHarness(replaying) as harness,
    ):
        harness.push(match(7), timestamps=[50])
        harness.run()


def test_bounds_count_matches() -> None:
    with (
        pytest.raises(FragmentFailedError, match=r"(?s)failed at 2 records within a minute"),
        OperatorHarness(lambda s: replaying(s).on_error("skip", max_per_minute=1)) as harness,
    ):
        harness.push(match(7), match(7), timestamps=[50, 50])
        harness.run()


def test_a_function_that_takes_no_partial_matches_gives_nothing_for_one() -> None:
    with OperatorHarness(lambda s: replaying(s, Counted())) as harness:
        harness.push(match(6, timed_out=True), match(5), timestamps=[50, 50])
        harness.run()
        assert harness.output == [2]


def test_select_gets_a_match() -> None:
    function = SelectingMatches(lambda found: sorted(found), "select", is_flat=False)
    with OperatorHarness(lambda s: replaying(s, function)) as harness:
        harness.push(match(7), timestamps=[50])
        harness.run()
        assert harness.output == [["first", "last"]]
