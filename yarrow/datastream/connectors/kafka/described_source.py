"""DescribedKafkaSource and ReadingBuilder: the description that all sources of Kafka have, and their builder methods.

Owner: the client for building; the engine for the rest. Must not load the client library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from yarrow.common.serialization import ColumnarDeserializationSchema, DeserializationSchema, KeepsSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy, error_handling
from yarrow.common.values.kept_schema import ONLY, KeptSchema
from yarrow.datastream.connectors.base import Boundedness, Replay, Source, SourceRecords
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.kafka.cluster.client_properties import CLIENT_ID_PREFIX, as_text
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    KafkaRecordDeserializationSchema,
    letter_reader,
)
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class DescribedKafkaSource(Source[T, KafkaPartitionSplit], Generic[T]):
    """A source of records of topics, as far as its settings alone describe it."""

    counts_bytes = True

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self.errors = settings.errors
        schema = settings.schema
        self.adds_columns = isinstance(schema, DeserializationSchema) and schema.adds_columns
        self.makes_new_rows = isinstance(schema, DeserializationSchema) and schema.makes_new_rows
        self.makes_named_rows = isinstance(schema, DeserializationSchema) and schema.makes_named_rows
        if settings.skips_removed_records:
            # Records that retention has removed are passed over, so exactly once would be untrue.
            self.replay = Replay.AT_LEAST_ONCE

    @property
    def settings(self) -> KafkaSourceSettings:
        """What the program has said of the source."""
        return self._settings

    @property
    def boundedness(self) -> Boundedness:
        bounded = self._settings.is_bounded
        return Boundedness.BOUNDED if bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def letter_reader(self) -> Callable[[DeadLetter], SourceRecords]:
        """Return what reads records of letters by the deserializer."""
        return letter_reader(self._settings.schema, self._settings.errors.policy)

    def kept_schemas(self) -> dict[str, KeptSchema]:
        """The schemas that the deserializer, or those inside it, have asked a registry for."""
        found = {place: part.kept_schema() for place, part in self._keeping_parts().items()}
        return {place: kept for place, kept in found.items() if kept is not None}

    def with_kept_schemas(self, kept: Mapping[str, KeptSchema]) -> Self:
        """The source whose deserializers read by schemas of a snapshot."""
        keeping, own = self._keeping_parts(), self._settings.schema
        parts: dict[str, Any] = {
            place: keeping[place].with_kept_schema(schema) for place, schema in kept.items()
        }
        if isinstance(own, KafkaRecordDeserializationSchema):
            schema: Any = own.with_parts({**own.parts(), **parts})
        else:
            schema = parts[ONLY]
        changed = copy(self)
        changed._settings = replace(self._settings, schema=schema)
        return changed

    def _keeping_parts(self) -> dict[str, KeepsSchema]:
        schema = self._settings.schema
        parts = schema.parts() if isinstance(schema, KafkaRecordDeserializationSchema) else {ONLY: schema}
        return {place: part for place, part in parts.items() if isinstance(part, KeepsSchema)}

    def produced_type(self) -> TypeInformation | None:
        """The type that the deserializer declares."""
        return self._settings.schema.get_produced_type()

    def produced_schema(self) -> pa.Schema | None:
        """The columns that a columnar deserializer declares."""
        schema = self._settings.schema
        return schema.produced_schema() if isinstance(schema, ColumnarDeserializationSchema) else None


class ReadingBuilder:
    """Collects what every source of Kafka needs. Each method returns the builder."""

    #: The source that errors name.
    _owner: ClassVar[str]

    def __init__(self) -> None:
        self._schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any] | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._is_bounded = False
        self._errors = ErrorHandling()
        self._properties: dict[str, str] = {}

    def set_group_id(self, group_id: str) -> Self:
        """Set the consumer group to which offsets are committed at checkpoints."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set how the ids of clients begin, by which brokers name them in logs and quotas."""
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where a job without a checkpoint begins: by default at the beginning."""
        self._starting = self._initializer("set_starting_offsets", starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Let the source end at these offsets, which are found when the job starts. It is bounded then."""
        self._stopping = self._initializer("set_bounded", stopping_offsets_initializer)
        self._is_bounded = True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema[Any]) -> Self:
        """Set the schema that reads the value of each record. Records without a value (tombstones) are left out."""
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise InvalidProgramError(
                f"{self._owner}: set_value_only_deserializer takes a DeserializationSchema, not"
                f" {deserialization_schema!r}"
            )
        self._schema = deserialization_schema
        return self

    def _take_deserializer(self, record_deserializer: object) -> Self:
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema | DeserializationSchema):
            raise InvalidProgramError(
                f"{self._owner}: set_deserializer takes a KafkaRecordDeserializationSchema, not {record_deserializer!r}"
            )
        self._schema = record_deserializer
        return self

    def on_error(
        self,
        policy: str | ErrorPolicy,
        *,
        max_per_minute: int | None = None,
        max_share: float | None = None,
    ) -> Self:
        """Set what becomes of records that the deserializer cannot read: "fail", "skip" or "dead_letter".

        Dead letters go to the side output `OutputTag(DEAD_LETTERS)`. Past `max_per_minute` or `max_share` the job
        fails; each subtask counts for itself. Raises ValueError for another treatment or bound.
        """
        self._errors = error_handling(policy, max_per_minute, max_share)
        return self

    def set_property(self, key: str, value: Any) -> Self:
        """Set a property of Kafka's consumer, by the name that Java's client has for it."""
        name, text = as_text(self._owner, key, value)
        self._properties[name] = text
        return self

    def set_properties(self, props: Mapping[str, Any]) -> Self:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def _required_schema(self) -> DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any]:
        if self._schema is None:
            raise InvalidProgramError(
                f"{self._owner}: set how records are read by set_value_only_deserializer, for example"
                " SimpleStringSchema()"
            )
        return self._schema

    def _initializer(self, method: str, initializer: object) -> KafkaOffsetsInitializer:
        if not isinstance(initializer, KafkaOffsetsInitializer):
            raise InvalidProgramError(
                f"{self._owner}: {method} takes a KafkaOffsetsInitializer, not {initializer!r}"
            )
        return initializer
