"""GuardedMatcher: a row is left out where a condition fails. Other errors are raised."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy as Skip
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern import Pattern
from yarrow.cep.pattern_table import compile_pattern
from yarrow.container.operators.guarded_pattern.guarded_matcher import FailedRow, GuardedMatcher


def matcher_of(pattern: Pattern) -> GuardedMatcher:
    return GuardedMatcher(compile_pattern(pattern), lambda: 0, None, lambda _: False, gives_timed_out=False)


def begins_with(letter: str) -> Any:
    def test(row: str) -> bool:
        if row == "bad":
            raise ValueError("no letter")
        return row.startswith(letter)

    return test


def test_a_row_at_which_a_condition_fails_changes_nothing() -> None:
    matcher = matcher_of(Pattern.begin("a").where(begins_with("a")).followed_by("c").where(begins_with("c")))
    matches = PartialMatches.none()
    assert matcher.take(matches, "a", 1) == ()
    before = [list(each) for each in matches]
    failed: Any
    (failed,) = matcher.take(matches, "bad", 2)
    assert isinstance(failed, FailedRow) and [list(each) for each in matches] == before
    (found,) = matcher.take(matches, "c", 3)
    assert found.match == {"a": ["a"], "c": ["c"]}


def test_an_error_of_the_skip_strategy_is_raised() -> None:
    skip = Skip.skip_to_first("b").throw_exception_on_miss()
    pattern = (
        Pattern.begin("a", skip)
        .where(begins_with("a"))
        .followed_by("b")
        .where(begins_with("b"))
        .optional()
        .followed_by("c")
        .where(begins_with("c"))
    )
    matcher, matches = matcher_of(pattern), PartialMatches.none()
    matcher.take(matches, "a", 1)
    with pytest.raises(ValueError, match="no record of the step 'b'"):
        matcher.take(matches, "c", 2)
