"""The matcher finds what laying all subsequences over the records finds, and each match once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.pattern_model import Found, Kind, Records, Whole, all_matches
from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy, SkipKind
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import Observer, PatternMatcher, PatternResult
from yarrow.cep.pattern_table import compile_pattern

LETTERS = "abcd"
FAR = 10**9


def run(whole: Whole, records: Records) -> list[PatternResult]:
    """The results of the matcher, with the positions of records as records."""
    return run_and_asked(whole, records, None)[0]


def run_and_asked(
    whole: Whole, records: Records, observer: Observer | None
) -> tuple[list[PatternResult], list[int]]:
    """The results, and the positions of the records in the order in which conditions were asked for them.

    With an observer the matcher asks partial matches one by one.
    """
    asked: list[int] = []

    def letter(record: tuple[str, int]) -> str:
        asked.append(record[1])
        return record[0]

    matcher = PatternMatcher(compile_pattern(whole.pattern(letter)), lambda: 0, observer=observer)
    matches = PartialMatches.none()
    results: list[PatternResult] = []
    for at, (name, time) in enumerate(records):
        results += matcher.advance(matches, time)
        results += matcher.take(matches, (name, at), time)
    results += matcher.advance(matches, FAR)
    return results, asked


def found_by(results: list[PatternResult]) -> Counter[tuple[tuple[tuple[str, int], ...], int]]:
    return Counter(
        (
            tuple(
                sorted(
                    ((name, record[1]) for name, taken in result.match.items() for record in taken), key=_at
                )
            ),
            result.timestamp,
        )
        for result in results
        if not result.timed_out
    )


def _at(taken: tuple[str, int]) -> int:
    return taken[1]


letters = st.sets(st.sampled_from(LETTERS), min_size=1, max_size=2).map(
    lambda chosen: "".join(sorted(chosen))
)
forward = st.sampled_from(["next", "followed_by", "followed_by_any"])


@st.composite
def taking(draw: st.DrawFn, name: str, *, may_be_greedy: bool = True, may_be_optional: bool = True) -> Kind:
    """A step that takes records."""
    least, most = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, None), (1, 2), (2, 3), (2, None)]))
    inner = draw(forward)
    loops = most != 1
    greedy = loops and may_be_greedy and inner != "followed_by_any" and draw(st.booleans())
    return Kind(
        name,
        draw(letters),
        draw(forward),
        least=least,
        most=most,
        inner=inner,
        optional=may_be_optional and draw(st.booleans()),
        greedy=greedy,
        until=draw(letters) if most is None and draw(st.booleans()) else "",
        gap=draw(st.none() | st.integers(1, 4)) if name != "s0" else None,
        inner_gap=draw(st.none() | st.integers(1, 4)) if loops else None,
    )


def has_an_open_end(kind: Kind) -> bool:
    """True for a group whose last step may be left out, or whose loop ends it: the model sees no step behind it."""
    return bool(kind.group) and (kind.group[-1].optional or kind.group[-1].most != 1)


@st.composite
def wholes(draw: st.DrawFn) -> Whole:
    """A pattern of up to four steps, some of them groups or negative."""
    kinds: list[Kind] = []
    for number in range(draw(st.integers(1, 4))):
        before = kinds[-1] if kinds else None
        name = f"s{number}"
        options = ["records", "records", "records", "group"]
        if before is not None and not before.optional and not has_an_open_end(before):
            options += ["not_next", "not_followed_by"]
        choice = draw(st.sampled_from(options))
        may_be_optional = before is None or not before.greedy
        if choice == "records":
            kinds.append(draw(taking(name, may_be_optional=may_be_optional)))
        elif choice == "group":
            first = draw(taking(f"{name}0", may_be_greedy=False, may_be_optional=may_be_optional))
            inside = (first, draw(taking(f"{name}1", may_be_greedy=False)))
            least, most = draw(st.sampled_from([(1, 1), (2, 2), (1, None), (1, 2)]))
            group = Kind(name, "", draw(forward), group=inside, least=least, most=most, inner=draw(forward))
            kinds.append(group)
        else:
            gap = draw(st.none() | st.integers(1, 4)) if choice == "not_followed_by" else None
            kinds.append(Kind(name, draw(letters), choice, gap=gap))
    return Whole(tuple(kinds), draw(st.integers(1, 8)))


records = st.lists(st.tuples(st.sampled_from(LETTERS), st.integers(0, 2)), max_size=6).map(
    lambda steps: [(letter, sum(step for _, step in steps[: at + 1])) for at, (letter, _) in enumerate(steps)]
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(wholes(), records)
def test_each_match_is_found_once(whole: Whole, records: Records) -> None:
    expected = Counter((match.taken, match.time) for match in all_matches(whole, records))
    found = found_by(run(whole, records))
    assert found == expected, f"{whole}"
    assert run_and_asked(whole, records, None) == run_and_asked(whole, records, Mock()), f"{whole}"


def left_by(whole: Whole, found: Sequence[Found]) -> list[Found]:
    """The matches that a skip strategy leaves: in order of their beginning, each drops others."""
    left: list[Found] = []
    bound = 0
    for each in sorted(found, key=lambda match: (match.taken[0][1], match.time, match.at)):
        start = each.taken[0][1]
        if start < bound:
            continue
        left.append(each)
        positions: dict[str, list[int]] = {}
        for name, at in each.taken:
            positions.setdefault(name, []).append(at)
        of_step = positions.get(whole.skip.pattern_name or "")
        match whole.skip.kind:
            case SkipKind.SKIP_TO_NEXT:
                bound = max(bound, start + 1)
            case SkipKind.SKIP_PAST_LAST_EVENT:
                bound = max(bound, each.taken[-1][1] + 1)
            case SkipKind.SKIP_TO_FIRST if of_step:
                bound = max(bound, of_step[0])
            case SkipKind.SKIP_TO_LAST if of_step:
                bound = max(bound, of_step[-1])
    return left


strategies = st.sampled_from(
    [
        AfterMatchSkipStrategy.skip_to_next(),
        AfterMatchSkipStrategy.skip_past_last_event(),
        AfterMatchSkipStrategy.skip_to_first("s0"),
        AfterMatchSkipStrategy.skip_to_last("s0"),
    ]
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(wholes(), strategies, records)
def test_a_skip_strategy_leaves_the_first_match_and_drops_others(
    whole: Whole, skip: AfterMatchSkipStrategy, records: Records
) -> None:
    assume(skip.pattern_name is None or not whole.kinds[0].group)
    whole = replace(whole, skip=skip)
    found = all_matches(whole, records)
    ends = Counter((match.taken[0][1], match.time, match.at) for match in found)
    # Of matches with one beginning and one end either may come first.
    assume(max(ends.values(), default=0) <= 1)
    expected = Counter(match.taken for match in left_by(whole, found))
    assert Counter(taken for taken, _ in found_by(run(whole, records)).elements()) == expected, f"{whole}"
    assert run_and_asked(whole, records, None) == run_and_asked(whole, records, Mock()), f"{whole}"
