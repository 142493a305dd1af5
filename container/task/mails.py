"""What keeps mails from waiting: the chunk at hand is cut where it stands, and how long each waited is measured.

Owner: the task thread; `ChunkAtHand.cut` may be called from any. Must not know what mails do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any


class ChunkAtHand:
    """The rows that the loop of a chunk has not taken yet."""

    def __init__(self) -> None:
        self._rows: Iterator[Any] | None = None
        self._cut_off = 0
        self._lock = threading.Lock()

    def begin(self, rows: Sequence[Any]) -> Iterator[Any]:
        """What the loop iterates over."""
        self._rows = iter(rows)
        return self._rows

    def cut(self) -> None:
        """Any thread: the loop ends behind the row it works on; the others stay for later.

        The rows before were no measure for those that follow: a chunk of quick ones may end in very slow ones. Taking
        the rest out of the iterator is one call into C, so the loop has each row either done or left.
        """
        with self._lock:
            if self._rows is not None:
                self._cut_off += len(list(self._rows))

    def end(self) -> int:
        """The loop has ended; the number of rows that were cut off."""
        with self._lock:
            self._rows = None
            cut_off, self._cut_off = self._cut_off, 0
        return cut_off


class MailDelays:
    """How long mails waited: count, sum and the longest since the last reading."""

    def __init__(self) -> None:
        self.count = 0
        self.total_seconds = 0.0
        self.longest_seconds = 0.0

    def add(self, seconds: float) -> None:
        """A mail waited `seconds`."""
        self.count += 1
        self.total_seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)

    @property
    def average_ms(self) -> float:
        """Mean wait in milliseconds."""
        return 1000 * self.total_seconds / self.count if self.count else 0.0
