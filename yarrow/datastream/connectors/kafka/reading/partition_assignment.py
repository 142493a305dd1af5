"""PartitionAssignment: which partitions a Kafka source knows, and which splits wait for their reader.

Owner: the enumerator's thread. Decisions alone, without I/O and clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from yarrow.datastream.connectors.discovery import gone, new
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit, owner_of


@dataclass(frozen=True, slots=True)
class KafkaEnumeratorState:
    """The enumerator's part of a checkpoint."""

    known: tuple[KafkaTopicPartition, ...]
    unassigned: tuple[KafkaPartitionSplit, ...]
    #: Partitions that are found from now on are read from their beginning.
    initial_discovery_done: bool
    #: The text of the subscription whose topics were found to exist.
    required: str = ""
    #: The ids of known topics, as far as the brokers tell them.
    topic_ids: tuple[tuple[str, str], ...] = ()


class Changes(NamedTuple):
    """The difference between two looks at the cluster."""

    new: list[KafkaTopicPartition]
    removed: list[KafkaTopicPartition]


class PartitionAssignment:
    """Known partitions, and splits that no reader has."""

    def __init__(self, restored: KafkaEnumeratorState | None) -> None:
        self._known = set() if restored is None else set(restored.known)
        waiting = () if restored is None else restored.unassigned
        self._unassigned = {split.topic_partition: split for split in waiting}
        self.initial_discovery_done = restored is not None and restored.initial_discovery_done
        #: The subscription whose topics were found to exist; a job that goes on does not ask again for them.
        self.required = "" if restored is None else restored.required
        self._topic_ids = {} if restored is None else dict(restored.topic_ids)

    def compare(self, found: Collection[KafkaTopicPartition]) -> Changes:
        """Tell which of the present partitions are new, and which known ones have gone; nothing changes."""
        present = set(found)
        return Changes(new(self._known, present), gone(self._known, present))

    def knows(self, topic: str) -> bool:
        """Return True if a partition of the topic is known."""
        return any(partition.topic == topic for partition in self._known)

    def remade(self, ids: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Compare ids of topics with the known ones: each topic with another id, its former and its present id."""
        return [
            (topic, self._topic_ids[topic], found)
            for topic, found in sorted(ids.items())
            if self._topic_ids.get(topic, found) != found
        ]

    def note_ids(self, ids: Mapping[str, str]) -> None:
        """Keep the ids of topics that have partitions here."""
        topics = {partition.topic for partition in self._known}
        self._topic_ids = {
            topic: found for topic, found in (self._topic_ids | dict(ids)).items() if topic in topics
        }

    def add(self, splits: Iterable[KafkaPartitionSplit]) -> None:
        """Take splits of new partitions."""
        for split in splits:
            self._known.add(split.topic_partition)
            self._unassigned[split.topic_partition] = split

    def forget(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Take partitions out: they are new when they are found again."""
        for partition in partitions:
            self._known.discard(partition)
            self._unassigned.pop(partition, None)

    def take_back(self, splits: Iterable[KafkaPartitionSplit]) -> None:
        """Take splits of a reader that goes back; those of partitions that have gone are dropped."""
        for split in splits:
            if split.topic_partition in self._known:
                self._unassigned[split.topic_partition] = split

    def give(self, subtask: int, parallelism: int) -> list[KafkaPartitionSplit]:
        """Hand out the waiting splits of a reader, in the order of topics and partitions."""
        own = sorted(
            partition for partition in self._unassigned if owner_of(partition, parallelism) == subtask
        )
        return [self._unassigned.pop(partition) for partition in own]

    def state(self) -> KafkaEnumeratorState:
        """Return what a checkpoint holds."""
        waiting = (self._unassigned[partition] for partition in sorted(self._unassigned))
        return KafkaEnumeratorState(
            tuple(sorted(self._known)),
            tuple(waiting),
            self.initial_discovery_done,
            self.required,
            tuple(sorted(self._topic_ids.items())),
        )
