"""EndSignal: lets a process whose main thread waits, without an event loop, end by signals.

Owner: the main thread, where Python runs handlers of signals: between any two steps of whatever runs there. So a
handler must not take a lock; threading.Event takes one, which the interrupted thread may hold itself, for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType

from yarrow.runtime.common.clock import SystemClock


class EndSignal:
    """Whether one of some signals has come, and a way to wait for it."""

    def __init__(self, numbers: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)) -> None:
        """From now on these signals do nothing but be remembered here. To be made on the main thread."""
        self._came = False
        # A byte wakes the wait, also one that begins only after the signal.
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in numbers:
            signal.signal(number, self._handle)

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self._came

    def wait(self, seconds: float) -> bool:
        """Until a signal has come, `seconds` at most; whether one has. Signals of other kinds do not end it."""
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
