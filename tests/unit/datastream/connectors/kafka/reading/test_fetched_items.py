"""The queue between fetch threads and the reader: when it is full, and when it has room again."""

from __future__ import annotations

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import (
    MOST_BYTES,
    MOST_CHUNKS,
    AssignedPartition,
    FetchedMessages,
    HandOver,
)

PLACE = AssignedPartition(KafkaTopicPartition("t", 0), 0)


def chunk(offset: int, size_bytes: int = 1) -> FetchedMessages:
    """A chunk of one message."""
    return FetchedMessages(PLACE, [b"x"], [0], [offset], size_bytes)


def filled(items: HandOver, size_bytes: int = 1) -> int:
    """Put chunks until the queue is full, and return their number."""
    number = 0
    while not items.is_full:
        items.put(chunk(number, size_bytes))
        number += 1
    return number


def taken_until_room(items: HandOver) -> list[int]:
    """Take chunks until there is room, and return their offsets."""
    offsets: list[int] = []
    while items.is_full:
        item = items.take()
        assert isinstance(item, FetchedMessages)
        offsets += item.offsets
    return offsets


def test_a_full_queue_has_room_again_when_half_of_its_chunks_are_taken() -> None:
    items = HandOver(lambda: None)
    assert filled(items) == MOST_CHUNKS
    assert taken_until_room(items) == list(range(MOST_CHUNKS // 2))
    assert filled(items) == MOST_CHUNKS // 2


def test_a_full_queue_has_room_again_when_half_of_its_bytes_are_taken() -> None:
    items = HandOver(lambda: None)
    assert filled(items, MOST_BYTES // 4) == 4
    assert taken_until_room(items) == [0, 1]


def test_a_chunk_above_the_bound_leaves_room_once_it_is_taken() -> None:
    items = HandOver(lambda: None)
    assert filled(items, 2 * MOST_BYTES) == 1
    assert taken_until_room(items) == [0]
    assert items.take() is None


def test_the_reader_is_woken_by_the_first_chunk_alone() -> None:
    woken: list[str] = []
    items = HandOver(lambda: woken.append("reader"))
    items.put(chunk(0))
    items.put(chunk(1))
    assert woken == ["reader"]
