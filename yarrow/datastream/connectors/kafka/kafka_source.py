"""KafkaSource and its builder: a source of the records of topics, with PyFlink's names and meanings.

Owner: the client for building; the engine for the rest. The client library is loaded only where the enumerator and
the readers run. What a program gets wrong is refused here, before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.common.serialization import ColumnarDeserializationSchema, DeserializationSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy, error_handling
from yarrow.datastream.connectors.base import (
    Boundedness,
    Replay,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.kafka.cluster.client_library import (
    require_client_library,
    require_mechanism,
)
from yarrow.datastream.connectors.kafka.cluster.client_properties import (
    CLIENT_ID_PREFIX,
    ClientProperties,
    as_text,
)
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    KafkaRecordDeserializationSchema,
    letter_reader,
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
    import pyarrow as pa

    from yarrow.datastream.connectors.kafka.reading.kafka_reader import KafkaSourceReader

T = TypeVar("T")


class KafkaSource(Source[T, KafkaPartitionSplit], Generic[T]):
    """The records of topics; made by `KafkaSource.builder()`.

    Positions live in checkpoints. Readers form no consumer group. Offsets are committed to the group of
    `set_group_id` when a checkpoint is complete, for others to look at.
    """

    counts_bytes = True

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self.errors = settings.errors
        schema = settings.schema
        self.makes_new_rows = isinstance(schema, DeserializationSchema) and schema.makes_new_rows
        if settings.skips_removed_records:
            # Records that retention has removed are passed over, so exactly once would be untrue.
            self.replay = Replay.AT_LEAST_ONCE

    def __repr__(self) -> str:
        return f"KafkaSource({self._settings.subscription}, {self._settings.properties!r})"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder. Raises InvalidProgramError if Kafka's client library is not installed."""
        require_client_library(OWNER)
        return KafkaSourceBuilder()

    @property
    def settings(self) -> KafkaSourceSettings:
        """What the program has said of the source."""
        return self._settings

    @property
    def boundedness(self) -> Boundedness:
        bounded = self._settings.is_bounded
        return Boundedness.BOUNDED if bounded else Boundedness.CONTINUOUS_UNBOUNDED

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

    def letter_reader(self) -> Callable[[DeadLetter], SourceRecords]:
        """Return what reads records of letters by the deserializer."""
        return letter_reader(self._settings.schema, self._settings.errors.policy)

    def produced_type(self) -> TypeInformation | None:
        """The type that the deserializer declares."""
        return self._settings.schema.get_produced_type()

    def produced_schema(self) -> pa.Schema | None:
        """The columns that a columnar deserializer declares."""
        schema = self._settings.schema
        return schema.produced_schema() if isinstance(schema, ColumnarDeserializationSchema) else None


class KafkaSourceBuilder:
    """Collects what a KafkaSource needs. Each method returns the builder."""

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any] | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._is_bounded = False
        self._errors = ErrorHandling()
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers that are asked first: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group to which offsets are committed at checkpoints."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set how the ids of clients begin, by which brokers name them in logs and quotas."""
        return self.set_property(CLIENT_ID_PREFIX, prefix)

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

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set where a job without a checkpoint begins: by default at the beginning."""
        self._starting = _initializer("set_starting_offsets", starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Let the source end at these offsets, which are found when the job starts. It is bounded then."""
        self._stopping = _initializer("set_bounded", stopping_offsets_initializer)
        self._is_bounded = True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Let partitions end at these offsets, in a job that runs as a stream."""
        self._stopping = _initializer("set_unbounded", stopping_offsets_initializer)
        self._is_bounded = False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema[Any]
    ) -> KafkaSourceBuilder:
        """Set the schema that reads the value of each record. Records without a value (tombstones) are left out."""
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise InvalidProgramError(
                f"{OWNER}: set_value_only_deserializer takes a DeserializationSchema, not {deserialization_schema!r}"
            )
        self._schema = deserialization_schema
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema[Any] | DeserializationSchema[Any]
    ) -> KafkaSourceBuilder:
        """Set the schema that reads whole records: topic, partition, offset, key, headers, timestamp and value."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema | DeserializationSchema):
            raise InvalidProgramError(
                f"{OWNER}: set_deserializer takes a KafkaRecordDeserializationSchema, not {record_deserializer!r}"
            )
        self._schema = record_deserializer
        return self

    def on_error(
        self,
        policy: str | ErrorPolicy,
        *,
        max_per_minute: int | None = None,
        max_share: float | None = None,
    ) -> KafkaSourceBuilder:
        """Set what becomes of records that the deserializer cannot read: "fail", "skip" or "dead_letter".

        Dead letters go to the side output `OutputTag(DEAD_LETTERS)`. Past `max_per_minute` or `max_share` the job
        fails; each subtask counts for itself. Raises ValueError for another treatment or bound.
        """
        self._errors = error_handling(policy, max_per_minute, max_share)
        return self

    def set_property(self, key: str, value: Any) -> KafkaSourceBuilder:
        """Set a property of Kafka's consumer, by the name that Java's client has for it."""
        name, text = as_text(OWNER, key, value)
        self._properties[name] = text
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource[Any]:
        """Return the source. Raises InvalidProgramError naming what is missing or wrong."""
        if self._subscription is None:
            raise InvalidProgramError(
                f"{OWNER}: set what is read by set_topics, set_topic_pattern or set_partitions"
            )
        if self._schema is None:
            raise InvalidProgramError(
                f"{OWNER}: set how records are read by set_value_only_deserializer, for example"
                " SimpleStringSchema()"
            )
        settings = KafkaSourceSettings(
            self._subscription,
            self._schema,
            self._starting,
            self._stopping,
            ClientProperties(self._properties),
            self._is_bounded,
            self._errors,
        )
        settings.check()
        require_mechanism(OWNER, settings.consumer, commits=False)
        return KafkaSource(settings)


def _initializer(method: str, initializer: object) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise InvalidProgramError(f"{OWNER}: {method} takes a KafkaOffsetsInitializer, not {initializer!r}")
    return initializer
