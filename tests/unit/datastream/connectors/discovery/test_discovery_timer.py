"""Looks at intervals: planned one after another, until discovery ends or a look fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from yarrow.datastream.connectors.discovery import DiscoveryTimer


class Clock:
    """Keeps the planned calls."""

    def __init__(self) -> None:
        self.planned: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self.planned.append((seconds, action))

    def pass_time(self) -> float:
        """Makes the only planned call, and returns its delay."""
        ((seconds, action),) = self.planned
        self.planned.clear()
        action()
        return seconds


def test_each_look_plans_the_next_one_by_the_present_interval() -> None:
    clock, looks = Clock(), list[int]()
    timer = DiscoveryTimer(clock, 2.0, lambda: looks.append(len(clock.planned)))
    timer.begin()
    assert looks == []
    assert clock.pass_time() == 2.0 and looks == [0], "the next look is planned behind this one"
    timer.seconds = 5.0
    assert (clock.pass_time(), clock.pass_time()) == (2.0, 5.0)
    timer.seconds = None
    clock.pass_time()
    assert clock.planned == [] and len(looks) == 4


def test_without_an_interval_nothing_is_planned() -> None:
    clock = Clock()
    DiscoveryTimer(clock, None, pytest.fail).begin()
    assert clock.planned == []


def test_a_closed_timer_neither_looks_nor_plans() -> None:
    clock, looks = Clock(), list[int]()
    timer = DiscoveryTimer(clock, 2.0, lambda: looks.append(1))
    timer.begin()
    timer.close()
    assert timer.is_closed
    clock.pass_time()
    timer.begin()
    assert looks == [] and clock.planned == []


def test_a_look_that_fails_ends_the_looks() -> None:
    def look() -> None:
        raise OSError("away")

    clock = Clock()
    timer = DiscoveryTimer(clock, 2.0, look)
    timer.begin()
    with pytest.raises(OSError, match="away"):
        clock.pass_time()
    assert clock.planned == []
