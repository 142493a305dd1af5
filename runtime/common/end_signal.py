"""EndSignal: ends a process by signals while its main thread waits without an event loop.

Owner: the main thread, on which Python runs signal handlers between any two steps. So a handler must not take
a lock. threading.Event takes one, which the interrupted thread may itself hold for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType

from yarrow.runtime.common.clock import SystemClock


class EndSignal:
    """Remembers whether one of some signals has come, and waits for it."""

    def __init__(self, numbers: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)) -> None:
        """Catches these signals from now on. Make it on the main thread."""
        self._came = False
        # A byte wakes the wait, also one that begins after the signal.
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in numbers:
            signal.signal(number, self._handle)

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self._came

    def wait(self, seconds: float) -> bool:
        """Waits until a signal has come, for at most `seconds`; returns whether one has.

        Other signals do not end the wait.
        """
        if not self._came:
            clock = SystemClock()
            end = clock.monotonic() + seconds
            while not self._came and (left := end - clock.monotonic()) > 0:
                select.select([self._woken], [], [], left)
        return self._came

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        # A full pipe wakes as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"\0")
