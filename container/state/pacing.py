"""Pacing: limits a thread that makes snapshots to a small share of the interpreter.

Owner: the snapshot thread. Two busy threads get half of the interpreter each, but a snapshot is less urgent.
A thread that waits for its turns rests after each stretch of work; a thread that is alone works on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from yarrow.runtime.common.clock import perf_counter

#: Seconds of work after which the thread looks whether it had to wait.
_STRETCH: Final = 0.005
#: Ratio of elapsed to worked time above which another thread wants the interpreter or the core.
_CONTENDED: Final = 1.25
#: The thread's share of the process's work under contention. A longer snapshot costs the task no more: each
#: key is copied at most once, at its first change since the cut. So the smaller the share, the closer is the
#: rate to that without a snapshot.
_SHARE: Final = 1 / 6
_LONGEST_REST: Final = 0.1


class Pacing:
    """Rests between pieces of work. Times are seconds; tests replace the functions."""

    def __init__(
        self,
        worked: Callable[[], float] = time.thread_time,
        all_worked: Callable[[], float] = time.process_time,
        elapsed: Callable[[], float] = perf_counter,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._worked = worked
        self._all_worked = all_worked
        self._elapsed = elapsed
        self._rest = rest
        self._begin()

    def _begin(self) -> None:
        self._worked_at, self._all_worked_at = self._worked(), self._all_worked()
        self._elapsed_at = self._elapsed()

    def step(self) -> bool:
        """Ends a piece of work; True if that ended a stretch, after its rest."""
        work = self._worked() - self._worked_at
        if work < _STRETCH:
            return False
        elapsed = self._elapsed() - self._elapsed_at
        if elapsed > _CONTENDED * work:
            # Work instead of time: on an overloaded machine all threads wait.
            of_all = max(self._all_worked() - self._all_worked_at, work)
            missing = (work / _SHARE - of_all) * elapsed / of_all
            if missing > 0:
                self._rest(min(missing, _LONGEST_REST))
        self._begin()
        return True
