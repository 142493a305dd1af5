"""CallCost: splits the measured time of calls into a fixed cost and the cost of each row.

Pure: takes rows and seconds. Whoever chooses the size of calls by their time uses it: chunks, polls, calls of
asynchronous functions. Must not choose a size.
"""

from __future__ import annotations

#: Rows are added until the fixed cost of a call is a tenth of the whole.
ROWS_PER_FIXED_COST = 9
#: Weight of all former calls against the present one.
_MEMORY = 0.875
#: A call that took this many times the expected time is no noise: the earlier estimate is dropped.
_SURPRISE = 4
#: If all calls have one size, a fixed cost cannot be told from that of rows. So the first call, and then one in
#: this many, is followed by one of another size. The distance between two trials doubles each time,
#: up to a limit.
_CALLS_PER_TRIAL = 32
_MAX_CALLS_PER_TRIAL = 1024


class CallCost:
    """The cost of a call as fixed + row x rows: least squares over the last calls."""

    def __init__(self) -> None:
        #: Seconds of a call without rows.
        self.fixed = 0.0
        #: Seconds of each row; None before the first call.
        self.row: float | None = None
        self._calls = self._rows = self._seconds = self._squares = self._products = 0.0

    def measured(self, rows: int, seconds: float) -> None:
        """Takes a measurement: a call with `rows` > 0 took `seconds`."""
        if self.row is not None and seconds > _SURPRISE * (self.fixed + self.row * rows):
            self._calls = self._rows = self._seconds = self._squares = self._products = 0.0
            self.row = None
        self._calls = self._calls * _MEMORY + 1
        self._rows = self._rows * _MEMORY + rows
        self._seconds = self._seconds * _MEMORY + seconds
        self._squares = self._squares * _MEMORY + rows * rows
        self._products = self._products * _MEMORY + rows * seconds
        mean_rows, mean_seconds = self._rows / self._calls, self._seconds / self._calls
        variance = max(0.0, self._squares / self._calls - mean_rows * mean_rows)
        covariance = self._products / self._calls - mean_rows * mean_seconds
        # Calls of one size say nothing of the slope: it stays, and at first the rows have the whole cost.
        inertia = (mean_rows / 8) ** 2
        former = mean_seconds / mean_rows if self.row is None else self.row
        slope = (covariance + inertia * former) / (variance + inertia)
        self.row = max(0.0, min(slope, seconds / rows, mean_seconds / mean_rows))
        self.fixed = max(0.0, mean_seconds - self.row * mean_rows)

    def rows_worth(self, more_seconds: float = 0.0) -> float:
        """The rows over which the fixed cost is spread well; `more_seconds` is a row's cost outside the call."""
        if self.fixed <= 0:
            return 0.0
        row = (self.row or 0.0) + more_seconds
        return ROWS_PER_FIXED_COST * self.fixed / row if row > 0 else float("inf")


class Trials:
    """Decides when calls of one size are followed by one of another size, to measure its cost."""

    def __init__(self) -> None:
        self._left = 1
        self._pause = _CALLS_PER_TRIAL

    def due(self) -> bool:
        """Notes another call of the same size; True if one of another size should follow."""
        self._left -= 1
        if self._left:
            return False
        self._left = self._pause
        self._pause = min(2 * self._pause, _MAX_CALLS_PER_TRIAL)
        return True
