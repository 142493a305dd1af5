"""Patterns refuse what cannot match at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from yarrow.cep.conditions import IterativeCondition, SimpleCondition, as_condition
from yarrow.cep.pattern import MalformedPatternError, Pattern, WithinType
from yarrow.cep.pattern_table import compile_pattern
from yarrow.common import Duration, Time


def begin() -> Pattern:
    return Pattern.begin("a").where(lambda row: True)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pattern.begin(""), "the name of a step has a letter"),
        (lambda: Pattern.begin("a:b"), "no ':'"),
        (lambda: begin().next("a"), "has a step 'a' already"),
        (lambda: begin().next(Pattern.begin("b").next("a")), "has a step 'a' already"),
        (lambda: begin().times(0), "at least one record"),
        (lambda: begin().times(2, 0), "at least one record"),
        (lambda: begin().times(3, 2), "lower number first"),
        (lambda: begin().times_or_more(0), "at least one record"),
        (lambda: begin().times(True), "whole numbers"),
        (lambda: begin().times(2).one_or_more(), "a number of records already"),
        (lambda: begin().not_next("n").times(2), "takes no record"),
        (lambda: begin().not_followed_by("n").optional(), "takes no record"),
        (lambda: begin().optional().optional(), "optional already"),
        (lambda: begin().one_or_more().greedy().next("b").optional(), "which is greedy"),
        (lambda: begin().optional().not_next("n"), "ends with an optional step"),
        (lambda: begin().optional().not_followed_by("n"), "ends with an optional step"),
        (lambda: Pattern.begin(begin().next("b").optional()).not_next("n"), "ends with an optional step"),
        (lambda: begin().greedy(), "takes one record"),
        (lambda: begin().consecutive(), "takes one record"),
        (lambda: begin().allow_combinations(), "takes one record"),
        (lambda: begin().until(lambda row: True), "takes one record"),
        (lambda: begin().times(2).until(lambda row: True), "at most 2 records anyway"),
        (lambda: begin().one_or_more().until(bool).until(bool), "such a condition already"),
        (lambda: begin().times(2).allow_combinations().greedy(), "all combinations"),
        (lambda: begin().times(2).greedy().allow_combinations(), "is greedy"),
        (lambda: begin().times(2).consecutive().allow_combinations(), "Choose one of them"),
        (lambda: Pattern.begin(begin()).times(2).greedy(), "a group cannot be greedy"),
        (lambda: Pattern.begin(begin()).where(bool), "no condition of its own"),
        (lambda: Pattern.begin(begin()).or_where(bool), "no condition of its own"),
        (lambda: Pattern.begin(begin()).subtype(int), "no condition of its own"),
        (lambda: begin().within(Time.milliseconds(0)), "leaves room for no record"),
        (lambda: begin().times(2, 3, Duration.of_millis(0)), "leaves room for no record"),
    ],
)
def test_what_cannot_match_is_refused(build: Callable[[], Pattern], message: str) -> None:
    with pytest.raises(MalformedPatternError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: begin().not_followed_by("n").where(bool), "needs within"),
        (lambda: begin().not_followed_by("n").where(bool).followed_by("b").optional(), "needs within"),
        (lambda: begin().not_next("n").next("b"), "forbids each record"),
        (
            lambda: begin().within(Time.seconds(1), WithinType.PREVIOUS_AND_CURRENT),
            "no record comes before that of 'a'",
        ),
        (lambda: begin().not_followed_by("n").next("b"), "forbids each record"),
        (
            lambda: Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("z")).next("b"),
            "the pattern has no such step. Its steps are a, b",
        ),
        (
            lambda: (
                Pattern.begin("a", AfterMatchSkipStrategy.skip_to_last("b")).not_followed_by("b").next("c")
            ),
            r"skip_to_last\('b'\): the step is not_followed_by, so no match has a record of it",
        ),
    ],
)
def test_what_cannot_match_as_a_whole_is_refused(build: Callable[[], Pattern], message: str) -> None:
    with pytest.raises(MalformedPatternError, match=message):
        compile_pattern(build())


@pytest.mark.parametrize(
    "call",
    [
        lambda: begin().where(3),
        lambda: begin().next(3),  # type: ignore[arg-type]
        lambda: begin().not_next(begin()),  # type: ignore[arg-type]
        lambda: begin().within(1000),  # type: ignore[arg-type]
        lambda: begin().subtype("int"),  # type: ignore[arg-type]
        lambda: Pattern.begin("a", "skip"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_a_wrong_kind_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


def test_a_callable_of_two_arguments_is_an_iterative_condition() -> None:
    assert isinstance(as_condition("where", lambda row: True), SimpleCondition)
    assert isinstance(as_condition("where", lambda row, limit=3: True), SimpleCondition)
    assert isinstance(as_condition("where", bool), SimpleCondition)
    assert isinstance(as_condition("where", lambda row, ctx: True), IterativeCondition)


def test_a_callable_of_three_arguments_is_no_condition() -> None:
    def takes_too_much(row: Any, ctx: Any, more: Any) -> bool:
        return True

    with pytest.raises(
        TypeError, match=r"where: .*takes_too_much.* needs 3 arguments, .* functools\.partial"
    ):
        Pattern.begin("a").where(takes_too_much)
    assert isinstance(as_condition("where", lambda row, ctx, more=1: True), IterativeCondition)


def test_the_shortest_time_limit_counts() -> None:
    inner = Pattern.begin("b").within(Time.seconds(2))
    assert begin().within(Time.seconds(5)).next(inner).within(Time.seconds(9)).within_ms == 2000
    assert begin().within_ms is None


@pytest.mark.parametrize(
    ("pattern", "is_endless"),
    [
        (begin().times(5), False),
        (begin().one_or_more(), True),
        (begin().next("b").times_or_more(2).consecutive(), True),
        (Pattern.begin(begin()).one_or_more(), True),
        (begin().one_or_more().within(Time.seconds(1)), False),
        (begin().one_or_more().until(bool), False),
        (begin().one_or_more(Time.seconds(1)), False),
        (begin().one_or_more().within(Time.seconds(1), WithinType.PREVIOUS_AND_CURRENT), False),
    ],
)
def test_loops_that_nothing_ends_are_known(pattern: Pattern, is_endless: bool) -> None:
    assert (pattern.endless_step() is not None) is is_endless


def test_strategies_without_a_step_cannot_miss_it() -> None:
    with pytest.raises(ValueError, match="skip_to_next"):
        AfterMatchSkipStrategy.skip_to_next().throw_exception_on_miss()
