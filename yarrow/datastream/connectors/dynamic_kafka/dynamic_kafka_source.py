"""DynamicKafkaSource and its builder: streams of topics in one or several clusters, which may change at run time.

Owner: the client for building; the engine for the rest. The client library is loaded only where the enumerator and
the readers run. What a program gets wrong is refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from yarrow.common.serialization import DeserializationSchema
from yarrow.datastream.connectors.base import SourceReaderContext, SplitEnumerator, SplitEnumeratorContext
from yarrow.datastream.connectors.dynamic_kafka.dynamic_settings import (
    OWNER,
    ClusterLookUp,
    DynamicSourceSettings,
)
from yarrow.datastream.connectors.dynamic_kafka.metadata_service import KafkaMetadataService
from yarrow.datastream.connectors.dynamic_kafka.stream_subscriber import (
    KafkaStreamSetSubscriber,
    KafkaStreamSubscriber,
    StreamPatternSubscriber,
)
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaRecordDeserializationSchema
from yarrow.datastream.connectors.kafka.cluster.client_library import require_client_library
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.described_source import DescribedKafkaSource, ReadingBuilder
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings, milliseconds
from yarrow.datastream.connectors.kafka.reading.subscription import TopicList
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    from yarrow.datastream.connectors.kafka.reading.kafka_reader import KafkaSourceReader

T = TypeVar("T")

#: Properties of the source itself, by Flink's names.
METADATA_INTERVAL: Final = "stream-metadata-discovery-interval-ms"
METADATA_FAILURES: Final = "stream-metadata-discovery-failure-threshold"


class DynamicKafkaSource(DescribedKafkaSource[T], Generic[T]):
    """The records of streams; made by `DynamicKafkaSource.builder()`.

    A metadata service tells the clusters and topics of each stream. Positions live in checkpoints, by cluster, topic
    and partition.
    """

    def __init__(self, settings: DynamicSourceSettings) -> None:
        super().__init__(settings.common)
        self._dynamic = settings

    def __repr__(self) -> str:
        return f"DynamicKafkaSource({self._dynamic.subscriber}, {self._dynamic.service_name})"

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:
        """Return a builder. Raises InvalidProgramError if Kafka's client library is not installed."""
        require_client_library(OWNER)
        return DynamicKafkaSourceBuilder()

    @property
    def dynamic_settings(self) -> DynamicSourceSettings:
        """What the program has said of streams and their service."""
        return self._dynamic

    def history(self) -> DynamicKafkaSource[T] | None:
        """The records up to the present end of each partition, behind which the stream goes on."""
        common = self._settings
        if common.is_bounded:
            return self
        latest = KafkaOffsetsInitializer.latest()
        ended = replace(common, stopping=latest, is_bounded=True, goes_on=True)
        return DynamicKafkaSource(replace(self._dynamic, common=ended, discovery_seconds=None))

    def create_enumerator(
        self, context: SplitEnumeratorContext[KafkaPartitionSplit], checkpoint: Any = None
    ) -> SplitEnumerator[KafkaPartitionSplit]:
        """Return the enumerator, which asks the metadata service and the clusters when it starts."""
        from yarrow.datastream.connectors.dynamic_kafka.dynamic_enumerator import DynamicKafkaEnumerator

        return DynamicKafkaEnumerator(context, self._dynamic, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> KafkaSourceReader:
        """Return a reader with a fetch thread for each cluster."""
        from yarrow.datastream.connectors.kafka.reading.kafka_reader import CommittingKafkaReader

        # The service may give each cluster a group.
        return CommittingKafkaReader(context, self._settings, ClusterLookUp(self._dynamic))


class DynamicKafkaSourceBuilder(ReadingBuilder):
    """Collects what a DynamicKafkaSource needs. Each method returns the builder."""

    _owner = OWNER

    def __init__(self) -> None:
        super().__init__()
        self._subscriber: KafkaStreamSubscriber | None = None
        self._service: KafkaMetadataService | None = None

    def set_stream_ids(self, stream_ids: Collection[str]) -> DynamicKafkaSourceBuilder:
        """Read the streams of these ids."""
        return self.set_kafka_stream_subscriber(KafkaStreamSetSubscriber(stream_ids))

    def set_stream_pattern(self, stream_pattern: str) -> DynamicKafkaSourceBuilder:
        """Read all streams whose whole ids match a regular expression, and those that come later."""
        return self.set_kafka_stream_subscriber(StreamPatternSubscriber(stream_pattern))

    def set_kafka_stream_subscriber(
        self, kafka_stream_subscriber: KafkaStreamSubscriber
    ) -> DynamicKafkaSourceBuilder:
        """Read the streams that a subscriber chooses."""
        if not isinstance(kafka_stream_subscriber, KafkaStreamSubscriber):
            raise InvalidProgramError(
                f"{OWNER}: set_kafka_stream_subscriber takes a KafkaStreamSubscriber, not {kafka_stream_subscriber!r}"
            )
        if self._subscriber is not None:
            raise InvalidProgramError(
                f"{OWNER}: the {self._subscriber} are set already; call one of set_stream_ids, set_stream_pattern and"
                " set_kafka_stream_subscriber, once"
            )
        self._subscriber = kafka_stream_subscriber
        return self

    def set_kafka_metadata_service(
        self, kafka_metadata_service: KafkaMetadataService
    ) -> DynamicKafkaSourceBuilder:
        """Set the service that tells the clusters and topics of streams."""
        if not isinstance(kafka_metadata_service, KafkaMetadataService):
            raise InvalidProgramError(
                f"{OWNER}: set_kafka_metadata_service takes a KafkaMetadataService, not {kafka_metadata_service!r}"
            )
        self._service = kafka_metadata_service
        return self

    def set_deserializer(
        self, deserializer: KafkaRecordDeserializationSchema[Any] | DeserializationSchema[Any]
    ) -> DynamicKafkaSourceBuilder:
        """Set the schema that reads whole records: topic, partition, offset, key, headers, timestamp and value."""
        return self._take_deserializer(deserializer)

    def build(self) -> DynamicKafkaSource[Any]:
        """Return the source. Raises InvalidProgramError naming what is missing or wrong."""
        if self._subscriber is None:
            raise InvalidProgramError(f"{OWNER}: set what is read by set_stream_ids or set_stream_pattern")
        if self._service is None:
            raise InvalidProgramError(
                f"{OWNER}: set where streams are looked up by set_kafka_metadata_service, for example"
                " YamlFileMetadataService('streams.yaml')"
            )
        own_names = {METADATA_INTERVAL, METADATA_FAILURES}
        ours = {key: value for key, value in self._properties.items() if key in own_names}
        properties = {key: value for key, value in self._properties.items() if key not in own_names}
        common = KafkaSourceSettings(
            TopicList(()),
            self._required_schema(),
            self._starting,
            self._stopping,
            ClientProperties(properties),
            self._is_bounded,
            self._errors,
        )
        self._check(common)
        interval = milliseconds(OWNER, ours, METADATA_INTERVAL, -1)
        seconds = interval / 1000 if interval > 0 and not self._is_bounded else None
        return DynamicKafkaSource(
            DynamicSourceSettings(common, self._subscriber, self._service, seconds, _failures(ours))
        )

    def _check(self, common: KafkaSourceSettings) -> None:
        """Raise InvalidProgramError for a property that is wrong for every cluster. A cluster may bring a group."""
        if "bootstrap.servers" in common.properties:
            raise InvalidProgramError(
                f"{OWNER}: bootstrap.servers belongs to a cluster, and the metadata service tells it"
            )
        # Whichever servers a cluster has, the other properties must be right.
        told = {"group.id": "told", **common.properties, "bootstrap.servers": "told:1"}
        try:
            replace(common, properties=ClientProperties(told)).check()
        except InvalidProgramError as error:
            raise InvalidProgramError(str(error).replace("KafkaSource:", f"{OWNER}:", 1)) from None


def _failures(properties: dict[str, str]) -> int:
    text = properties.get(METADATA_FAILURES, "1")
    if not text.isdecimal() or int(text) < 1:
        raise InvalidProgramError(
            f"{OWNER}: property {METADATA_FAILURES} must be a number of 1 or more, not {text!r}"
        )
    return int(text)
