"""PausableClock: it stands in pauses, and leaves out what was lost."""

from __future__ import annotations

from yarrow.container.operators.pausable_clock import PausableClock
from yarrow.runtime.common.clock import ManualClock


def test_it_stands_while_it_is_paused() -> None:
    clock = ManualClock(1_000)
    paused = PausableClock(clock.epoch_ms)
    began = paused()
    clock.advance(1)
    paused.pause(True)
    clock.advance(5)
    paused.pause(True)
    assert paused() - began == 1_000
    clock.advance(5)
    paused.pause(False)
    clock.advance(2)
    assert paused() - began == 3_000


def test_it_leaves_out_what_was_lost_unless_it_stood_then() -> None:
    clock = ManualClock(1_000)
    paused = PausableClock(clock.epoch_ms)
    began = paused()
    clock.advance(3)
    paused.leave_out(2_000)
    assert paused() - began == 1_000
    paused.pause(True)
    clock.advance(3)
    paused.leave_out(2_000)
    paused.pause(False)
    assert paused() - began == 1_000


def test_one_may_stand_on_another() -> None:
    clock = ManualClock(1_000)
    outer = PausableClock(clock.epoch_ms)
    inner = PausableClock(outer)
    began = inner()
    inner.pause(True)
    clock.advance(1)
    outer.pause(True)
    clock.advance(1)
    inner.pause(False)
    clock.advance(1)
    outer.pause(False)
    clock.advance(1)
    assert inner() - began == 1_000
