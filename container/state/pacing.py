"""Pacing: keeps a thread that makes snapshots from taking half of the interpreter from the task thread.

Owner: the snapshot thread. Two busy threads share the interpreter half and half; a snapshot is in no such hurry. A
thread that finds itself waiting for its turns rests after each stretch of work; one that is alone works on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from yarrow.runtime.common.clock import perf_counter

#: Seconds of work after which the thread looks at how it was let work.
_STRETCH: Final = 0.005
#: Elapsed over worked time from which on somebody else wants the interpreter, or the core.
_CONTENDED: Final = 1.25
#: Rest for each second of work; with the waiting that is there already, the task keeps about three quarters.
_REST: Final = 2.0
_LONGEST_REST: Final = 0.1


class Pacing:
    """Rests between pieces of work. Times in seconds; the functions are for tests."""

    def __init__(
        self,
        worked: Callable[[], float] = time.thread_time,
        elapsed: Callable[[], float] = perf_counter,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._worked = worked
        self._elapsed = elapsed
        self._rest = rest
        self._worked_at = worked()
        self._elapsed_at = elapsed()

    def step(self) -> None:
        """A piece of work is done."""
        work = self._worked() - self._worked_at
        if work < _STRETCH:
            return
        if self._elapsed() - self._elapsed_at > _CONTENDED * work:
            self._rest(min(work * _REST, _LONGEST_REST))
        self._worked_at, self._elapsed_at = self._worked(), self._elapsed()
