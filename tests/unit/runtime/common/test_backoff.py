"""Backoff: pauses grow to the limit and begin anew after a success; nobody in the product counts pauses by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.architecture.source_tree import engine_files, module_name, source
from yarrow.runtime.common.backoff import Backoff


def test_pauses_double_up_to_the_last_and_begin_anew() -> None:
    backoff = Backoff(0.5, 3.0)
    assert backoff.seconds == 0.5 and not backoff.is_longest
    assert [backoff.next_seconds() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_seconds() == 0.5


def test_the_longest_pause_is_known() -> None:
    backoff = Backoff(1.0, 2.0)
    backoff.next_seconds()
    assert backoff.is_longest


@given(st.floats(0, 100), st.floats(0, 100), st.floats(1, 10), st.integers(1, 30))
def test_pauses_never_shrink_nor_exceed_both_limits(
    first: float, last: float, factor: float, attempts: int
) -> None:
    backoff = Backoff(first, last, factor)
    pauses = [backoff.next_seconds() for _ in range(attempts)]
    assert pauses == sorted(pauses) and pauses[0] == first and pauses[-1] <= max(first, last)


@pytest.mark.parametrize(("first", "factor"), [(-1.0, 2.0), (1.0, 0.5)])
def test_pauses_that_would_shrink_are_refused(first: float, factor: float) -> None:
    with pytest.raises(ValueError, match="pauses cannot grow"):
        Backoff(first, 10.0, factor)


def test_nobody_counts_growing_pauses_by_hand() -> None:
    by_hand = re.compile(r"(pause|delay|seconds|interval|backoff)\w* = min\([^)]*\*")
    found = [module_name(path) for path in engine_files() if by_hand.search(source(path))]
    # CallCost counts calls between trials, not seconds.
    assert found == ["yarrow.container.sizing.call_cost"]
