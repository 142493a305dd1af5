"""`match` runs a pattern over a list, and its trace tells what each record did."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.cep import (
    AfterMatchSkipStrategy,
    IterativeCondition,
    MalformedPatternError,
    Pattern,
    RichIterativeCondition,
    match,
)
from yarrow.common import Time


def pattern(skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    begin = Pattern.begin("a", skip).where(lambda row: row[0] == "a")
    return begin.followed_by("b").where(lambda row: row[0] == "b")


def test_matches_are_a_list_of_dicts() -> None:
    found = match(pattern(), ["a1", "x", "b1"])
    assert found == [{"a": ["a1"], "b": ["b1"]}]
    assert (found.timed_out, found.trace) == ([], [])
    assert [result.timestamp for result in found.results] == [2]


def test_rows_come_in_order_of_time_and_time_passes_at_the_end() -> None:
    rows = [("b", 9), ("a", 3), ("a", 20)]
    found = match(pattern().within(Time.milliseconds(10)), rows, timestamp=lambda row: row[1])
    assert found == [{"a": [("a", 3)], "b": [("b", 9)]}]
    assert found.timed_out == [{"a": [("a", 20)]}]


def test_keys_stand_apart() -> None:
    rows = ["a1", "b2", "a2", "b1"]
    assert match(pattern(), rows, key=lambda row: row[1]) == [{"a": ["a1"], "b": ["b1"]}]
    assert match(pattern(), rows, key=lambda row: row[1], trace=True).trace[0] == "key '1'"


def test_a_time_limit_needs_times() -> None:
    with pytest.raises(MalformedPatternError, match="Say what the time of a row is"):
        match(pattern().within(Time.milliseconds(10)), [])


def test_rich_conditions_need_a_job() -> None:
    class Rich(RichIterativeCondition):
        def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
            return True

    with pytest.raises(TypeError, match="Rich needs the runtime context of a job"):
        match(Pattern.begin("a").where(Rich()), [])


def test_a_trace_says_why_nothing_matched() -> None:
    strict = (
        Pattern.begin("a").where(lambda row: row == "a").not_next("n").where(lambda row: row == "n").next("b")
    )
    strict = strict.where(lambda row: row == "b").within(Time.milliseconds(3))
    found = match(strict, ["x"], timestamp=lambda row: 0, trace=True)
    assert found.trace == ["row 0 'x' at 0: no match begins with it, and none is under way"]
    found = match(strict, ["a", "n", "a", "x", "a"], timestamp=_count(), trace=True)
    assert found.trace == [
        "row 0 'a' at 0: a match begins: 'a' takes it, then looks at the record behind, which must not be 'n' or waits"
        " for 'b'",
        "row 1 'n' at 1: [a='a'] ends: the pattern forbids this row",
        "row 2 'a' at 2: a match begins: 'a' takes it, then looks at the record behind, which must not be 'n' or waits"
        " for 'b'",
        "row 3 'x' at 3: [a='a'] ends: it looks at the record behind, which must not be 'n' or waits for 'b', which"
        " does not take this row and lets none come between",
        "row 4 'a' at 4: a match begins: 'a' takes it, then looks at the record behind, which must not be 'n' or waits"
        " for 'b'",
        "the end: [a='a'] times out at 7: it looks at the record behind, which must not be 'n' or waits for 'b'",
    ]


def _count() -> Any:
    times = iter(range(100))
    return lambda row: next(times)


def test_a_trace_shows_what_is_left_dropped_and_passed_over() -> None:
    found = match(
        pattern(AfterMatchSkipStrategy.skip_past_last_event()), ["a1", "a2", "x", "b", "a3"], trace=True
    )
    assert found == [{"a": ["a1"], "b": ["b"]}]
    assert "row 2 'x' at 2: [a='a1'] passes over it" in found.trace
    assert found.trace[-2:] == [
        "row 4 'a3' at 4: a match begins: 'a' takes it, then waits for 'b'",
        "the end: [a='a3'] is left: it waits for 'b'",
    ]
