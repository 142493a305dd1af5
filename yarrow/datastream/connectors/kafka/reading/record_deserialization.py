"""Deserializers of Kafka records, and how chunks of messages become rows.

Owner: the task's thread; a schema belongs to one reader. Value-only schemas see the value of a record. A
KafkaRecordDeserializationSchema sees the whole record. Must not import the client library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import Any, Generic, NamedTuple, TypeVar

from yarrow.common.serialization import ByteArraySchema, DeserializationSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError

T = TypeVar("T")
OUT = TypeVar("OUT", covariant=True)

#: Bytes of a value that an error shows.
_SHOWN_BYTES = 120


class ConsumerRecord(NamedTuple):
    """One record of a topic.

    `value` None is a tombstone. `timestamp` has ms since 1970, None where the record has none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaRecordDeserializationSchema(ABC, Generic[OUT]):
    """Turns a record with topic, partition, offset, key, headers and timestamp into rows."""

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Iterable[OUT]:
        """Return the rows of a record: a list, or a generator; none leaves the record out."""

    def is_end_of_stream(self, next_element: Any) -> bool:
        """Whether the partition ends at this row, which is then not emitted."""
        return False

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the rows."""

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema[T]) -> DeserializationSchema[T]:
        """Return the schema itself: a source takes schemas of values as they are."""
        return deserialization_schema


class MadeRows(NamedTuple):
    """Rows of some messages."""

    rows: list[Any]
    timestamps: Sequence[int | None]
    #: Messages that the schema left out by None, tombstones apart.
    num_errors: int
    #: The schema has found the end of the partition.
    is_ended: bool


class RowMaker(ABC):
    """Makes rows of the messages of one partition."""

    #: True if it takes ConsumerRecords, False for values alone.
    takes_records = False

    @abstractmethod
    def make(
        self,
        partition: str,
        messages: Sequence[Any],
        timestamps: Sequence[int | None],
        offsets: Sequence[int],
    ) -> MadeRows:
        """The rows of messages. Raises KafkaRecordError naming the one that cannot be read."""


def row_maker(schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any]) -> RowMaker:
    """The maker of rows by a schema."""
    if isinstance(schema, KafkaRecordDeserializationSchema):
        return _RecordRows(schema)
    return _ValueRows(schema)


class _ValueRows(RowMaker):
    """Rows of values. A tombstone has no value, so it gives no row."""

    def __init__(self, schema: DeserializationSchema[Any]) -> None:
        self._schema = schema
        self._deserialize = schema.deserialize
        self._as_is = type(schema) is ByteArraySchema
        self._may_end = type(schema).is_end_of_stream is not DeserializationSchema.is_end_of_stream

    def make(
        self,
        partition: str,
        messages: Sequence[Any],
        timestamps: Sequence[int | None],
        offsets: Sequence[int],
    ) -> MadeRows:
        rows: list[Any] = []
        if any(map(is_, messages, repeat(None))):
            kept = [index for index, value in enumerate(messages) if value is not None]
            messages = [messages[index] for index in kept]
            timestamps = [timestamps[index] for index in kept]
            offsets = [offsets[index] for index in kept]
        if self._as_is:
            rows = list(messages)
        else:
            try:
                # The list keeps the rows before a failure, and so their number.
                rows.extend(map(self._deserialize, messages))
            except Exception as error:
                index = len(rows)
                raise _unreadable(partition, offsets[index], self._schema, messages[index], error) from error
        errors = 0
        if any(map(is_, rows, repeat(None))):
            timestamps = [stamp for row, stamp in zip(rows, timestamps, strict=True) if row is not None]
            errors = len(rows) - len(timestamps)
            rows = [row for row in rows if row is not None]
        if not self._may_end:
            return MadeRows(rows, timestamps, errors, False)
        return _up_to_end(self._schema, rows, timestamps, errors)


class _RecordRows(RowMaker):
    """Rows of whole records."""

    takes_records = True

    def __init__(self, schema: KafkaRecordDeserializationSchema[Any]) -> None:
        self._schema = schema
        default = KafkaRecordDeserializationSchema.is_end_of_stream
        self._may_end = type(schema).is_end_of_stream is not default

    def make(
        self,
        partition: str,
        messages: Sequence[Any],
        timestamps: Sequence[int | None],
        offsets: Sequence[int],
    ) -> MadeRows:
        rows: list[Any] = []
        stamps: list[int | None] = []
        deserialize = self._schema.deserialize
        for record, stamp in zip(messages, timestamps, strict=True):
            try:
                rows.extend(deserialize(record))
            except Exception as error:
                raise _unreadable(partition, record.offset, self._schema, record.value, error) from error
            stamps.extend(repeat(stamp, len(rows) - len(stamps)))
        if not self._may_end:
            return MadeRows(rows, stamps, 0, False)
        return _up_to_end(self._schema, rows, stamps, 0)


def _up_to_end(
    schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any],
    rows: list[Any],
    timestamps: Sequence[int | None],
    errors: int,
) -> MadeRows:
    end = next((index for index, row in enumerate(rows) if schema.is_end_of_stream(row)), None)
    if end is None:
        return MadeRows(rows, timestamps, errors, False)
    return MadeRows(rows[:end], timestamps[:end], errors, True)


def _unreadable(
    partition: str, offset: int, schema: object, value: bytes | None, error: Exception
) -> KafkaRecordError:
    shown = "no value (a tombstone)" if value is None else repr(value[:_SHOWN_BYTES])
    return KafkaRecordError(
        f"the record at offset {offset} of {partition} cannot be deserialized by {type(schema).__name__}:"
        f" {error}; its value: {shown}"
    )
