"""Pauses between the looks of a test that waits."""

from __future__ import annotations

import pytest

from tests.support.looks import LEAST, MOST, PAUSES_PER_LOOK, pause_behind


@pytest.mark.parametrize(
    ("look_seconds", "expected"),
    [(0.0, LEAST), (0.001, LEAST), (0.05, PAUSES_PER_LOOK * 0.05), (0.8, MOST), (30.0, MOST)],
)
def test_pauses_grow_with_looks_between_their_bounds(look_seconds: float, expected: float) -> None:
    assert pause_behind(look_seconds) == pytest.approx(expected)
