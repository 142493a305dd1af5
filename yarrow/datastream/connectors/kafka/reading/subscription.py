"""What a Kafka source reads: topics by name, topics by pattern, or single partitions.

Owner: none (pure). It chooses among the topics of the cluster, which somebody else has listed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTopicMissingError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition


class Subscription(ABC):
    """A choice of partitions."""

    @abstractmethod
    def choose(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        """The partitions among `topics`, which has the number of partitions by topic. Missing ones are left out."""

    @abstractmethod
    def require(self, topics: Mapping[str, int]) -> None:
        """Raise KafkaTopicMissingError for a topic or partition that the program names and `topics` lacks."""

    @property
    @abstractmethod
    def named_topics(self) -> tuple[str, ...] | None:
        """The only topics that need to be listed; None = all."""


@dataclass(frozen=True, slots=True)
class TopicList(Subscription):
    """All partitions of topics."""

    topics: tuple[str, ...]

    def choose(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        return _all_partitions({topic: topics[topic] for topic in self.topics if topic in topics})

    def require(self, topics: Mapping[str, int]) -> None:
        if missing := [topic for topic in self.topics if topic not in topics]:
            raise KafkaTopicMissingError(
                f"topic {', '.join(missing)} does not exist, or this user may not see it. Create it (kafka-topics.sh"
                " --create), or correct the name"
            )

    @property
    def named_topics(self) -> tuple[str, ...]:
        return self.topics

    def __str__(self) -> str:
        return f"topics {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class TopicPattern(Subscription):
    """All partitions of the topics whose whole names match a regular expression; internal topics are left out."""

    pattern: str

    def choose(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        whole = re.compile(self.pattern)
        return _all_partitions(
            {
                topic: number
                for topic, number in topics.items()
                if whole.fullmatch(topic) and not topic.startswith("__")
            }
        )

    def require(self, topics: Mapping[str, int]) -> None:
        """A pattern names no topic: one that matches may come later."""

    @property
    def named_topics(self) -> None:
        return None

    def __str__(self) -> str:
        return f"topics that match {self.pattern!r}"


@dataclass(frozen=True, slots=True)
class PartitionSet(Subscription):
    """Single partitions."""

    partitions: tuple[KafkaTopicPartition, ...]

    def choose(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        return {entry for entry in self.partitions if entry.partition < topics.get(entry.topic, 0)}

    def require(self, topics: Mapping[str, int]) -> None:
        for entry in self.partitions:
            number = topics.get(entry.topic, 0)
            if entry.partition >= number:
                has = f"topic {entry.topic} has {number}" if number else f"there is no topic {entry.topic}"
                raise KafkaTopicMissingError(
                    f"partition {entry} does not exist: {has}. Correct set_partitions"
                )

    @property
    def named_topics(self) -> tuple[str, ...]:
        return tuple(sorted({entry.topic for entry in self.partitions}))

    def __str__(self) -> str:
        return f"partitions {', '.join(map(str, self.partitions))}"


def _all_partitions(topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
    return {KafkaTopicPartition(topic, index) for topic, number in topics.items() for index in range(number)}
