"""A snapshot thread rests where it has to share the interpreter, and only there."""

from __future__ import annotations

import pytest

from yarrow.container.state.pacing import Pacing


class Thread:
    """A thread whose work takes as much longer as it shares the interpreter; the process gets a part of a core."""

    def __init__(self, slowness: float, core: float = 1.0) -> None:
        self.worked = self.all_worked = self.elapsed = self.rested = 0.0
        self._slowness = slowness
        self._core = core
        self.pacing = Pacing(lambda: self.worked, lambda: self.all_worked, lambda: self.elapsed, self._rest)

    def _rest(self, seconds: float) -> None:
        self.rested += seconds
        self.elapsed += seconds
        self.all_worked += seconds * self._core

    def work(self, seconds: float) -> None:
        self.worked += seconds
        self.all_worked += seconds * self._slowness
        self.elapsed += seconds * self._slowness / self._core
        self.pacing.step()


@pytest.mark.parametrize("core", [1.0, 0.5])
@pytest.mark.parametrize("slowness", [1.5, 2, 4])
@pytest.mark.parametrize("step", [0.001, 0.004])
def test_a_thread_that_shares_does_a_sixth_of_the_work(step: float, slowness: float, core: float) -> None:
    thread = Thread(slowness, core)
    for _ in range(200):
        thread.work(step)
    assert thread.worked / thread.all_worked == pytest.approx(1 / 6, rel=0.1)


def test_work_of_others_that_is_enough_is_not_followed_by_a_rest() -> None:
    thread = Thread(slowness=8)
    for _ in range(200):
        thread.work(0.004)
    assert thread.rested == 0


def test_a_thread_that_is_alone_never_rests() -> None:
    thread = Thread(slowness=1.1)
    for _ in range(200):
        thread.work(0.003)
    assert thread.rested == 0


def test_a_long_piece_of_work_is_not_followed_by_a_long_rest() -> None:
    thread = Thread(slowness=3)
    thread.work(10)
    assert thread.rested == pytest.approx(0.1)
