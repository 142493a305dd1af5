"""ErrorBounds: whether an operator has left out more records than its program allows.

Owner: the task thread. Pure but for the clock that the caller reads. One object counts for one subtask.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from yarrow.common.values.error_handling import ErrorHandling
from yarrow.runtime.common.errors import YarrowError

#: Seconds in which errors are counted.
_WINDOW_SECONDS: Final = 60.0
#: Records from which on a share tells something; an input that ends is looked at with fewer.
_FEWEST: Final = 100
#: The share is that of the records of the present and the last block of so many records.
_BLOCK: Final = 1000


class TooManyErrorsError(YarrowError):
    """An operator has left out more records than `on_error` of its program allows."""


class ErrorBounds:
    """Counts the records of a subtask that were taken, and those that were left out."""

    def __init__(self, failing: str, handling: ErrorHandling) -> None:
        """`failing` begins errors: `"source 'lines' could not read"`, for example."""
        self._failing = failing
        self._handling = handling
        #: Seconds and number of errors within the window, and their sum.
        self._recent: deque[tuple[float, int]] = deque()
        self._in_window = 0
        #: Records and errors of the last complete block, and of the present one.
        self._last = (0, 0)
        self._records, self._errors = 0, 0

    def count(self, taken: int, left_out: int, now: float) -> None:
        """Note records at `now`, seconds of a clock that never goes back. Raises TooManyErrorsError."""
        if left_out and self._handling.max_per_minute is not None:
            self._check_rate(left_out, now, self._handling.max_per_minute)
        self._records += taken + left_out
        self._errors += left_out
        if left_out:
            self._check_share(_FEWEST)
        if self._records >= _BLOCK:
            self._last = (self._records, self._errors)
            self._records, self._errors = 0, 0

    def end(self) -> None:
        """Look at the share of an input that has ended with few records. Raises TooManyErrorsError."""
        # Behind a complete block the share was looked at with each error.
        if self._last == (0, 0):
            self._check_share(1)

    def _check_rate(self, left_out: int, now: float, most: int) -> None:
        while self._recent and self._recent[0][0] <= now - _WINDOW_SECONDS:
            self._in_window -= self._recent.popleft()[1]
        self._recent.append((now, left_out))
        self._in_window += left_out
        if self._in_window > most:
            raise TooManyErrorsError(
                f"{self._failing} {self._in_window} records within a minute, and on_error allows"
                f" max_per_minute={most} in each subtask. Mend the records or the program, or allow more"
            )

    def _check_share(self, fewest: int) -> None:
        most = self._handling.max_share
        records, errors = self._last[0] + self._records, self._last[1] + self._errors
        if most is not None and records >= fewest and errors > most * records:
            raise TooManyErrorsError(
                f"{self._failing} {errors} of the latest {records} records, and on_error allows"
                f" max_share={most} in each subtask. Mend the records or the program, or allow more"
            )
