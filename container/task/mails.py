"""The mailbox of a task.

A mail cuts the running chunk after its present row; the wait of each mail is measured.

Owner: the task thread; any thread may call `Mailbox.put` and `ChunkAtHand.cut`. Must not know what mails do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.runtime.common.clock import perf_counter


class ChunkAtHand:
    """The rows that the loop of the present chunk has not taken yet."""

    def __init__(self) -> None:
        self._rows: Iterator[Any] | None = None
        self._cut_off = 0
        self._lock = threading.Lock()

    def begin(self, rows: Sequence[Any]) -> Iterator[Any]:
        """Begins a chunk; returns the iterator for the loop."""
        self._rows = iter(rows)
        return self._rows

    def cut(self) -> None:
        """Ends the loop after its present row; the other rows stay for later. Any thread.

        The past rows are no measure for the next ones: a chunk of quick rows may end in very slow ones. One
        call into C empties the iterator, so that the loop has each row either done or left.
        """
        with self._lock:
            if self._rows is not None:
                self._cut_off += len(list(self._rows))

    def end(self) -> int:
        """Ends the chunk; returns the number of rows that were cut off."""
        with self._lock:
            self._rows = None
            cut_off, self._cut_off = self._cut_off, 0
        return cut_off


class Mailbox:
    """The mails for a task's thread, in order of arrival."""

    def __init__(self, chunk: ChunkAtHand) -> None:
        self._chunk = chunk
        self._mails: deque[Callable[[], None]] = deque()
        self._closed = False
        #: Milliseconds that mails waited.
        self.delays = WindowedHistogram()

    def __len__(self) -> int:
        return len(self._mails)

    def put(self, mail: Callable[[], None]) -> None:
        """Adds a mail, which runs between two slices, and cuts the present slice short. Any thread."""
        queued = perf_counter()

        def run() -> None:
            self.delays.update(1000 * (perf_counter() - queued))
            mail()

        self._mails.append(run)
        self._chunk.cut()

    def run(self) -> bool:
        """Runs all mails; True if there was one. After a mail that ends the task, no other runs."""
        had_mails = bool(self._mails)
        while self._mails and not self._closed:
            self._mails.popleft()()
        return had_mails

    def close(self) -> None:
        """Drops all mails, because the task has ended."""
        self._closed = True
        self._mails.clear()
