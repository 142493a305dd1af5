"""KafkaSource and its builder: a source of the records of topics, with PyFlink's names and meanings.

Owner: the client for building; the engine for the rest. The client library is loaded only where the enumerator and
the readers run. What a program gets wrong is refused here, before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.common.serialization import DeserializationSchema
from yarrow.datastream.connectors.base import (
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.kafka.cluster.client_library import (
    require_client_library,
    require_mechanism,
)
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.described_source import DescribedKafkaSource, ReadingBuilder
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    KafkaRecordDeserializationSchema,
)
from yarrow.datastream.connectors.kafka.reading.source_settings import (
    OWNER,
    KafkaSourceSettings,
)
from yarrow.datastream.connectors.kafka.reading.subscription import (
    PartitionSet,
    Subscription,
    TopicList,
    TopicPattern,
)
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    from yarrow.datastream.connectors.kafka.reading.kafka_reader import KafkaSourceReader

T = TypeVar("T")


class KafkaSource(DescribedKafkaSource[T], Generic[T]):
    """The records of topics; made by `KafkaSource.builder()`.

    Positions live in checkpoints. Readers form no consumer group. Offsets are committed to the group of
    `set_group_id` when a checkpoint is complete, for others to look at.
    """

    def __repr__(self) -> str:
        return f"KafkaSource({self._settings.subscription}, {self._settings.properties!r})"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder. Raises InvalidProgramError if Kafka's client library is not installed."""
        require_client_library(OWNER)
        return KafkaSourceBuilder()

    def history(self) -> KafkaSource[T] | None:
        """The records up to the present end of each partition, behind which the stream goes on."""
        settings = self._settings
        if settings.is_bounded:
            return self
        if settings.stopping is not None:
            return None
        latest = KafkaOffsetsInitializer.latest()
        return KafkaSource(replace(settings, stopping=latest, is_bounded=True, goes_on=True))

    def create_enumerator(
        self, context: SplitEnumeratorContext[KafkaPartitionSplit], checkpoint: Any = None
    ) -> SplitEnumerator[KafkaPartitionSplit]:
        """Return the enumerator, which asks the cluster for partitions when it starts."""
        from yarrow.datastream.connectors.kafka.reading.kafka_enumerator import KafkaSourceEnumerator

        return KafkaSourceEnumerator(context, self._settings, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> KafkaSourceReader:
        """Return a reader with a fetch thread of its own."""
        from yarrow.datastream.connectors.kafka.reading.kafka_reader import (
            CommittingKafkaReader,
            KafkaSourceReader,
        )

        reader = CommittingKafkaReader if self._settings.commits else KafkaSourceReader
        return reader(context, self._settings)


class KafkaSourceBuilder(ReadingBuilder):
    """Collects what a KafkaSource needs. Each method returns the builder."""

    _owner = OWNER

    def __init__(self) -> None:
        super().__init__()
        self._subscription: Subscription | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers that are asked first: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read all partitions of topics."""
        if not topics or not all(isinstance(topic, str) and topic for topic in topics):
            raise InvalidProgramError(f"{OWNER}: set_topics takes names of topics, not {topics!r}")
        return self._subscribe(TopicList(tuple(dict.fromkeys(topics))))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole names match a regular expression, and those that come later."""
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as error:
            raise InvalidProgramError(
                f"{OWNER}: set_topic_pattern takes a regular expression, not {topic_pattern!r}: {error}"
            ) from error
        return self._subscribe(TopicPattern(topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read single partitions."""
        chosen = tuple(sorted(set(partitions)))
        if not chosen:
            raise InvalidProgramError(f"{OWNER}: set_partitions takes at least one KafkaTopicPartition")
        return self._subscribe(PartitionSet(chosen))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise InvalidProgramError(
                f"{OWNER}: the {self._subscription} are set already; call one of set_topics, set_topic_pattern and"
                " set_partitions, once"
            )
        self._subscription = subscription
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Let partitions end at these offsets, in a job that runs as a stream."""
        self._stopping = self._initializer("set_unbounded", stopping_offsets_initializer)
        self._is_bounded = False
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema[Any] | DeserializationSchema[Any]
    ) -> KafkaSourceBuilder:
        """Set the schema that reads whole records: topic, partition, offset, key, headers, timestamp and value."""
        return self._take_deserializer(record_deserializer)

    def build(self) -> KafkaSource[Any]:
        """Return the source. Raises InvalidProgramError naming what is missing or wrong."""
        if self._subscription is None:
            raise InvalidProgramError(
                f"{OWNER}: set what is read by set_topics, set_topic_pattern or set_partitions"
            )
        settings = KafkaSourceSettings(
            self._subscription,
            self._required_schema(),
            self._starting,
            self._stopping,
            ClientProperties(self._properties),
            self._is_bounded,
            self._errors,
        )
        settings.check()
        require_mechanism(OWNER, settings.consumer, commits=False)
        return KafkaSource(settings)
