"""ResultQueue: says which result of an asynchronous function may leave next.

Pure, owned by the task thread. Ordered queues keep the order of the records. Marks of time cut all other queues into
segments, and a mark leaves when all records before it have left. Within a segment the order is free, or free among the
keys alone. Must not know clocks, event loops or user functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from yarrow.runtime.data.elements import Watermark, WatermarkStatus
from yarrow.runtime.graph.async_spec import ResultOrder

#: What keeps its place among the records: a watermark, or a change of idleness.
TimeMark = Watermark | WatermarkStatus


class PendingResult:
    """A record whose results have not left, or a piece of a record batch."""

    __slots__ = ("key", "results", "row", "segment", "size", "timestamp")

    def __init__(self, row: Any, timestamp: int | None, key: Any = None, size: int = 1) -> None:
        self.row = row
        self.timestamp = timestamp
        #: The canonical key, if the queue keeps the order of each key.
        self.key = key
        #: Number of rows: a piece of a record batch has several.
        self.size = size
        #: The results; None = they have not come.
        self.results: list[Any] | None = None
        #: The segment of a queue that has segments.
        self.segment: _Segment | None = None

    @property
    def argument(self) -> Any:
        """What a call for this record alone gets."""
        return self.row


class ResultQueue(ABC):
    """The records of one subtask whose results have not left, and the marks of time between them."""

    def __init__(self) -> None:
        self._rows = 0

    @staticmethod
    def of(order: ResultOrder) -> ResultQueue:
        """An empty queue."""
        return _QUEUES[order]()

    def __len__(self) -> int:
        """Number of rows whose results have not left."""
        return self._rows

    def add(self, added: Sequence[PendingResult]) -> None:
        """Adds records behind all others."""
        self._rows += sum([record.size for record in added])
        self._append(added)

    @abstractmethod
    def _append(self, added: Sequence[PendingResult]) -> None: ...

    @abstractmethod
    def add_mark(self, mark: TimeMark) -> None:
        """Adds a mark of time behind all records; a watermark replaces one directly before it."""

    @abstractmethod
    def complete(self, pending: PendingResult, results: list[Any]) -> None:
        """Takes the results of a record; each record completes once."""

    @property
    @abstractmethod
    def may_leave(self) -> bool:
        """True if `pop` would return something."""

    @abstractmethod
    def pop(self) -> PendingResult | TimeMark | None:
        """Takes out what leaves next; None = it has to wait for results."""

    @abstractmethod
    def pending(self) -> Iterator[PendingResult]:
        """The records whose results have not left, in the order of their arrival."""


class OrderedResultQueue(ResultQueue):
    """Results leave in the order of the records."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[PendingResult | TimeMark] = deque()

    def _append(self, added: Sequence[PendingResult]) -> None:
        self._waiting.extend(added)

    def add_mark(self, mark: TimeMark) -> None:
        _append_mark(self._waiting, mark)

    def complete(self, pending: PendingResult, results: list[Any]) -> None:
        pending.results = results

    @property
    def may_leave(self) -> bool:
        if not self._waiting:
            return False
        first = self._waiting[0]
        return not isinstance(first, PendingResult) or first.results is not None

    def pop(self) -> PendingResult | TimeMark | None:
        waiting = self._waiting
        if not waiting:
            return None
        first = waiting[0]
        if isinstance(first, PendingResult):
            if first.results is None:
                return None
            self._rows -= first.size
        return waiting.popleft()

    def pending(self) -> Iterator[PendingResult]:
        return (waiting for waiting in self._waiting if isinstance(waiting, PendingResult))


class _Segment:
    """The records between two marks of time."""

    __slots__ = ("complete", "marks", "of_keys", "records")

    def __init__(self) -> None:
        #: The records that have not left, in order of arrival.
        self.records: dict[PendingResult, None] = {}
        #: Those of `records` that may leave, in order of completion.
        self.complete: deque[PendingResult] = deque()
        #: The records of each key that may not leave, in order of arrival; a queue without keys leaves it empty.
        self.of_keys: dict[Any, deque[PendingResult]] = {}
        #: The marks behind the segment; only the last segment has none.
        self.marks: deque[TimeMark] = deque()


class UnorderedResultQueue(ResultQueue):
    """Results leave as they come, but never past a mark of time."""

    def __init__(self) -> None:
        super().__init__()
        self._segments: deque[_Segment] = deque([_Segment()])

    def _append(self, added: Sequence[PendingResult]) -> None:
        if self._segments[-1].marks and added:
            self._segments.append(_Segment())
        segment = self._segments[-1]
        segment.records.update(dict.fromkeys(added))
        for record in added:
            record.segment = segment

    def add_mark(self, mark: TimeMark) -> None:
        _append_mark(self._segments[-1].marks, mark)

    def complete(self, pending: PendingResult, results: list[Any]) -> None:
        pending.results = results
        assert pending.segment is not None, "the record was added to this queue"
        pending.segment.complete.append(pending)

    @property
    def may_leave(self) -> bool:
        first = self._segments[0]
        return bool(first.complete) or bool(first.marks and not first.records)

    def pop(self) -> PendingResult | TimeMark | None:
        first = self._segments[0]
        if first.complete:
            left = first.complete.popleft()
            del first.records[left]
            self._rows -= left.size
            return left
        if first.records or not first.marks:
            return None
        mark = first.marks.popleft()
        if not first.marks and len(self._segments) > 1:
            self._segments.popleft()
        return mark

    def pending(self) -> Iterator[PendingResult]:
        return (record for segment in self._segments for record in segment.records)


class KeyedResultQueue(UnorderedResultQueue):
    """Results of a key leave in the order of its records. Those of other keys do not wait for them.

    Results never leave past a mark of time.
    """

    def _append(self, added: Sequence[PendingResult]) -> None:
        super()._append(added)
        of_keys = self._segments[-1].of_keys
        for record in added:
            of_keys.setdefault(record.key, deque()).append(record)

    def complete(self, pending: PendingResult, results: list[Any]) -> None:
        pending.results = results
        segment = pending.segment
        assert segment is not None, "the record was added to this queue"
        waiting = segment.of_keys[pending.key]
        while waiting and waiting[0].results is not None:
            segment.complete.append(waiting.popleft())
        if not waiting:
            del segment.of_keys[pending.key]


_QUEUES: dict[ResultOrder, type[ResultQueue]] = {
    ResultOrder.ORDERED: OrderedResultQueue,
    ResultOrder.UNORDERED: UnorderedResultQueue,
    ResultOrder.BY_KEY: KeyedResultQueue,
}


def _append_mark(marks: deque[Any], mark: TimeMark) -> None:
    if isinstance(mark, Watermark) and marks and isinstance(marks[-1], Watermark):
        # A slow call holds back at most as many watermarks as there are records behind it.
        marks.pop()
    marks.append(mark)
