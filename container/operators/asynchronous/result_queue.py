"""ResultQueue: says which result of an asynchronous function may leave next.

Pure, owned by the task thread. Ordered queues keep the order of the records. Marks of time cut unordered queues into
segments. The order within a segment is free, and a mark leaves when all records before it have left. Must not know
clocks, event loops or user functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from yarrow.runtime.data.elements import Watermark, WatermarkStatus

#: What keeps its place among the records: a watermark, or a change of idleness.
TimeMark = Watermark | WatermarkStatus


class PendingResult:
    """A record whose results have not left."""

    __slots__ = ("results", "row", "segment", "timestamp")

    def __init__(self, row: Any, timestamp: int | None) -> None:
        self.row = row
        self.timestamp = timestamp
        #: The results; None = they have not come.
        self.results: list[Any] | None = None
        #: The segment of an unordered queue.
        self.segment: _Segment | None = None


class ResultQueue(ABC):
    """The records of one subtask whose results have not left, and the marks of time between them."""

    def __init__(self) -> None:
        self._records = 0

    @staticmethod
    def of(*, ordered: bool) -> ResultQueue:
        """An empty queue."""
        return OrderedResultQueue() if ordered else UnorderedResultQueue()

    def __len__(self) -> int:
        """Number of records whose results have not left."""
        return self._records

    def add(self, row: Any, timestamp: int | None) -> PendingResult:
        """Adds a record behind all others."""
        added = PendingResult(row, timestamp)
        self._records += 1
        self._append(added)
        return added

    @abstractmethod
    def _append(self, added: PendingResult) -> None: ...

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

    def _append(self, added: PendingResult) -> None:
        self._waiting.append(added)

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
        if not self.may_leave:
            return None
        left = self._waiting.popleft()
        if isinstance(left, PendingResult):
            self._records -= 1
        return left

    def pending(self) -> Iterator[PendingResult]:
        return (waiting for waiting in self._waiting if isinstance(waiting, PendingResult))


class _Segment:
    """The records between two marks of time."""

    __slots__ = ("complete", "marks", "records")

    def __init__(self) -> None:
        #: The records that have not left, in order of arrival.
        self.records: dict[PendingResult, None] = {}
        #: Those of `records` whose results have come, in order of completion.
        self.complete: deque[PendingResult] = deque()
        #: The marks behind the segment; only the last segment has none.
        self.marks: deque[TimeMark] = deque()


class UnorderedResultQueue(ResultQueue):
    """Results leave as they come, but never past a mark of time."""

    def __init__(self) -> None:
        super().__init__()
        self._segments: deque[_Segment] = deque([_Segment()])

    def _append(self, added: PendingResult) -> None:
        if self._segments[-1].marks:
            self._segments.append(_Segment())
        added.segment = self._segments[-1]
        added.segment.records[added] = None

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
            self._records -= 1
            return left
        if first.records or not first.marks:
            return None
        mark = first.marks.popleft()
        if not first.marks and len(self._segments) > 1:
            self._segments.popleft()
        return mark

    def pending(self) -> Iterator[PendingResult]:
        return (record for segment in self._segments for record in segment.records)


def _append_mark(marks: deque[Any], mark: TimeMark) -> None:
    if isinstance(mark, Watermark) and marks and isinstance(marks[-1], Watermark):
        # A slow call holds back at most as many watermarks as there are records behind it.
        marks.pop()
    marks.append(mark)
