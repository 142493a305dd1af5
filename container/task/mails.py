"""The mailbox of a task.

A mail cuts the chunk at hand where it stands, and the wait of each mail is measured.

Owner: the task thread; `Mailbox.put` and `ChunkAtHand.cut` may be called from any. Must not know what mails do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.runtime.common.clock import perf_counter


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


class Mailbox:
    """What others want to be done on the task's thread, in the order in which they asked."""

    def __init__(self, chunk: ChunkAtHand) -> None:
        self._chunk = chunk
        self._mails: deque[Callable[[], None]] = deque()
        self._closed = False
        #: Milliseconds that mails waited.
        self.delays = WindowedHistogram()

    def __len__(self) -> int:
        return len(self._mails)

    def put(self, mail: Callable[[], None]) -> None:
        """Any thread: the mail is run between two slices, and the present one ends soon."""
        queued = perf_counter()

        def run() -> None:
            self.delays.update(1000 * (perf_counter() - queued))
            mail()

        self._mails.append(run)
        self._chunk.cut()

    def run(self) -> bool:
        """Runs all mails; True when there was one. None is run any more once a mail has ended the task."""
        had_mails = bool(self._mails)
        while self._mails and not self._closed:
            self._mails.popleft()()
        return had_mails

    def close(self) -> None:
        """The task has ended: what is left is dropped."""
        self._closed = True
        self._mails.clear()
