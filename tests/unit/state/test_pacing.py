"""A snapshot thread rests where it has to share the interpreter, and only there."""

from __future__ import annotations

import pytest

from yarrow.container.state.pacing import Pacing


class Thread:
    """A thread whose work takes as much longer as it shares the interpreter."""

    def __init__(self, slowness: float) -> None:
        self.worked = self.elapsed = self.rested = 0.0
        self._slowness = slowness
        self.pacing = Pacing(lambda: self.worked, lambda: self.elapsed, self._rest)

    def _rest(self, seconds: float) -> None:
        self.rested += seconds
        self.elapsed += seconds

    def work(self, seconds: float) -> None:
        self.worked += seconds
        self.elapsed += seconds * self._slowness
        self.pacing.step()


@pytest.mark.parametrize("step", [0.001, 0.004, 0.02])
def test_a_thread_that_shares_takes_less_than_a_third(step: float) -> None:
    thread = Thread(slowness=2)
    for _ in range(200):
        thread.work(step)
    assert 0.2 < thread.worked / thread.elapsed < 0.34


def test_a_thread_that_is_alone_never_rests() -> None:
    thread = Thread(slowness=1.1)
    for _ in range(200):
        thread.work(0.003)
    assert thread.rested == 0


def test_a_long_piece_of_work_is_not_followed_by_a_long_rest() -> None:
    thread = Thread(slowness=3)
    thread.work(10)
    assert thread.rested == pytest.approx(0.1)
