"""The rule of as-of joins against its definition: the version of a row, when it is known, which versions are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.join.as_of_rule import AsOfRule
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.join_spec import AsOfDirection

times = st.integers(-20, 20)
versions_of = st.sets(times, max_size=6).map(lambda found: [(time, f"v{time}") for time in sorted(found)])
rules = st.builds(AsOfRule, st.sampled_from(AsOfDirection), st.one_of(st.none(), st.integers(0, 12)))


def defined(rule: AsOfRule, time: int, versions: list[Any]) -> Any:
    """The version by the words of the documentation."""
    near = [
        version
        for version in versions
        if (rule.tolerance is None or abs(version[0] - time) <= rule.tolerance)
        and not (rule.direction is AsOfDirection.BACKWARD and version[0] > time)
        and not (rule.direction is AsOfDirection.FORWARD and version[0] < time)
    ]
    return min(near, key=lambda version: (abs(version[0] - time), version[0]), default=None)


@given(rule=rules, time=times, versions=versions_of)
def test_a_row_meets_the_version_of_the_definition(rule: AsOfRule, time: int, versions: list[Any]) -> None:
    assert rule.chosen(time, versions) == defined(rule, time, versions)


@given(rule=rules, time=times, versions=versions_of, behind=st.integers(0, 30))
def test_a_version_is_known_as_soon_as_no_further_one_can_replace_it(
    rule: AsOfRule, time: int, versions: list[Any], behind: int
) -> None:
    watermark = time + behind
    known = [version for version in versions if version[0] <= watermark]
    now = defined(rule, time, known)
    may_change = any(
        defined(rule, time, [*known, (later, "further")]) != now for later in range(watermark + 1, 80)
    )
    assert (rule.due(time, known) <= watermark) == (not may_change)


@given(rule=rules, time=times, versions=versions_of, further=times)
def test_versions_make_a_row_due_sooner_and_later_rows_are_due_later(
    rule: AsOfRule, time: int, versions: list[Any], further: int
) -> None:
    due = rule.due(time, versions)
    assert time <= due <= MAX_TIMESTAMP
    assert rule.due(time, sorted({*versions, (further, f"v{further}")})) <= due
    assert due <= rule.due(time + 1, versions)


@given(rule=rules, least=times, versions=versions_of)
def test_of_versions_below_a_time_the_last_stays_while_it_reaches_so_far(
    rule: AsOfRule, least: int, versions: list[Any]
) -> None:
    useless = rule.useless(least, versions)
    met = {defined(rule, time, versions) for time in range(least, 45)}
    assert not met & set(versions[:useless])
    below = [version for version in versions[useless:] if version[0] < least]
    assert len(below) <= 1
    assert all(rule.tolerance is None or least - version[0] <= rule.tolerance for version in below)
    assert not (below and rule.direction is AsOfDirection.FORWARD)


@given(rule=rules, versions=versions_of, watermark=times)
def test_the_first_version_fades_when_it_is_useless_to_rows_above_the_watermark(
    rule: AsOfRule, versions: list[Any], watermark: int
) -> None:
    fades = rule.fades(versions)
    if not versions:
        assert fades is None
        return
    assert (fades is not None and fades <= watermark) == (rule.useless(watermark + 1, versions) > 0)
