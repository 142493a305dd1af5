"""Waiting for a condition with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.looks import pause_behind
from yarrow.runtime.common.clock import SystemClock

#: Long enough for a machine with other work: a condition that holds is not waited for.
DEADLINE = 180.0
_clock = SystemClock()


def wait_until(
    condition: Callable[[], bool], explain: Callable[[], str] = lambda: "", limit: float = DEADLINE
) -> None:
    """Returns when `condition` holds; fails with `explain()` after `limit` seconds."""
    begun = _clock.monotonic()
    end = begun + limit
    pause = threading.Event()
    while not condition():
        looked = _clock.monotonic()
        assert looked < end, explain()
        pause.wait(pause_behind(looked - begun))
        begun = _clock.monotonic()
