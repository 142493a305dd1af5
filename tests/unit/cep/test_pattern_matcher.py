"""What Flink documents of patterns: contiguity, loops, groups, skip strategies and time limits, case by case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy as Skip
from yarrow.cep.conditions import IterativeCondition, SimpleCondition
from yarrow.cep.matching import match
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern import Pattern, WithinType
from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import compile_pattern
from yarrow.common import Time

MS = Time.milliseconds


def is_(letters: str) -> Callable[[Any], bool]:
    """True for records, or pairs of record and time, that begin with one of the letters."""
    return lambda record: record[0][0] in letters


def begin(name: str, skip: Skip | None = None) -> Pattern:
    """A step that takes the letter of its name."""
    return Pattern.begin(name, skip).where(is_(name))


def found(pattern: Pattern, records: str) -> set[str]:
    """The matches as texts; each is found once."""
    matches = match(pattern, records.split())
    texts = [
        " ".join(sorted((record for step in each.values() for record in step), key=records.index))
        for each in matches
    ]
    assert len(texts) == len(set(texts))
    return set(texts)


@pytest.mark.parametrize(
    ("call", "expected"),
    [("next", set()), ("followed_by", {"a b1"}), ("followed_by_any", {"a b1", "a b2"})],
)
def test_contiguity(call: str, expected: set[str]) -> None:
    assert found(getattr(begin("a"), call)("b").where(is_("b")), "a c b1 b2") == expected


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (Pattern.consecutive, {"a b3 c"}),
        (lambda pattern: pattern, {"a b1 c", "a b1 b2 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"}),
        (
            Pattern.allow_combinations,
            {"a b1 c", "a b1 b2 c", "a b1 b3 c", "a b1 b2 b3 c", "a b2 c", "a b2 b3 c", "a b3 c"},
        ),
    ],
)
def test_contiguity_within_loops(inner: Any, expected: set[str]) -> None:
    loop = inner(begin("a").followed_by_any("b").where(is_("b")).one_or_more())
    then = loop.next("c") if inner is Pattern.consecutive else loop.followed_by("c")
    assert found(then.where(is_("c")), "a b1 d1 b2 d2 b3 c") == expected


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (Pattern.consecutive, {"c a1 b", "c a1 a2 b", "c a1 a2 a3 b"}),
        (lambda pattern: pattern, {"c a1 b", "c a1 a2 b", "c a1 a2 a3 b", "c a1 a2 a3 a4 b"}),
    ],
)
def test_loops_between_two_steps(inner: Any, expected: set[str]) -> None:
    loop = inner(begin("c").followed_by("a").where(is_("a")).one_or_more())
    assert found(loop.followed_by("b").where(is_("b")), "c d1 a1 a2 a3 d2 a4 b") == expected


def test_a_loop_ends_at_its_until() -> None:
    pattern = begin("a").one_or_more().until(is_("b"))
    assert found(pattern, "a1 c a2 b a3") == {"a1 a2", "a1", "a2", "a3"}


def test_a_number_of_records() -> None:
    assert found(begin("a").times(2).next("b").where(is_("b")), "a1 a2 a3 b") == {"a2 a3 b"}
    assert found(begin("a").times(2, 3).next("b").where(is_("b")), "a1 a2 a3 b") == {"a2 a3 b", "a1 a2 a3 b"}
    assert found(begin("a").times_or_more(3).next("b").where(is_("b")), "a1 a2 a3 a4 b") == {
        "a1 a2 a3 a4 b",
        "a2 a3 a4 b",
    }


def test_steps_may_be_optional() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).optional().followed_by("c").where(is_("c"))
    assert found(pattern, "a b c") == {"a b c", "a c"}
    loop = begin("a").next("b").where(is_("b")).times(2).optional().next("c").where(is_("c"))
    assert found(loop, "a1 c1 a2 b1 b2 c2 a3 b3 c3") == {"a1 c1", "a2 b1 b2 c2"}


def test_the_first_step_may_be_optional() -> None:
    pattern = begin("a").optional().next("b").where(is_("b"))
    assert found(pattern, "a b1 b2") == {"a b1", "b1", "b2"}


def test_greedy_loops_take_all_they_can() -> None:
    pattern = begin("a").next("b").where(is_("bx")).one_or_more().greedy().followed_by("x").where(is_("x"))
    assert found(pattern, "a b1 b2 x1 x2") == set()
    pattern = begin("a").next("b").where(is_("b")).one_or_more().greedy().followed_by("c").where(is_("c"))
    assert found(pattern, "a b1 b2 b3 c") == {"a b1 b2 b3 c"}
    until = begin("a").next("b").where(is_("b")).one_or_more().greedy().until(is_("c"))
    assert found(until.followed_by("d").where(is_("d")), "a b1 b2 c b3 d") == {"a b1 b2 d"}


def test_a_record_that_must_not_come_next() -> None:
    pattern = begin("a").not_next("b").where(is_("b")).followed_by("c").where(is_("c"))
    assert found(pattern, "a1 b c1 a2 x b c2") == {"a2 c2"}
    # At the end of a pattern a further record has to show it.
    last = begin("a").not_next("b").where(is_("b"))
    assert found(last, "a1 b a2 x a3") == {"a2"}


def test_a_record_that_must_not_come_in_between() -> None:
    pattern = begin("a").not_followed_by("b").where(is_("b")).followed_by("c").where(is_("c"))
    assert found(pattern, "a1 x b c1 a2 x c2") == {"a2 c2"}


def test_what_is_forbidden_before_an_optional_step_is_allowed_behind_it() -> None:
    pattern = (
        begin("a")
        .not_followed_by("b")
        .where(is_("b"))
        .followed_by_any("c")
        .where(is_("c"))
        .optional()
        .followed_by_any("d")
        .where(is_("d"))
    )
    assert found(pattern, "a c b d") == {"a c d"}
    assert found(pattern, "a b c d") == set()
    assert found(pattern, "a c d") == {"a c d", "a d"}


def test_groups() -> None:
    group = begin("b").followed_by("c").where(is_("c"))
    assert found(begin("a").followed_by(group).times(2), "a b1 x c1 b2 c2") == {"a b1 c1 b2 c2"}
    assert found(begin("a").followed_by(group).optional().followed_by("d").where(is_("d")), "a b c d") == {
        "a d",
        "a b c d",
    }
    loop = begin("a").next(group).one_or_more().consecutive().next("d").where(is_("d"))
    assert found(loop, "a b1 c1 b2 x c2 d") == {"a b1 c1 b2 c2 d"}
    assert found(loop, "a b1 c1 x b2 c2 d") == set()
    assert found(Pattern.begin(group).times(2), "b1 c1 b2 c2") == {"b1 c1 b2 c2"}


def test_a_group_ends_at_its_until() -> None:
    group = begin("a").followed_by("b").where(is_("b"))
    assert found(Pattern.begin(group).one_or_more().until(is_("x")), "a1 b1 a2 b2 x a3 b3") == {
        "a1 b1",
        "a1 b1 a2 b2",
        "a2 b2",
        "a3 b3",
    }


def test_a_group_that_can_be_run_through_in_two_ways_gives_each_match_once() -> None:
    inner = Pattern.begin("a").where(is_("a")).one_or_more()
    assert found(Pattern.begin(inner).one_or_more().next("b").where(is_("b")), "a1 a2 b") == {
        "a1 a2 b",
        "a2 b",
    }


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (Skip.no_skip(), {"b1 b2 b3 c", "b2 b3 c", "b3 c"}),
        (Skip.skip_to_next(), {"b1 b2 b3 c", "b2 b3 c", "b3 c"}),
        (Skip.skip_past_last_event(), {"b1 b2 b3 c"}),
        (Skip.skip_to_first("b"), {"b1 b2 b3 c", "b2 b3 c", "b3 c"}),
        (Skip.skip_to_last("b"), {"b1 b2 b3 c", "b3 c"}),
    ],
)
def test_skip_strategies(skip: Skip, expected: set[str]) -> None:
    pattern = begin("b", skip).one_or_more().consecutive().next("c").where(is_("c"))
    assert found(pattern, "b1 b2 b3 c") == expected


def test_skipping_to_the_first_record_of_a_step() -> None:
    def pattern(skip: Skip) -> Pattern:
        abc = Pattern.begin("a", skip).where(is_("abc")).next("b").where(is_("bc"))
        return abc.next("c").where(is_("c")).one_or_more().greedy().next("d").where(is_("d"))

    records = "a b c1 c2 c3 d"
    assert found(pattern(Skip.no_skip()), records) == {"a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"}
    assert found(pattern(Skip.skip_to_first("c")), records) == {"a b c1 c2 c3 d", "c1 c2 c3 d"}


def test_skipping_to_the_next_record_drops_what_began_alike() -> None:
    def pattern(skip: Skip) -> Pattern:
        return begin("a", skip).next("b").where(is_("b")).one_or_more()

    assert found(pattern(Skip.no_skip()), "a b1 b2 b3") == {"a b1", "a b1 b2", "a b1 b2 b3"}
    assert found(pattern(Skip.skip_to_next()), "a b1 b2 b3") == {"a b1"}


def test_a_match_waits_for_runs_that_began_earlier() -> None:
    pattern = (
        begin("a", Skip.skip_past_last_event())
        .followed_by("b")
        .where(lambda record, ctx: len(record) == len(ctx.get_events_for_pattern("a")[0]))
    )
    assert [each["a"] for each in match(pattern, ["a-----", "a1", "b1", "b-----"])] == [["a-----"]]
    assert [each["a"] for each in match(pattern, ["a-----", "a1", "b1", "b----"])] == []


def test_a_match_without_the_record_to_skip_to() -> None:
    def pattern(skip: Skip) -> Pattern:
        return begin("a", skip).followed_by("b").where(is_("b")).optional().followed_by("c").where(is_("c"))

    assert found(pattern(Skip.skip_to_first("b")), "a c") == {"a c"}
    with pytest.raises(ValueError, match="no record of the step 'b'"):
        match(pattern(Skip.skip_to_first("b").throw_exception_on_miss()), ["a", "c"])
    with pytest.raises(ValueError, match="begins with the record of 'a'"):
        match(pattern(Skip.skip_to_last("a").throw_exception_on_miss()), ["a", "c"])


# ---------------------------------------------------------------------- conditions


def test_conditions_are_joined_in_their_order() -> None:
    pattern = Pattern.begin("x").where(is_("ab")).where(lambda record: "1" in record).or_where(is_("c"))
    assert found(pattern, "a1 a2 b1 c2 d1") == {"a1", "b1", "c2"}
    assert found(Pattern.begin("x").or_where(is_("c")), "a c") == {"c"}
    assert found(Pattern.begin("x"), "a c") == {"a", "c"}


def test_conditions_may_be_of_a_class() -> None:
    assert [
        each["x"]
        for each in match(Pattern.begin("x").subtype(int).where(lambda record: record > 1), [1, "a", 2])
    ] == [[2]]


def test_iterative_conditions_see_what_the_match_has_taken() -> None:
    class SumBelow(IterativeCondition):
        def filter(self, value: int, ctx: IterativeCondition.Context) -> bool:
            assert ctx.timestamp() == ctx.timestamp()
            assert ctx.current_processing_time() > 0
            return bool(sum(ctx.get_events_for_pattern("x")) + value < 6)

    class Even(SimpleCondition):
        def filter(self, value: int) -> bool:
            return value % 2 == 0

    pattern = Pattern.begin("x").where(SumBelow()).one_or_more().consecutive().next("end").where(Even())
    assert [(each["x"], each["end"]) for each in match(pattern, [3, 1, 2, 4])] == [
        ([3, 1], [2]),
        ([1], [2]),
        ([1, 2], [4]),
        ([2], [4]),
    ]


def test_an_unknown_step_is_named() -> None:
    pattern = Pattern.begin("x").where(lambda record, ctx: bool(ctx.get_events_for_pattern("y")))
    with pytest.raises(KeyError, match="no step 'y'; its steps are x"):
        match(pattern, [1])


# ---------------------------------------------------------------------- time


def timed(pattern: Pattern, *records: tuple[str, int]) -> list[tuple[str, int, bool]]:
    """(records of the match, time, timed out)"""
    results = match(pattern, records, timestamp=lambda record: record[1]).results
    return [
        (" ".join(record[0] for step in found.values() for record in step), time, timed_out)
        for found, time, timed_out in results
    ]


def test_a_record_exactly_the_limit_later_does_not_match() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).within(MS(10))
    assert timed(pattern, ("a", 0), ("b", 9)) == [("a b", 9, False)]
    assert timed(pattern, ("a", 0), ("b", 10)) == [("a", 10, True)]


def test_time_outs_come_at_their_time_and_in_its_order() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).within(MS(10))
    assert timed(pattern, ("a1", 3), ("a2", 5), ("x", 20)) == [("a1", 13, True), ("a2", 15, True)]


def test_a_pattern_matches_when_what_is_forbidden_has_not_come() -> None:
    pattern = begin("a").not_followed_by("b").where(is_("b")).within(MS(10))
    assert timed(pattern, ("a1", 0), ("x", 5), ("b", 10)) == [("a1", 10, False)]
    assert timed(pattern, ("a1", 0), ("b", 9)) == []
    loop = begin("a").one_or_more().not_followed_by("b").where(is_("b")).within(MS(10))
    assert timed(loop, ("a1", 0)) == [("a1", 10, False)]
    assert sorted(timed(loop, ("a1", 0), ("a2", 1))) == [
        ("a1", 10, False),
        ("a1 a2", 10, False),
        ("a2", 11, False),
    ]


def test_a_limit_to_the_record_before() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).within(MS(5), WithinType.PREVIOUS_AND_CURRENT)
    then = pattern.followed_by("c").where(is_("c"))
    assert timed(then, ("a", 0), ("b", 4), ("c", 99)) == [("a b c", 99, False)]
    assert timed(then, ("a", 0), ("b", 5), ("c", 6)) == [("a", 5, True)]


def test_a_limit_between_the_records_of_a_loop() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).times(3, window_time=MS(5))
    assert timed(pattern, ("a", 0), ("b1", 20), ("b2", 24), ("b3", 28)) == [("a b1 b2 b3", 28, False)]
    assert timed(pattern, ("a", 0), ("b1", 20), ("b2", 25)) == [("a b1", 25, True)]


def test_a_loop_whose_time_has_passed_may_still_be_left() -> None:
    pattern = begin("a").one_or_more(MS(5)).followed_by("c").where(is_("c"))
    for between in ([], [("x", 2)]):
        assert timed(pattern, ("a", 0), *between, ("c", 99)) == [("a c", 99, False)]


def test_what_goes_on_in_another_way_has_not_timed_out() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).one_or_more().followed_by("c").where(is_("c"))
    results = timed(pattern.within(MS(10)), ("a", 0), ("b1", 1), ("x", 2), ("b2", 3), ("y", 4))
    assert sorted(results) == [("a b1", 10, True), ("a b1 b2", 10, True)]


# ---------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ("x b1 c1", "a(x) a(b1) a(c1)"),
        # Behind a the next record is asked for b, and c is asked of none before b has come.
        ("a1 c1 b1", "a(a1) b(c1) a(c1) b(b1) a(b1)"),
        # Two partial matches in one state ask once.
        ("a1 a2 x", "a(a1) b(a2) a(a2) b(x) a(x)"),
        ("a1 b1 x c1", "a(a1) b(b1) a(b1) c(x) a(x) c(c1) a(c1)"),
    ],
)
def test_a_condition_is_asked_only_where_a_partial_match_waits_for_it(records: str, expected: str) -> None:
    asked: list[str] = []

    def asks(name: str) -> Callable[[str], bool]:
        def condition(record: str) -> bool:
            asked.append(f"{name}({record})")
            return record.startswith(name)

        return condition

    pattern = Pattern.begin("a").where(asks("a")).followed_by("b").where(asks("b"))
    pattern = pattern.followed_by("c").where(asks("c"))
    matcher, matches = PatternMatcher(compile_pattern(pattern), lambda: 0), PartialMatches.none()
    for time, record in enumerate(records.split()):
        matcher.take(matches, record, time)
    assert asked == expected.split()


# ---------------------------------------------------------------------- state


def test_a_key_whose_matches_are_gone_keeps_nothing() -> None:
    pattern = begin("a").next("b").where(is_("b")).next("c").where(is_("c"))
    matcher, matches = PatternMatcher(compile_pattern(pattern), lambda: 0), PartialMatches.none()
    for time, record in enumerate(["a", "b", "c", "a", "x"]):
        matcher.take(matches, record, time)
    assert matches == PartialMatches.none()


def test_branches_share_their_beginning() -> None:
    pattern = begin("a").followed_by("b").where(is_("b")).one_or_more().allow_combinations()
    matcher, matches = PatternMatcher(compile_pattern(pattern), lambda: 0), PartialMatches.none()
    for time, record in enumerate(["a", "b1", "b2", "b3"]):
        matcher.take(matches, record, time)
    # One cell a subset of the three that contains the first, and one for a.
    assert len(matches.cells) == 1 + 4
    assert len(matches.records) == 4


def test_a_key_has_at_most_so_many_partial_matches() -> None:
    pattern = begin("a").followed_by("b").where(is_("b"))
    matcher, matches = PatternMatcher(compile_pattern(pattern), lambda: 0, 2), PartialMatches.none()
    for time, record in enumerate(["a1", "a2", "a3"]):
        matcher.take(matches, record, time)
    assert [result.match["a"] for result in matcher.take(matches, "b", 9)] == [["a2"], ["a3"]]
    assert matcher.dropped == 1
