"""Gathered chunks: what several calls of the client have given is joined by partition, in order and within a bound."""

from __future__ import annotations

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.chunk_gathering import GatheredChunks
from yarrow.datastream.connectors.kafka.reading.fetched_items import AssignedPartition, FetchedMessages

FIRST = AssignedPartition(KafkaTopicPartition("t", 0), 0)
SECOND = AssignedPartition(KafkaTopicPartition("t", 1), 0)


def messages(assignment: AssignedPartition, *offsets: int) -> FetchedMessages:
    """Messages whose value tells their offset; offsets without a gap are a range, as of the fetch thread."""
    is_dense = offsets == tuple(range(offsets[0], offsets[-1] + 1))
    values = [b"%d" % offset for offset in offsets]
    stamps: list[int | None] = [10 * offset for offset in offsets]
    known = range(offsets[0], offsets[-1] + 1) if is_dense else list(offsets)
    return FetchedMessages(assignment, values, stamps, known, 100 * len(offsets))


def joined(*added: FetchedMessages, most: int = 10) -> list[FetchedMessages]:
    gathered = GatheredChunks(most)
    for item in added:
        gathered.add(item)
    return gathered.take()


def test_messages_that_follow_each_other_become_one_chunk() -> None:
    (chunk,) = joined(messages(FIRST, 3, 4), messages(FIRST, 5), messages(FIRST, 6, 7))
    assert chunk == messages(FIRST, 3, 4, 5, 6, 7)
    assert chunk.offsets == range(3, 8)


def test_a_gap_between_or_within_messages_keeps_each_offset() -> None:
    (between,) = joined(messages(FIRST, 3, 4), messages(FIRST, 8))
    (within,) = joined(messages(FIRST, 3, 5), messages(FIRST, 6), messages(FIRST, 9))
    assert list(between.offsets) == [3, 4, 8] and between.timestamps == [30, 40, 80]
    assert list(within.offsets) == [3, 5, 6, 9] and within.messages == [b"3", b"5", b"6", b"9"]


def test_partitions_and_assignments_stay_apart_in_their_order() -> None:
    again = AssignedPartition(FIRST.partition, 4)
    chunks = joined(messages(FIRST, 1), messages(SECOND, 1), messages(FIRST, 2), messages(again, 4))
    assert [(chunk.assignment, list(chunk.offsets)) for chunk in chunks] == [
        (FIRST, [1]),
        (SECOND, [1]),
        (FIRST, [2]),
        (again, [4]),
    ]


def test_a_chunk_has_no_more_messages_than_the_bound() -> None:
    chunks = joined(messages(FIRST, 0, 1), messages(FIRST, 2), messages(FIRST, 3), most=3)
    assert [list(chunk.offsets) for chunk in chunks] == [[0, 1, 2], [3]]
    assert [chunk.size_bytes for chunk in chunks] == [300, 100]


def test_what_was_taken_is_gone() -> None:
    gathered = GatheredChunks(10)
    gathered.add(messages(FIRST, 0, 1))
    assert gathered.size_bytes == 200
    assert len(gathered.take()) == 1
    assert gathered.size_bytes == 0 and gathered.take() == []
