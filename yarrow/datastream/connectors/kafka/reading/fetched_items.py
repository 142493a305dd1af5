"""What the fetch threads hand to the reader, and the bounded queue between both.

Owner: fetch threads put, the task's thread takes. Items come in the order of their offsets, partition by
partition. Must not import the client library.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition

#: Bounds of what waits for the task. What the client has given at once may come besides.
MOST_BYTES: Final = 32 << 20
MOST_CHUNKS: Final = 16


class AssignedPartition:
    """One assignment of a partition to a reader. What belongs to a former one of the same partition is dropped."""

    __slots__ = ("partition", "position")

    def __init__(self, partition: KafkaTopicPartition, position: int) -> None:
        self.partition = partition
        #: Where fetching begins.
        self.position = position


@dataclass(slots=True)
class FetchedMessages:
    """Messages of one partition, as values or as ConsumerRecords."""

    assignment: AssignedPartition
    messages: list[Any]
    timestamps: Sequence[int | None]
    offsets: Sequence[int]
    size_bytes: int


@dataclass(slots=True)
class EndOfPartition:
    """No record stood before `offset` that had not been handed over."""

    assignment: AssignedPartition
    offset: int


@dataclass(slots=True)
class MissingPartition:
    """The broker does not know the partition."""

    assignment: AssignedPartition
    reason: str


@dataclass(slots=True)
class FetchFailure:
    """The fetch thread has ended with this error."""

    error: BaseException


Fetched = FetchedMessages | EndOfPartition | MissingPartition | FetchFailure


class HandOver:
    """The queue of fetched items, bounded by bytes and chunks."""

    def __init__(self, wake_reader: Callable[[], None]) -> None:
        self.wake_reader = wake_reader
        self._items: deque[Fetched] = deque()
        self._bytes = 0
        #: Whether the fetch thread must wait. Any thread may read it. There is room again when half of the bounds is
        #: free: a fetch thread that wakes up for each chunk takes the interpreter from the task each time.
        self.is_full = False
        #: Guards the size, and tells the fetch threads of room and of commands.
        self.changed = threading.Condition()

    def put(self, item: Fetched) -> None:
        """Add an item and wake the reader if it may wait for one."""
        with self.changed:
            was_empty = not self._items
            self._items.append(item)
            if isinstance(item, FetchedMessages):
                self._bytes += item.size_bytes
            if len(self._items) >= MOST_CHUNKS or self._bytes >= MOST_BYTES:
                self.is_full = True
        if was_empty:
            self.wake_reader()

    def take(self) -> Fetched | None:
        """Return the next item; None = there is none."""
        if not self._items:
            return None
        with self.changed:
            item = self._items.popleft()
            if isinstance(item, FetchedMessages):
                self._bytes -= item.size_bytes
            has_room = 2 * len(self._items) <= MOST_CHUNKS and 2 * self._bytes <= MOST_BYTES
            if self.is_full and has_room:
                self.is_full = False
                self.changed.notify_all()
        return item
