"""Relevant rows: the matcher finds the same when all others are left out, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pattern_model import Records, Whole
from tests.unit.cep.test_pattern_matcher_against_model import records, strategies, wholes
from yarrow.cep import Pattern
from yarrow.cep.conditions import SimpleCondition
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.cep.pattern_table import compile_pattern
from yarrow.container.operators.columnar_pattern.column_conditions import ColumnConditions
from yarrow.container.operators.columnar_pattern.relevant_rows import RelevantRows
from yarrow.table.expressions import col


class In(SimpleCondition):
    """A function of a row, of which nothing is known before it is called."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def filter(self, value: Any) -> bool:
        return value[0] in self.letters


def over_columns(letters: str) -> Any:
    return col("letter").in_(*letters)


def batch(rows: Records) -> pa.RecordBatch:
    return pa.record_batch([pa.array([letter for letter, _ in rows], pa.string())], names=["letter"])


def matched(whole: Whole, rows: Records, pattern: Pattern, *, all_rows: bool) -> list[PatternResult]:
    table = compile_pattern(pattern)
    conditions = ColumnConditions(pattern)
    relevant = RelevantRows(table, conditions.conditions)
    truths = conditions.truths(batch(rows))
    begins, goes_on = relevant.of(truths).T
    matcher, matches = PatternMatcher(table, lambda: 0), PartialMatches.none()
    results: list[PatternResult] = []
    for at, (letter, time) in enumerate(rows):
        if all_rows or begins[at] or (matches.runs and goes_on[at]):
            results += matcher.advance(matches, time)
            conditions.look_at(truths[at].tolist())
            results += matcher.take(matches, (letter, at), time)
    return [*results, *matcher.advance(matches, 10**9)]


@settings(max_examples=60, deadline=None)
@given(whole=wholes(), rows=records, skip=st.none() | strategies, mixed=st.sets(st.sampled_from("abcd")))
def test_rows_that_are_not_relevant_change_nothing(
    whole: Whole, rows: Records, skip: Any, mixed: set[str]
) -> None:
    if skip is not None and (skip.pattern_name is None or not whole.kinds[0].group):
        whole = Whole(whole.kinds, whole.within, skip)

    def condition(letters: str) -> Any:
        # Some conditions are functions, so that either result has to be expected of them.
        return In(letters) if letters[0] in mixed else over_columns(letters)

    expected = matched(whole, rows, whole.pattern_of(In), all_rows=True)
    assert matched(whole, rows, whole.pattern_of(condition), all_rows=False) == expected


def flags(pattern: Pattern, letters: str) -> tuple[list[bool], list[bool]]:
    conditions = ColumnConditions(pattern)
    relevant = RelevantRows(compile_pattern(pattern), conditions.conditions)
    begins, goes_on = relevant.of(conditions.truths(batch([(letter, 0) for letter in letters]))).T
    return begins.tolist(), goes_on.tolist()


def chosen(letters: str, found: Sequence[bool]) -> str:
    return "".join(letter for letter, held in zip(letters, found, strict=True) if held)


def test_of_relaxed_steps_only_rows_that_fulfil_a_condition_are_relevant() -> None:
    pattern = Pattern.begin("a").where(over_columns("a")).followed_by("b").where(over_columns("b"))
    begins, goes_on = flags(pattern, "xaxbx")
    assert (chosen("xaxbx", begins), chosen("xaxbx", goes_on)) == ("a", "b")


def test_behind_a_strict_step_all_rows_are() -> None:
    pattern = Pattern.begin("a").where(over_columns("a")).next("b").where(over_columns("b"))
    begins, goes_on = flags(pattern, "xaxbx")
    assert (chosen("xaxbx", begins), chosen("xaxbx", goes_on)) == ("a", "xaxbx")


def test_a_pattern_of_one_record_needs_only_that() -> None:
    assert flags(Pattern.begin("a").where(over_columns("a")), "xab") == ([False, True, False], [False] * 3)


def test_a_function_behind_a_condition_is_asked_only_where_that_holds() -> None:
    both: Callable[[], Pattern] = lambda: Pattern.begin("a").where(over_columns("a")).where(In("a"))  # noqa: E731
    assert flags(both(), "xab")[0] == [False, True, False]
    assert flags(both().or_where(over_columns("b")), "xab")[0] == [False, True, True]
    assert flags(both().or_where(In("b")), "xab")[0] == [True, True, True]
