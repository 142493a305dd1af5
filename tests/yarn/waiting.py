"""The one way in which tests on a real cluster wait: for a condition and never for a time. How long something takes is
measured by bench/yarn."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.looks import pause_behind
from yarrow.runtime.common.clock import SystemClock

#: Seconds after which what is waited for counts as never coming: it ends a test that hangs, also on a busy machine.
GRACE = 300.0
_clock = SystemClock()


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Returns when the condition holds, with the seconds that it took; fails after `seconds`."""
    began = looks = _clock.monotonic()
    while not condition():
        looked = _clock.monotonic()
        assert looked < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(pause_behind(looked - looks))
        looks = _clock.monotonic()
    return _clock.monotonic() - began
