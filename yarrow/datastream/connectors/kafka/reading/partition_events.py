"""Events between the enumerator of a Kafka source and its readers.

Owner: none; plain values, which travel between workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition


@dataclass(frozen=True, slots=True)
class PartitionMissing:
    """A reader says: the broker does not know this partition any more."""

    partition: KafkaTopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterMoved:
    """The enumerator says: this cluster is reached in another way now, which the metadata service tells.

    Checkpoints may hold events, so the properties themselves are not in it.
    """

    cluster: str


@dataclass(frozen=True, slots=True)
class SplitsRemoved:
    """The enumerator says: these partitions have gone, or the program does not subscribe to them any more."""

    partitions: tuple[KafkaTopicPartition, ...]
