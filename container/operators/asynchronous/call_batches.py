"""CallBatches: says which records go into one call of an AsyncBatchFunction, and when the call begins.

Pure, owned by the task thread: it has no clock, and gets the time. A call begins when enough rows wait, or when the
first of them has waited long enough. Must not know queues, threads or user functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.container.sizing.call_cost import CallCost, Trials
from yarrow.runtime.graph.async_spec import AsyncBatchLimits

#: The largest factors between the sizes of two consecutive calls: one slow call may have waited for a core.
_SHRINKING = 4
_GROWTH = 2


class BatchSize:
    """The number of rows of a call, as large as the latency of calls allows.

    The size comes from the measured cost of calls, fixed + row x rows. Where the fixed part alone exceeds the latency,
    fewer rows would not help, so calls are full.
    """

    def __init__(self, limits: AsyncBatchLimits) -> None:
        self._limits = limits
        self._cost = CallCost()
        self._trials = Trials()
        self._usual = limits.max_rows
        #: Rows of a call that shows the cost at another size; None = none is due.
        self._trial: int | None = None

    @property
    def rows(self) -> int:
        """Rows of the next call."""
        return self._usual if self._trial is None else self._trial

    def begun(self, rows: int) -> None:
        """Takes note that a call of `rows` begins."""
        if self._trial is not None and rows <= self._trial and rows != self._usual:
            self._trial = None

    def measured(self, rows: int, seconds: float) -> None:
        """Takes the number of rows of a call, at least 1, and its time."""
        self._cost.measured(rows, seconds)
        # Calls with few rows, because no more came, tell nothing against the size of full ones.
        is_full, is_late = rows >= self._usual // _SHRINKING, 1000 * seconds > self._limits.latency_ms
        wanted = self._rows_in_time()
        if wanted < self._usual and is_late and is_full:
            self._usual = max(1, self._usual // _SHRINKING, wanted)
        elif wanted > self._usual:
            self._usual = min(wanted, self._usual * _GROWTH)
        suits = self._usual == self._limits.max_rows and not is_late
        if self._trial is None and is_full and not suits and self._trials.due():
            # A smaller call keeps the latency. One row cannot become fewer.
            self._trial = self._usual // 2 if self._usual > 1 else min(2, self._limits.max_rows)

    def _rows_in_time(self) -> int:
        most, row = self._limits.max_rows, self._cost.row
        left = self._limits.latency_ms / 1000 - self._cost.fixed
        if not row or left <= 0:
            return most
        return int(min(most, left / row))


class CallBatches:
    """The records that wait for their call, in order."""

    def __init__(self, limits: AsyncBatchLimits) -> None:
        self._limits = limits
        #: The rows of a call.
        self.size = BatchSize(limits)
        #: Records with the time (epoch ms) at which their call begins at the latest.
        self._waiting: deque[tuple[PendingResult, int]] = deque()
        self._rows = 0

    def add(self, records: Iterable[PendingResult], now: int) -> None:
        """Adds records that have come at `now` (epoch ms)."""
        due = now + self._limits.max_wait_ms
        for record in records:
            self._waiting.append((record, due))
            self._rows += record.size

    @property
    def due(self) -> int | None:
        """The time (epoch ms) at which `take` gives a call at the latest; None = no record waits."""
        return self._waiting[0][1] if self._waiting else None

    def take(self, now: int | None, free: int | None = None) -> list[list[PendingResult]]:
        """Takes out the records of each call that begins at `now` (epoch ms); None = of all records.

        `free` calls can run at once, and one full call may begin ahead of that. Other records wait, so that more of
        them share a call. None = any number can run.
        """
        calls: list[list[PendingResult]] = []
        while self._waiting:
            is_full = self._rows >= self.size.rows
            if not is_full and now is not None and self._waiting[0][1] > now:
                break
            if free is not None and len(calls) >= free + is_full:
                break
            calls.append(self._next())
        return calls

    def _next(self) -> list[PendingResult]:
        taken: list[PendingResult] = []
        rows = 0
        while self._waiting and (not taken or rows + self._waiting[0][0].size <= self.size.rows):
            record, _ = self._waiting.popleft()
            taken.append(record)
            rows += record.size
        self._rows -= rows
        self.size.begun(rows)
        return taken
