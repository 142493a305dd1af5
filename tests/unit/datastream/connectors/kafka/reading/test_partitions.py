"""Subscriptions, splits and their assignment: decisions without a cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import as_stored
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTopicMissingError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.partition_assignment import PartitionAssignment
from yarrow.datastream.connectors.kafka.reading.partition_split import (
    EARLIEST,
    KafkaPartitionSplit,
    owner_of,
)
from yarrow.datastream.connectors.kafka.reading.subscription import PartitionSet, TopicList, TopicPattern

TOPICS = {"orders": 2, "orders-old": 1, "users": 1, "__consumer_offsets": 50}


def partitions(topic: str, *indexes: int) -> set[KafkaTopicPartition]:
    return {KafkaTopicPartition(topic, index) for index in indexes}


def split(topic: str, index: int, position: int = EARLIEST) -> KafkaPartitionSplit:
    return KafkaPartitionSplit(topic, index, position)


def test_topics_are_read_whole() -> None:
    chosen = TopicList(("orders", "users", "later")).choose(TOPICS)
    assert chosen == partitions("orders", 0, 1) | partitions("users", 0)
    with pytest.raises(KafkaTopicMissingError, match=r"topic later, never does not exist.*Create it"):
        TopicList(("users", "later", "never")).require(TOPICS)


def test_pattern_matches_whole_names_and_no_internal_topic() -> None:
    assert TopicPattern("orders").choose(TOPICS) == partitions("orders", 0, 1)
    assert TopicPattern(".*").choose(TOPICS) == (
        partitions("orders", 0, 1) | partitions("orders-old", 0) | partitions("users", 0)
    )


def test_single_partitions_must_exist() -> None:
    there, beyond = KafkaTopicPartition("orders", 1), KafkaTopicPartition("orders", 2)
    assert PartitionSet((there, beyond)).choose(TOPICS) == {there}
    PartitionSet((there,)).require(TOPICS)
    with pytest.raises(KafkaTopicMissingError, match="partition orders-2 does not exist: topic orders has 2"):
        PartitionSet((beyond,)).require(TOPICS)
    with pytest.raises(KafkaTopicMissingError, match="there is no topic gone"):
        PartitionSet((KafkaTopicPartition("gone", 0),)).require(TOPICS)


@given(st.text(min_size=1), st.integers(1, 40), st.integers(1, 9))
def test_partitions_of_a_topic_are_spread_evenly(topic: str, number: int, parallelism: int) -> None:
    loads = Counter(owner_of(place, parallelism) for place in partitions(topic, *range(number)))
    assert max(loads.values()) - min(loads[subtask] for subtask in range(parallelism)) <= 1


def test_owners_are_the_same_in_every_process() -> None:
    """Restored enumerators of any process must agree, so no hash of Python's may be in it."""
    owners = [owner_of(KafkaTopicPartition("orders", index), 4) for index in range(4)]
    assert owners == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("position", "stop", "complete"),
    [
        (0, None, False),
        (EARLIEST, 5, False),
        (4, 5, False),
        (5, 5, True),
        (EARLIEST, 0, True),
        (3, EARLIEST, True),
    ],
)
def test_split_is_complete_at_its_end(position: int, stop: int | None, complete: bool) -> None:
    assert KafkaPartitionSplit("t", 0, position, stop).is_complete is complete


def test_each_reader_gets_its_splits_once() -> None:
    assignment = PartitionAssignment(None)
    assignment.add(split("orders", index) for index in range(4))
    assert [s.partition for s in assignment.give(0, 2)] == [0, 2]
    assert assignment.give(0, 2) == []
    assert [s.partition for s in assignment.give(1, 2)] == [1, 3]


def test_splits_that_come_back_keep_their_positions() -> None:
    assignment = PartitionAssignment(None)
    assignment.add([split("orders", 0)])
    assignment.give(0, 1)
    assignment.take_back([split("orders", 0, 17), split("gone", 0, 3)])
    assert assignment.give(0, 1) == [split("orders", 0, 17)]


def test_changes_name_new_and_removed_partitions() -> None:
    assignment = PartitionAssignment(None)
    assignment.add([split("a", 0), split("b", 0)])
    changes = assignment.compare(partitions("b", 0, 1))
    assert (set(changes.new), set(changes.removed)) == (partitions("b", 1), partitions("a", 0))
    assignment.forget(changes.removed)
    assert assignment.compare(partitions("a", 0) | partitions("b", 0)).new == [KafkaTopicPartition("a", 0)]
    assert [s.topic for s in assignment.give(0, 1)] == ["b"]


def test_checkpoints_hold_known_partitions_and_waiting_splits() -> None:
    assignment = PartitionAssignment(None)
    assignment.add([split("a", 0), split("a", 1)])
    assignment.initial_discovery_done = True
    assignment.give(owner_of(KafkaTopicPartition("a", 0), 2), 2)
    restored = PartitionAssignment(as_stored(assignment.state()))
    assert restored.initial_discovery_done
    assert restored.compare(partitions("a", 0, 1)) == ([], [])
    assert restored.give(0, 1) == [split("a", 1)]
