"""Pacing: keeps a thread that makes snapshots to a small share of the interpreter, whatever else the machine does.

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
#: Share of the process's work that is the thread's where it is contended. A longer snapshot costs the task no more:
#: each key is copied at its first change since the cut at most once, however long that was ago, so the smaller the
#: share, the nearer the rate comes to that without a snapshot.
_SHARE: Final = 1 / 6
_LONGEST_REST: Final = 0.1


class Pacing:
    """Rests between pieces of work. Times in seconds; the functions are for tests."""

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
        """A piece of work is done; True once a stretch of them is, the rest behind it included."""
        work = self._worked() - self._worked_at
        if work < _STRETCH:
            return False
        elapsed = self._elapsed() - self._elapsed_at
        if elapsed > _CONTENDED * work:
            # Work and not time: on a machine that is too busy all threads wait, and none has gained by it.
            of_all = max(self._all_worked() - self._all_worked_at, work)
            missing = (work / _SHARE - of_all) * elapsed / of_all
            if missing > 0:
                self._rest(min(missing, _LONGEST_REST))
        self._begin()
        return True
