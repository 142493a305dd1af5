"""Deserializers of Kafka records, and how chunks of messages become rows.

Owner: the task's thread; a schema belongs to one reader. Value-only schemas see the value of a record. A
KafkaRecordDeserializationSchema sees the whole record. Must not import the client library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from yarrow.common.serialization import (
    ByteArraySchema,
    ColumnarDeserializationSchema,
    DeserializationSchema,
    MultiRecordDeserializationSchema,
    SchemaUnavailableError,
)
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, SYSTEM_OF_TOPICS, DeadLetter, traceback_of
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.formats.columns import batch_of_rows

if TYPE_CHECKING:
    import pyarrow as pa

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

    def parts(self) -> Mapping[str, DeserializationSchema[Any]]:
        """Return the schemas that read parts of a record, by a name such as "key".

        A job that goes on from a snapshot then reads by the registry's schemas of its first start.
        """
        return {}

    def with_parts(self, parts: Mapping[str, Any]) -> KafkaRecordDeserializationSchema[OUT]:
        """Return this with these schemas for all its parts. The type of its rows follows from them."""
        raise TypeError(f"{type(self).__name__} has parts without with_parts, which reads by other ones")

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema[T]) -> DeserializationSchema[T]:
        """Return the schema itself: a source takes schemas of values as they are."""
        return deserialization_schema


class MadeRows(NamedTuple):
    """Rows of some messages."""

    rows: Sequence[Any] | pa.RecordBatch
    timestamps: Sequence[int | None]
    #: Messages that the schema left out by None or that it could not read, tombstones apart.
    num_errors: int
    #: The schema has found the end of the partition.
    is_ended: bool
    #: The messages that it could not read, if they are to go aside.
    letters: Sequence[DeadLetter] = ()


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


def row_maker(
    schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any],
    policy: ErrorPolicy = ErrorPolicy.FAIL,
) -> RowMaker:
    """The maker of rows by a schema; `policy` says what becomes of a message that the schema cannot read."""
    if isinstance(schema, ColumnarDeserializationSchema):
        return _Columns(schema, _maker(schema, policy))
    return _maker(schema, policy)


def letter_reader(
    schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any], policy: ErrorPolicy
) -> Callable[[DeadLetter], SourceRecords]:
    """Return what reads the message of a dead letter again, as a source with this schema and policy would."""
    maker = row_maker(schema, policy)

    def read(letter: DeadLetter) -> SourceRecords:
        message: Any = letter.raw
        if maker.takes_records:
            # A cluster's id stands before the topic, which has no slash.
            topic, _, partition = letter.split.rpartition("/")[2].rpartition("-")
            message = ConsumerRecord(
                topic,
                int(partition),
                letter.position,
                letter.timestamp,
                letter.key,
                letter.raw,
                letter.headers,
            )
        made = maker.make(letter.split, [message], [letter.timestamp], [letter.position])
        side: list[tuple[str, Any]] = [(DEAD_LETTERS, each) for each in made.letters]
        return SourceRecords(made.rows, made.timestamps, side=side or None, num_errors=made.num_errors)

    return read


def _maker(
    schema: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any], policy: ErrorPolicy
) -> RowMaker:
    if isinstance(schema, KafkaRecordDeserializationSchema):
        return _RecordRows(schema, policy)
    if policy is ErrorPolicy.DEAD_LETTER and type(schema) is not ByteArraySchema:
        # A letter has key, headers and timestamp, which messages without their records lack.
        return _RecordRows(_OfValues(schema), policy, drops_none=True)
    if isinstance(schema, MultiRecordDeserializationSchema):
        return _rows_of_changes(schema, policy)
    return _ValueRows(schema, policy)


def _rows_of_value(schema: DeserializationSchema[Any]) -> Callable[[bytes | None], Iterable[Any]]:
    if isinstance(schema, MultiRecordDeserializationSchema):
        deserialize_all = schema.deserialize_all
        return lambda value: () if value is None else deserialize_all(value)
    deserialize = schema.deserialize
    return lambda value: () if value is None else (deserialize(value),)


class _OfValues(KafkaRecordDeserializationSchema[Any]):
    """A schema of values that takes whole records. A tombstone has no value, so it gives no row."""

    def __init__(self, schema: DeserializationSchema[Any]) -> None:
        self._schema = schema
        self._rows = _rows_of_value(schema)
        self._may_end = type(schema).is_end_of_stream is not DeserializationSchema.is_end_of_stream

    def deserialize(self, record: ConsumerRecord) -> Iterable[Any]:
        """The rows of a value, None for a value that the schema leaves out, or no row."""
        return self._rows(record.value)

    def is_end_of_stream(self, next_element: Any) -> bool:
        return self._may_end and next_element is not None and self._schema.is_end_of_stream(next_element)

    def get_produced_type(self) -> TypeInformation:
        """The type of the values."""
        return self._schema.get_produced_type()


class _ValueRows(RowMaker):
    """Rows of values. A tombstone has no value, so it gives no row."""

    def __init__(self, schema: DeserializationSchema[Any], policy: ErrorPolicy) -> None:
        self._schema = schema
        self._policy = policy
        self._deserialize = schema.deserialize
        has_own = type(schema).deserialize_many is not DeserializationSchema.deserialize_many
        self._deserialize_many = schema.deserialize_many if has_own else None
        self._as_is = type(schema) is ByteArraySchema
        #: Messages that are made at once give no None.
        self._are_records = self._as_is or schema.makes_named_rows
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
        unread: set[int] = set()
        made = list(messages) if self._as_is else self._made_at_once(messages)
        if made is not None:
            rows = made
        else:
            waiting = iter(messages)
            while True:
                failure: Exception
                try:
                    # The list keeps the rows before a failure, and so their number.
                    rows.extend(map(self._deserialize, waiting))
                    if len(rows) + len(unread) == len(messages):
                        break
                    # A StopIteration of the schema has ended the list like the end of the messages.
                    failure = RuntimeError("the schema raised StopIteration")
                except SchemaUnavailableError:
                    raise
                except Exception as error:
                    failure = error
                index = len(rows) + len(unread)
                if self._policy is ErrorPolicy.FAIL:
                    value = messages[index]
                    raise _unreadable(partition, offsets[index], self._schema, value, failure) from failure
                unread.add(index)
        errors = len(unread)
        if unread:
            timestamps = [stamp for index, stamp in enumerate(timestamps) if index not in unread]
        if made is None or not self._are_records:
            rows, timestamps, left_out = _without_none(rows, timestamps)
            errors += left_out
        if not self._may_end:
            return MadeRows(rows, timestamps, errors, False)
        return _up_to_end(self._schema, rows, timestamps, errors)

    def _made_at_once(self, messages: Sequence[Any]) -> list[Any] | None:
        """The rows of all messages; None = they must be made one by one, which finds what is at fault."""
        if self._deserialize_many is not None:
            with suppress(Exception):
                made = self._deserialize_many(messages)
                # A StopIteration of the schema ends a list like the end of the messages.
                return made if len(made) == len(messages) else None
        return None


class _Columns(RowMaker):
    """Record batches of whole chunks. A chunk with a message that cannot be read is made row by row."""

    def __init__(self, schema: ColumnarDeserializationSchema[Any], by_rows: RowMaker) -> None:
        self._schema = schema
        self._by_rows = by_rows
        self._columns = schema.produced_schema()
        self.takes_records = by_rows.takes_records
        self._may_end = type(schema).is_end_of_stream is not DeserializationSchema.is_end_of_stream

    def make(
        self,
        partition: str,
        messages: Sequence[Any],
        timestamps: Sequence[int | None],
        offsets: Sequence[int],
    ) -> MadeRows:
        if not (self.takes_records or self._may_end or any(map(is_, messages, repeat(None)))):
            # The way by rows finds the message that is at fault.
            with suppress(Exception):
                batch = self._schema.deserialize_batch(messages)
                return MadeRows(batch, timestamps, 0, False)
        made = self._by_rows.make(partition, messages, timestamps, offsets)
        return made._replace(rows=batch_of_rows(list(made.rows), self._columns))


class _RowsOfEach(RowMaker):
    """Rows of messages each of which may give several."""

    def __init__(
        self,
        schema: MultiRecordDeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any],
        policy: ErrorPolicy,
        rows_of: Callable[[Any], Iterable[Any]],
        *,
        may_end: bool,
    ) -> None:
        self._schema = schema
        self._policy = policy
        self._rows_of = rows_of
        self._may_end = may_end

    def make(
        self,
        partition: str,
        messages: Sequence[Any],
        timestamps: Sequence[int | None],
        offsets: Sequence[int],
    ) -> MadeRows:
        rows: list[Any] = []
        stamps: list[int | None] = []
        errors = 0
        letters: list[DeadLetter] = []
        rows_of = self._rows_of
        for message, stamp, offset in zip(messages, timestamps, offsets, strict=True):
            try:
                rows.extend(rows_of(message))
            except SchemaUnavailableError:
                raise
            except Exception as error:
                if self._policy is ErrorPolicy.FAIL:
                    value = self._value_of(message)
                    raise _unreadable(partition, offset, self._schema, value, error) from error
                # A generator may have given rows before it failed.
                del rows[len(stamps) :]
                errors += 1
                if self._policy is ErrorPolicy.DEAD_LETTER:
                    letters += self._letters(partition, message, error)
            stamps.extend(repeat(stamp, len(rows) - len(stamps)))
        return self._made(rows, stamps, errors)._replace(letters=letters)

    def _value_of(self, message: Any) -> bytes | None:
        value: bytes | None = message
        return value

    def _letters(self, partition: str, message: Any, error: Exception) -> Sequence[DeadLetter]:
        """Letters about a message that cannot be read. A value without its record gets none."""
        return ()

    def _made(self, rows: list[Any], stamps: Sequence[int | None], errors: int) -> MadeRows:
        if not self._may_end:
            return MadeRows(rows, stamps, errors, False)
        return _up_to_end(self._schema, rows, stamps, errors)


def _rows_of_changes(schema: MultiRecordDeserializationSchema[Any], policy: ErrorPolicy) -> RowMaker:
    """The maker of rows of values. A tombstone gives none."""
    may_end = type(schema).is_end_of_stream is not DeserializationSchema.is_end_of_stream
    return _RowsOfEach(schema, policy, _rows_of_value(schema), may_end=may_end)


class _RecordRows(_RowsOfEach):
    """Rows of whole records."""

    takes_records = True

    def __init__(
        self, schema: KafkaRecordDeserializationSchema[Any], policy: ErrorPolicy, *, drops_none: bool = False
    ) -> None:
        """`drops_none`: a None is no row, but a message that the schema has left out."""
        may_end = type(schema).is_end_of_stream is not KafkaRecordDeserializationSchema.is_end_of_stream
        super().__init__(schema, policy, schema.deserialize, may_end=may_end)
        self._drops_none = drops_none

    def _value_of(self, message: ConsumerRecord) -> bytes | None:
        return message.value

    def _letters(self, partition: str, message: ConsumerRecord, error: Exception) -> Sequence[DeadLetter]:
        return (_letter(partition, message, error),)

    def _made(self, rows: list[Any], stamps: Sequence[int | None], errors: int) -> MadeRows:
        if self._drops_none:
            rows, stamps, left_out = _without_none(rows, stamps)
            errors += left_out
        return super()._made(rows, stamps, errors)


def _without_none(
    rows: list[Any], timestamps: Sequence[int | None]
) -> tuple[list[Any], Sequence[int | None], int]:
    """The rows that are not None, their timestamps, and how many were None."""
    if not any(map(is_, rows, repeat(None))):
        return rows, timestamps, 0
    kept = [stamp for row, stamp in zip(rows, timestamps, strict=True) if row is not None]
    return [row for row in rows if row is not None], kept, len(rows) - len(kept)


def _letter(partition: str, record: ConsumerRecord, error: Exception) -> DeadLetter:
    return DeadLetter(
        split=partition,
        position=record.offset,
        raw=record.value,
        error=f"{type(error).__name__}: {error}",
        traceback=traceback_of(error),
        key=record.key,
        timestamp=record.timestamp,
        headers=record.headers,
        schema_id=getattr(error, "schema_id", None),
        system=SYSTEM_OF_TOPICS,
        error_class=type(error).__name__,
    )


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
        f' {error}; its value: {shown}. Mend the schema, or give the source on_error("skip") or'
        ' on_error("dead_letter")'
    )
