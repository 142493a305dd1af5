"""GatheredChunks: joins what several calls of the client have given to chunks of a partition.

Owner: the fetch thread. Few messages a call stay in the processor's cache while they become lists, and many messages a
chunk cost the task less each. Must not know the client library or the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.datastream.connectors.kafka.reading.fetched_items import FetchedMessages


class GatheredChunks:
    """Fetched messages that are not handed over yet."""

    def __init__(self, most_messages: int) -> None:
        """`most_messages` of one chunk, unless they have been added at once."""
        self._most_messages = most_messages
        self._chunks: list[FetchedMessages] = []
        self.size_bytes = 0

    def add(self, item: FetchedMessages) -> None:
        """Add messages behind all others. Their lists belong to the gathered chunks from now on."""
        self.size_bytes += item.size_bytes
        if self._chunks:
            last = self._chunks[-1]
            number = len(last.messages) + len(item.messages)
            if last.assignment is item.assignment and number <= self._most_messages:
                last.messages += item.messages
                last.timestamps += item.timestamps
                last.offsets = _joined(last.offsets, item.offsets)
                last.size_bytes += item.size_bytes
                return
        self._chunks.append(item)

    def take(self) -> list[FetchedMessages]:
        """Return the chunks in order. None is left."""
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        return chunks


def _joined(offsets: Sequence[int], behind: Sequence[int]) -> Sequence[int]:
    """Both as one: offsets without a gap stay a range."""
    if isinstance(offsets, range) and isinstance(behind, range) and offsets.stop == behind.start:
        return range(offsets.start, behind.stop)
    return [*offsets, *behind]
