"""The one way in which tests on a real cluster wait, for a condition and never for a time; what a busy machine adds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from yarrow.runtime.common.clock import SystemClock

#: Seconds between two looks.
LOOK = 0.05
_clock = SystemClock()


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Returns when the condition holds, with the seconds that it took; fails after `seconds`."""
    began = _clock.monotonic()
    while not condition():
        assert _clock.monotonic() < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(LOOK)
    return _clock.monotonic() - began


def slowed(seconds: float) -> float:
    """What takes so long on a quiet machine may take this long here, where others may keep it busy."""
    # The tests themselves make up for two processes a core.
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 2)
