"""Pauses between attempts: they grow with jitter, and none leads beyond the deadline."""

from __future__ import annotations

import pytest

from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.retry_pauses import RetryPauses


def test_pauses_grow_to_the_longest_with_jitter() -> None:
    pauses = RetryPauses(100.0, 1.0, 4.0, ManualClock(0))
    found = [pauses.next_seconds() for _ in range(5)]
    for pause, longest in zip(found, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert pause is not None and longest / 2 <= pause <= longest
    others = [RetryPauses(100.0, 1.0, 4.0, ManualClock(0)).next_seconds() for _ in range(20)]
    assert len(set(others)) > 1, "those who failed together ask again one by one"


def test_no_pause_leads_beyond_the_deadline() -> None:
    clock = ManualClock(0)
    pauses = RetryPauses(10.0, 1.0, 1.0, clock)
    assert pauses.left_seconds == pytest.approx(10.0)
    assert pauses.next_seconds() is not None
    clock.advance(9.75)
    assert pauses.left_seconds == pytest.approx(0.25)
    assert pauses.next_seconds() is None
    clock.advance(5.0)
    assert pauses.left_seconds == 0.0


def test_one_attempt_without_time() -> None:
    assert RetryPauses(0.0, 1.0, 1.0, ManualClock(0)).next_seconds() is None
