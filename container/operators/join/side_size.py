"""SideSize: how many rows a join keeps of one side, how old they are and how large, for metrics.

Owner: the task thread; any thread may read. Rows are counted by spans of time, so that the oldest is known without a
look at the state. Of some rows the size is estimated. Must not know state or keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from yarrow.container.network.element_codec import estimated_bytes

#: Each such row in turn has its size estimated.
_SAMPLED: Final = 64


class StoredSize(NamedTuple):
    """The size of one side as state."""

    #: (start of a span, number of its rows)
    spans: list[tuple[int, int]]
    #: Mean estimated bytes of a row.
    row_bytes: float


class CountsRows(Protocol):
    """Whoever keeps rows that SideSize does not count. Any thread may ask; nobody adds rows to SideSize then."""

    @property
    def entries(self) -> int:
        """The number of rows."""
        ...

    @property
    def oldest(self) -> int | None:
        """The start of the span of the oldest row; None without rows."""
        ...

    def spans(self) -> Mapping[int, int]:
        """The number of rows by the start of their span."""
        ...


class SideSize:
    """The rows of one side of one subtask."""

    def __init__(self, span: int) -> None:
        """`span`: length of the spans, in milliseconds."""
        self._span = span
        #: Rows by the start of their span; whoever counts many rows writes to it.
        self.rows: dict[int, int] = {}
        self._keeper: CountsRows | None = None
        self._offered = 0
        self._sampled = 0
        self._sampled_bytes = 0.0

    def count_by(self, keeper: CountsRows) -> None:
        """Asks the keeper of the rows for their numbers."""
        self._keeper = keeper

    def _spans(self) -> Mapping[int, int]:
        return self.rows.copy() if self._keeper is None else self._keeper.spans()

    # ------------------------------------------------------------------ rows that come and go

    def added(self, time: int, row: Any) -> None:
        """A row of this time is kept."""
        start = time - time % self._span
        self.rows[start] = self.rows.get(start, 0) + 1
        self.sample(row)

    def sample(self, row: Any) -> None:
        """Estimates the size of a row, if it is the turn of such a one."""
        self._offered += 1
        if self._offered % _SAMPLED == 1:
            self._sampled += 1
            self._sampled_bytes += estimated_bytes([row])

    def removed(self, times: Iterable[int]) -> None:
        """Rows of these times are kept no more."""
        span, rows = self._span, self.rows
        for time in times:
            start = time - time % span
            left = rows.get(start, 0) - 1
            if left > 0:
                rows[start] = left
            else:
                # Behind a rescale the numbers are estimates.
                rows.pop(start, None)

    def removed_until(self, time: int) -> None:
        """No row of a span that ends at this time or before it is kept any more."""
        for start in [start for start in self.rows if start + self._span - 1 <= time]:
            del self.rows[start]

    def clear(self) -> None:
        """No row is kept any more."""
        self.rows.clear()

    # ------------------------------------------------------------------ numbers

    @property
    def entries(self) -> int:
        """Number of rows. Any thread."""
        return sum(self._spans().values()) if self._keeper is None else self._keeper.entries

    @property
    def bytes(self) -> int:
        """Estimated bytes of all rows. Any thread."""
        return int(self.entries * self._row_bytes)

    @property
    def oldest(self) -> int | None:
        """The start of the span of the oldest row, in epoch milliseconds; None without rows. Any thread."""
        if self._keeper is not None:
            return self._keeper.oldest
        return min((start for start, number in self._spans().items() if number), default=None)

    @property
    def _row_bytes(self) -> float:
        return self._sampled_bytes / self._sampled if self._sampled else 0.0

    # ------------------------------------------------------------------ state

    def stored(self) -> StoredSize:
        """The present numbers as state."""
        return StoredSize([each for each in self._spans().items() if each[1]], self._row_bytes)

    def restore(self, stored: StoredSize, share: float) -> None:
        """Adds the numbers of a former subtask, of which this one has a share of the key groups."""
        for start, number in stored.spans:
            own = round(number * share)
            if own:
                start -= start % self._span
                self.rows[start] = self.rows.get(start, 0) + own
        if stored.row_bytes:
            self._sampled += 1
            self._sampled_bytes += stored.row_bytes
