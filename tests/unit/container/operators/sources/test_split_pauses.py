"""Which splits wait: those ahead of the bound, or the reader as a whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.sources.split_pauses import SplitPauses, pauses
from yarrow.runtime.data.elements import MIN_TIMESTAMP


def test_a_split_above_the_bound_waits_and_one_at_it_goes_on() -> None:
    found = pauses({"a": 11, "b": 10, "c": MIN_TIMESTAMP}, 10, single_splits=True)
    assert found == SplitPauses(frozenset({"a"}), False)


def test_a_reader_whose_splits_are_all_ahead_is_not_read() -> None:
    assert pauses({"a": 11, "b": 12}, 10, single_splits=True).whole_reader
    assert pauses({None: 11}, 10, single_splits=False).whole_reader


def test_without_a_bound_a_split_waits_once_it_has_a_time() -> None:
    assert pauses({"a": 5, "b": MIN_TIMESTAMP}, None, single_splits=True).paused == {"a"}
    assert pauses({"a": 5}, None, single_splits=True).whole_reader


def test_a_reader_without_splits_does_not_wait() -> None:
    assert pauses({}, 10, single_splits=True) == SplitPauses(frozenset(), False)


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 20), min_size=1), st.integers(0, 20), st.booleans()
)
def test_the_slowest_split_of_a_reader_that_is_read_never_waits(
    times: dict[str, int], bound: int, single: bool
) -> None:
    named: dict[str | None, int] = dict(times.items())
    found = pauses(named, bound, single_splits=single)
    slowest = min(times, key=lambda split: times[split])
    assert found.whole_reader is (min(times.values()) > bound)
    assert found.whole_reader or slowest not in found.paused
    if single:
        assert found.paused == {split for split, time in times.items() if time > bound}
