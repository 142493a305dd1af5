"""CallBatches: says which records go into one call of an AsyncBatchFunction, and when the call begins.

Pure, owned by the task thread: it has no clock, and gets the time. A call begins when enough rows wait, or when the
first of them has waited long enough. Must not know queues, threads or user functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.runtime.graph.operator_spec import AsyncBatchLimits

#: A batch shrinks to this part behind a slow call.
_SHRINKING = 0.75
#: A batch grows by this part of the most rows behind a full one that was fast enough.
_GROWTH = 1 / 16


class BatchSize:
    """The number of rows of a call, as large as the latency of calls allows.

    It grows by the same number of rows behind each fast call, and shrinks by a part behind a slow one. That is the
    additive increase and multiplicative decrease of TCP's congestion control.
    """

    def __init__(self, limits: AsyncBatchLimits) -> None:
        self._limits = limits
        self._step = max(1, int(limits.max_rows * _GROWTH))
        #: Rows of the next call.
        self.rows = limits.max_rows

    def measured(self, rows: int, seconds: float) -> None:
        """Takes the number of rows of a call and its time."""
        if 1000 * seconds > self._limits.latency_ms:
            # Calls of former sizes end late: they tell nothing against a size that is smaller already.
            self.rows = max(1, min(self.rows, int(rows * _SHRINKING)))
        elif rows >= self.rows:
            self.rows = min(self._limits.max_rows, self.rows + self._step)


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

    def take(self, now: int | None) -> list[list[PendingResult]]:
        """Takes out the records of each call that begins at `now` (epoch ms); None = of all records."""
        calls = []
        while self._waiting and (now is None or self._rows >= self.size.rows or self._waiting[0][1] <= now):
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
        return taken
