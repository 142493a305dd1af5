"""The splits of a Kafka source: one for each partition of a topic, with the offset to be read next.

Owner: none; plain values, which checkpoints hold field by field. Must not import the client library.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from yarrow.datastream.connectors.base import SourceSplit
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition

#: The position of a split of which nothing has been read: the first record that the partition has then.
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class KafkaPartitionSplit(SourceSplit):
    """A partition from `position` on, up to but not including the offset `stop`.

    `position` is the offset of the next record, or EARLIEST. `stop` None means that the split has no end. `cluster` is
    the id of the cluster, "" where the source reads one cluster alone.
    """

    topic: str
    partition: int
    position: int
    stop: int | None = None
    cluster: str = ""

    @property
    def split_id(self) -> str:
        return str(self.topic_partition)

    @property
    def topic_partition(self) -> KafkaTopicPartition:
        """The partition without its offsets."""
        return KafkaTopicPartition(self.topic, self.partition, self.cluster)

    @property
    def is_complete(self) -> bool:
        """True if no record is left to be read."""
        return self.stop is not None and (self.stop <= 0 or self.position >= self.stop)


def owner_of(partition: KafkaTopicPartition, parallelism: int) -> int:
    """The subtask that reads the partition: the same in every process, and even over the partitions of a topic."""
    topic = f"{partition.cluster}{partition.topic}"
    return (zlib.crc32(topic.encode()) + partition.partition) % parallelism
