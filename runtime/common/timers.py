"""Timers of the control plane: passed in like the Clock, so that tests move time by hand.

Owner: callbacks run on the scheduling loop. Must not be used if a condition could signal the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancels the callback; no effect when it has run."""
        ...


class Timers(Protocol):
    """Calls back later."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls `callback` once, `seconds` from now, on the caller's event loop."""
        ...


class LoopTimers:
    """Timers of the running event loop."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)
