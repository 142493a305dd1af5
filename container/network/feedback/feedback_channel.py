"""FeedbackChannel: the queue from the tail of a loop to the head of the same subtask, and the logs of checkpoints.

Any thread: tail and head may run on threads of their own. It never refuses a row. A log holds the rows that a
checkpoint finds in the loop. These are the rows that wait when the head cuts, and those that come until the tail has
cut. Must not know operators, nor decide when a loop ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.network.feedback.feedback_spill import FeedbackSpill, SpilledBatch
from yarrow.runtime.data.elements import LoopMarker, RowBatch


class FeedbackHead(NamedTuple):
    """What the head of a loop brings to its channel."""

    #: Makes the head's task look at the channel. Any thread.
    wake: Callable[[], None]
    #: Called when a log has become complete. Any thread.
    on_logged: Callable[[], None]
    spill: FeedbackSpill
    #: Bytes of waiting rows beyond which rows go to disk.
    memory_bytes: int
    #: Copies a row for a log; None = rows cannot change.
    copy: Callable[[Any], Any] | None


class _Waiting(NamedTuple):
    """A batch in memory, with its estimated bytes."""

    batch: RowBatch
    size: int


class _Barrier(NamedTuple):
    """The tail has cut for a checkpoint for which the head has not: the rows behind have to wait."""

    checkpoint_id: int


class FeedbackLog:
    """The rows that one checkpoint has found in the loop."""

    def __init__(self) -> None:
        self.batches: list[RowBatch] = []
        #: True once the tail has cut.
        self.complete = False


class FeedbackChannel:
    """The feedback of one subtask of a loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[_Waiting | SpilledBatch | _Barrier | LoopMarker] = deque()
        self._head: FeedbackHead | None = None
        #: By checkpoint, rising.
        self._logs: dict[int, FeedbackLog] = {}
        self._aborted: set[int] = set()
        self._completed = -1
        self._spilled_batches = 0
        self._ended = False
        #: Rows and estimated bytes that wait, and bytes of them on disk.
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self.disk_bytes = 0
        #: Rows that came so far, and rows that came after the end of the loop.
        self.received_rows = 0
        self.dropped_rows = 0

    # ------------------------------------------------------------------ the tail

    def put(self, batch: RowBatch) -> None:
        """Adds rows, which nobody may change any more. Raises SerializationError if they cannot go to disk."""
        with self._lock:
            if self._ended:
                self.dropped_rows += len(batch)
                return
            self.received_rows += len(batch)
            for log in self._logs.values():
                if not log.complete:
                    log.batches.append(self._copied(batch))
            was_empty = not self._queue
            self._append(batch)
        if was_empty:
            self._wake()

    def put_marker(self, marker: LoopMarker) -> None:
        """Adds a marker that has been round, behind all rows."""
        with self._lock:
            self._queue.append(marker)
        self._wake()

    def put_barrier(self, checkpoint_id: int) -> None:
        """Takes note that the tail has cut: later rows do not belong to the checkpoint."""
        with self._lock:
            if self._ended or checkpoint_id <= self._completed or checkpoint_id in self._aborted:
                return
            log = self._logs.get(checkpoint_id)
            if log is None:
                self._queue.append(_Barrier(checkpoint_id))
                return
            log.complete = True
        if self._head is not None:
            self._head.on_logged()

    def _append(self, batch: RowBatch) -> None:
        size = max(1, estimated_bytes(batch.rows))
        self.waiting_rows += len(batch)
        self.waiting_bytes += size
        head = self._head
        in_memory = self.waiting_bytes - self.disk_bytes
        if head is not None and (self._spilled_batches or in_memory > head.memory_bytes):
            place = head.spill.write(batch)
            self._queue.append(place)
            self._spilled_batches += 1
            self.disk_bytes += place.length
            self.waiting_bytes += place.length - size
        else:
            self._queue.append(_Waiting(batch, size))

    def _wake(self) -> None:
        if self._head is not None:
            self._head.wake()

    # ------------------------------------------------------------------ the head

    def open(self, head: FeedbackHead, restored: Sequence[RowBatch]) -> None:
        """Begins to give rows to the head, the restored ones first."""
        with self._lock:
            self._head = head
            for batch in reversed(restored):
                size = max(1, estimated_bytes(batch.rows))
                self._queue.appendleft(_Waiting(batch, size))
                self.waiting_rows += len(batch)
                self.waiting_bytes += size

    @property
    def has_data(self) -> bool:
        """True if `take` would return something."""
        return bool(self._queue) and type(self._queue[0]) is not _Barrier

    def take(self, most: int) -> RowBatch | LoopMarker | None:
        """The next rows, `most` at once, or a marker; None if none waits, or the head has to cut first.

        Batches in memory that came one behind the other are joined.
        """
        with self._lock:
            if not self.has_data:
                return None
            first = self._queue[0]
            if isinstance(first, LoopMarker):
                self._queue.popleft()
                return first
            parts: list[RowBatch] = []
            rows = 0
            while rows < most and self._queue and self._has_rows(joined=rows > 0):
                parts.append(self._part(most - rows))
                rows += len(parts[-1])
            return _joined(parts)

    def _has_rows(self, *, joined: bool) -> bool:
        """True if rows come next; those on disk are never joined to others."""
        kind = type(self._queue[0])
        return kind is _Waiting or (kind is SpilledBatch and not joined)

    def _part(self, most: int) -> RowBatch:
        """Takes out at most so many rows of the first batch."""
        entry = self._queue.popleft()
        assert not isinstance(entry, _Barrier | LoopMarker)
        batch, size = self._loaded(entry)
        taken, rest = _divided(batch, most)
        left = size * len(rest) // len(batch)
        if len(rest):
            self._queue.appendleft(_Waiting(rest, left))
        self.waiting_rows -= len(taken)
        self.waiting_bytes -= size - left
        return taken

    def _loaded(self, entry: _Waiting | SpilledBatch) -> _Waiting:
        """A batch in memory; what was on disk counts as memory from now on."""
        if isinstance(entry, _Waiting):
            return entry
        assert self._head is not None
        batch = self._head.spill.read(entry)
        self._spilled_batches -= 1
        self.disk_bytes -= entry.length
        if not self._spilled_batches:
            self._head.spill.clear()
        return _Waiting(batch, entry.length)

    def end(self) -> None:
        """Ends the loop: logs are complete, and rows that still come are dropped and counted."""
        with self._lock:
            self._ended = True
            for log in self._logs.values():
                log.complete = True
            logged = bool(self._logs)
        if logged and self._head is not None:
            self._head.on_logged()

    def close(self) -> None:
        """Drops everything: the head's task has ended."""
        with self._lock:
            self._ended = True
            self._queue.clear()
            self._logs.clear()
            if self._head is not None:
                self._head.spill.close()
            self._head = None

    # ------------------------------------------------------------------ checkpoints, at the head

    def begin_log(self, checkpoint_id: int) -> None:
        """Cuts: the log begins with the rows that wait, and is complete at once if the tail has cut before."""
        with self._lock:
            log = self._logs[checkpoint_id] = FeedbackLog()
            for entry in self._queue:
                if isinstance(entry, _Barrier):
                    if entry.checkpoint_id == checkpoint_id:
                        log.complete = True
                        break
                elif not isinstance(entry, LoopMarker):
                    log.batches.append(self._copied(self._read(entry)))
            # Earlier checkpoints have been given up where the tail cut for a later one.
            self._drop_barriers(lambda number: number <= checkpoint_id)

    def _read(self, entry: _Waiting | SpilledBatch) -> RowBatch:
        """A batch that stays in its place."""
        if isinstance(entry, _Waiting):
            return entry.batch
        assert self._head is not None
        return self._head.spill.read(entry)

    def is_logged(self, checkpoint_id: int) -> bool:
        """Whether the log of a checkpoint is complete."""
        log = self._logs.get(checkpoint_id)
        return log is not None and log.complete

    def take_log(self, checkpoint_id: int) -> Sequence[RowBatch]:
        """The rows of a complete log, which is forgotten; none if the loop had ended at the cut."""
        with self._lock:
            log = self._logs.pop(checkpoint_id, None)
        return () if log is None else log.batches

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Forgets this checkpoint and earlier ones."""
        self._forget(lambda number: number <= checkpoint_id)
        self._completed = max(self._completed, checkpoint_id)
        self._aborted = {number for number in self._aborted if number > checkpoint_id}

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Forgets a checkpoint, whose barrier may still come."""
        self._aborted.add(checkpoint_id)
        self._forget(lambda number: number == checkpoint_id)

    def _forget(self, which: Callable[[int], bool]) -> None:
        with self._lock:
            self._logs = {number: log for number, log in self._logs.items() if not which(number)}
            self._drop_barriers(which)
        self._wake()

    def _drop_barriers(self, which: Callable[[int], bool]) -> None:
        if any(isinstance(entry, _Barrier) and which(entry.checkpoint_id) for entry in self._queue):
            left = [e for e in self._queue if not (isinstance(e, _Barrier) and which(e.checkpoint_id))]
            self._queue = deque(left)

    def _copied(self, batch: RowBatch) -> RowBatch:
        copy = None if self._head is None else self._head.copy
        return batch if copy is None else RowBatch(list(map(copy, batch.rows)), batch.timestamps)


def _joined(parts: list[RowBatch]) -> RowBatch:
    if len(parts) == 1:
        return parts[0]
    rows = [row for part in parts for row in part.rows]
    if all(part.timestamps is None for part in parts):
        return RowBatch(rows)
    return RowBatch(rows, [stamp for part in parts for stamp in part.timestamps or [None] * len(part)])


def _divided(batch: RowBatch, most: int) -> tuple[RowBatch, RowBatch]:
    if len(batch) <= most:
        return batch, RowBatch([])
    stamps = batch.timestamps
    return (
        RowBatch(batch.rows[:most], None if stamps is None else stamps[:most]),
        RowBatch(batch.rows[most:], None if stamps is None else stamps[most:]),
    )


class FeedbackChannels:
    """The channels of all loops of a worker, by the head's attempt. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[tuple[str, int], tuple[FeedbackChannel, int]] = {}

    def acquire(self, attempt_id: str, loop: int) -> FeedbackChannel:
        """The channel to a head, for its head or its tail; `release` it once."""
        with self._lock:
            channel, users = self._channels.get((attempt_id, loop)) or (FeedbackChannel(), 0)
            self._channels[attempt_id, loop] = channel, users + 1
            return channel

    def release(self, attempt_id: str, loop: int) -> None:
        """Forgets a channel that neither its head nor its tail uses."""
        with self._lock:
            channel, users = self._channels.pop((attempt_id, loop))
            if users > 1:
                self._channels[attempt_id, loop] = channel, users - 1
