"""NamedTimers: one timer a name."""

from __future__ import annotations

from tests.support.manual_timers import ManualTimers
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.runtime.common.clock import ManualClock


def test_one_that_is_set_again_replaces_the_former() -> None:
    manual = ManualTimers(ManualClock(0))
    timers, ran = NamedTimers(manual), list[str]()
    timers.after("a", 2, lambda: ran.append("former"))
    timers.after("a", 3, lambda: ran.append("later"))
    manual.advance(2)
    assert ran == [] and timers.is_set("a")
    manual.advance(1)
    assert ran == ["later"] and not timers.is_set("a")


def test_a_repeated_one_runs_until_it_is_cancelled() -> None:
    manual = ManualTimers(ManualClock(0))
    timers, ran = NamedTimers(manual), list[str]()
    timers.every("beat", 1, lambda: ran.append("beat"))
    for _ in range(3):
        manual.advance(1)
    assert ran == ["beat"] * 3
    timers.cancel("beat")
    timers.cancel("unknown")
    manual.advance(5)
    assert len(ran) == 3


def test_none_runs_after_all_are_cancelled() -> None:
    manual = ManualTimers(ManualClock(0))
    timers, ran = NamedTimers(manual), list[str]()
    timers.every("beat", 1, lambda: ran.append("beat"))
    timers.after("once", 1, lambda: ran.append("once"))
    timers.cancel_all()
    manual.advance(5)
    assert ran == [] and not manual.pending
