"""Permits: how many rows a source may read, or a sink may write, so that it keeps its rate limit.

Owner: the task's thread. Pure: it takes times and never waits. It must not know systems, readers or writers.

Permits come with time, and up to those of one second are saved. Rows take permits when they have been read or written,
since nobody knows their bytes before. So the balance may become negative, by the rows of one call at most, and the
next rows wait until it is positive. Rows come in portions of a twentieth of a second, because a call costs something.
"""

from __future__ import annotations

from math import inf
from typing import Final

from yarrow.common.values.rate_limit import UNLIMITED, RateLimit

#: Seconds whose permits are saved for a source or sink that was not ready to use them.
SAVED_SECONDS: Final = 1.0
#: Seconds whose permits make one portion.
PORTION_SECONDS: Final = 0.05
#: Seconds without rows after which a subtask leaves its share to the others.
IDLE_SECONDS: Final = 1.0


class _Bucket:
    """The permits of one kind: rows or bytes."""

    def __init__(self) -> None:
        #: Permits a second; None = no limit.
        self.rate: float | None = None
        self.balance = 0.0

    def set_rate(self, rate: float | None) -> None:
        """Set the permits a second. Saved ones above those of the new rate are lost, and a debt stays."""
        self.rate = rate
        if rate is None:
            self.balance = 0.0
        else:
            self.balance = min(self.balance, self._most)

    @property
    def _most(self) -> float:
        return 0.0 if not self.rate else max(1.0, self.rate * SAVED_SECONDS)

    @property
    def _portion(self) -> float:
        return 0.0 if not self.rate else max(1.0, self.rate * PORTION_SECONDS)

    def fill(self, seconds: float) -> None:
        """Add the permits of a time."""
        if self.rate:
            self.balance = min(self.balance + self.rate * seconds, self._most)

    def seconds_to_portion(self) -> float:
        """Return the seconds until a portion is there: 0 = it is there."""
        if self.rate == 0:
            return inf
        if self.rate is None or self.balance >= self._portion:
            return 0.0
        return (self._portion - self.balance) / self.rate


class Permits:
    """The permits of one subtask."""

    def __init__(self, now: float, share: RateLimit = UNLIMITED) -> None:
        """`now`: seconds of any clock that never goes back; all other times are of that clock."""
        self._rows, self._bytes = _Bucket(), _Bucket()
        self._filled_at = now
        #: When rows came last.
        self._used_at = now
        #: Bytes of a row, about; 0 before the first.
        self._row_bytes = 0.0
        #: Rows whose bytes have not been told yet.
        self._unsized_rows = 0
        #: No rows have come for a while, so that others have the share.
        self.is_idle = False
        self.set_share(now, share)

    def set_share(self, now: float, share: RateLimit) -> None:
        """Set the subtask's share of the limit, from now on."""
        self._fill(now)
        self.share = share
        self._rows.set_rate(share.rows_per_second)
        self._bytes.set_rate(share.bytes_per_second)

    @property
    def limits_something(self) -> bool:
        """Whether there is any bound."""
        return self.share.limits_something

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._filled_at)
        self._filled_at = max(now, self._filled_at)
        self._rows.fill(elapsed)
        self._bytes.fill(elapsed)

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until the next rows may come: 0 = now, infinity = not before another share comes.

        An idle subtask without debt does not wait: its next rows show that it needs a share again.
        """
        self._fill(now)
        if self.is_idle and self._rows.balance >= 0 and self._bytes.balance >= 0:
            return 0.0
        return max(self._rows.seconds_to_portion(), self._bytes.seconds_to_portion())

    def most_rows(self, now: float) -> int | None:
        """Return the most rows that may come now: 0 = they have to wait, None = any number."""
        if not self.share.limits_something:
            return None
        if self.seconds_to_wait(now) > 0:
            return 0
        found = inf if self._rows.rate is None else self._rows.balance
        if self._bytes.rate is not None:
            # The first row tells how large rows are.
            found = min(found, self._bytes.balance / self._row_bytes if self._row_bytes else 1.0)
        return max(1, int(found)) if found < inf else None

    def use(self, now: float, rows: int, size_bytes: int = 0) -> None:
        """Take the permits of rows that came, with their bytes where these are known.

        Bytes may come later than their rows, as those of a whole block. Negative bytes give back what was estimated.
        """
        self._fill(now)
        self._used_at = now
        if self._rows.rate is not None:
            self._rows.balance -= rows
        if self._bytes.rate is not None:
            self._bytes.balance -= size_bytes
        self._unsized_rows += rows
        if self._unsized_rows and size_bytes > 0:
            self._row_bytes = size_bytes / self._unsized_rows
            self._unsized_rows = 0

    def seconds_to_idleness(self, now: float) -> float:
        """Return the seconds until the subtask is idle if no rows come before: not while it waits for permits."""
        return max(0.0, self._used_at + IDLE_SECONDS - now, self.seconds_to_wait(now))

    def idleness_changed(self, now: float) -> bool:
        """Look whether the subtask is idle now; True if that is another answer than the last one."""
        idle = self.seconds_to_idleness(now) <= 0
        changed, self.is_idle = idle is not self.is_idle, idle
        return changed
