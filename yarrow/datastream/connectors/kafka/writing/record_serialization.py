"""How a row becomes a record of Kafka: topic, key, value, headers, partition and timestamp.

Owner: the client builds a schema; the writer calls it on the task's thread. Must not import the client library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from numbers import Integral
from typing import Any, Generic, NamedTuple, TypeVar

from yarrow.common.serialization import SerializationSchema, TopicSerializationSchema
from yarrow.runtime.common.errors import InvalidProgramError

IN = TypeVar("IN")
IN_contra = TypeVar("IN_contra", contravariant=True)

#: An iterator may stand for them: the writer makes a list of it.
Headers = Iterable[tuple[str, bytes | None]]
_OWNER = "KafkaRecordSerializationSchema"


class ProducerRecord(NamedTuple):
    """A record to be written."""

    topic: str
    #: None = a tombstone: the record removes its key from a compacted topic.
    value: bytes | None
    key: bytes | None = None
    #: None = the partitioner chooses.
    partition: int | None = None
    #: Milliseconds since 1970 UTC; None = the present time.
    timestamp: int | None = None
    headers: Headers = ()


#: The fields of a ProducerRecord, as the writer takes them: a plain tuple costs less than a named one.
RecordFields = tuple[str, bytes | None, bytes | None, int | None, int | None, Headers]
Encode = Callable[[Any, int | None], RecordFields | None]


def with_listed_headers(fields: RecordFields) -> RecordFields:
    """The fields with headers that can be read again: an iterator of headers is empty after the first time."""
    if (
        isinstance(fields, tuple)
        and len(fields) == len(ProducerRecord._fields)
        and isinstance(fields[5], Iterator)
    ):
        return (*fields[:5], list(fields[5]))
    return fields


def misfit(fields: object) -> str | None:
    """Return why these are no fields of a record, as the end of a sentence; None = they are."""
    if not isinstance(fields, tuple) or len(fields) != len(ProducerRecord._fields):
        return f"a ProducerRecord or None is expected of its serializer, not {fields!r:.100}"
    topic, value, key, partition, timestamp, headers = fields
    if not isinstance(topic, str) or not topic:
        return f"the name of its topic is {topic!r} instead of a text"
    for name, part in (("value", value), ("key", key)):
        if part is not None and not isinstance(part, bytes | str):
            return f"the {name} of the record is {type(part).__name__} instead of bytes"
    if partition is not None and (not isinstance(partition, Integral) or int(partition) < 0):
        return f"its partition is {partition!r} instead of a number from 0 on, or None"
    if timestamp is not None and not isinstance(timestamp, Integral):
        return f"its timestamp is {timestamp!r} instead of milliseconds"
    if headers is not None and not _are_headers(headers):
        return f"its headers are {headers!r:.100} instead of pairs of a text and bytes, or None"
    return None


def _are_headers(headers: object) -> bool:
    if not isinstance(headers, Collection) or isinstance(headers, str | bytes | dict):
        return False
    return all(map(_is_header, headers))


def _is_header(pair: object) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    name, content = pair
    return isinstance(name, str) and (content is None or isinstance(content, bytes | str))


Write = Callable[[Any], bytes | None]


class KafkaTopicSelector(ABC, Generic[IN_contra]):
    """Chooses the topic of a row."""

    @abstractmethod
    def apply(self, data: IN_contra) -> str:
        """Return the name of the topic."""


class KafkaRecordSerializationSchema(ABC, Generic[IN]):
    """Turns rows into records. `builder()` makes one of schemas; a subclass decides everything itself."""

    #: True if it writes whatever fields a row has; False = it has fields of its own.
    takes_added_columns: bool = False

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()

    @abstractmethod
    def serialize(self, element: IN, timestamp: int | None) -> ProducerRecord | None:
        """Return the record of a row whose timestamp (ms) is given; None = the row is left out."""

    def fixed_topic(self) -> str | None:
        """The topic of all records, which must exist when the job starts; None = it is known with each row."""
        return None

    def encoder(self) -> Encode:
        """Return what the writer calls for each row: `serialize`, or something faster with the same results."""
        return self.serialize


class _BuiltSchema(KafkaRecordSerializationSchema[IN]):
    """Made of a topic or a selector, of schemas for value and key, and of functions."""

    def __init__(self, parts: KafkaRecordSerializationSchemaBuilder) -> None:
        self._topic = parts._topic
        self._selector = parts._selector
        assert parts._value is not None
        self._value = parts._value
        self.takes_added_columns = parts._value.takes_added_columns
        self._key = parts._key
        self._partitioner = parts._partitioner
        self._headers = parts._headers
        #: Topic -> what makes its values and keys.
        self._writers: dict[str, tuple[Write, Write | None]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Writers belong to one worker.
        return self.__dict__ | {"_writers": {}}

    def _writers_of(self, topic: str) -> tuple[Write, Write | None]:
        key = None if self._key is None else _writer(self._key, topic, True)
        made = self._writers[topic] = _writer(self._value, topic, False), key
        return made

    def fixed_topic(self) -> str | None:
        return self._topic if self._selector is None else None

    def serialize(self, element: IN, timestamp: int | None) -> ProducerRecord:
        topic = self._topic if self._selector is None else self._selector.apply(element)
        write_value, write_key = self._writers.get(topic) or self._writers_of(topic)
        value = write_value(element)
        key = None if write_key is None else write_key(element)
        return ProducerRecord(
            topic,
            value,
            key,
            None if self._partitioner is None else self._partitioner(element, key, value, topic),
            timestamp,
            () if self._headers is None else self._headers(element),
        )

    def encoder(self) -> Encode:
        others = (self._selector, self._key, self._partitioner, self._headers)
        if any(part is not None for part in others):
            if self._selector is None:
                # What a topic's schemas lack is told when the sink opens, before the first row.
                self._writers_of(self._topic)
            return self.serialize
        topic = self._topic
        serialize, _ = self._writers_of(topic)

        def encode(element: Any, timestamp: int | None) -> RecordFields:
            return topic, serialize(element), None, None, timestamp, ()

        return encode


Partitioner = Callable[[Any, bytes | None, bytes | None, str], int]


class KafkaRecordSerializationSchemaBuilder:
    """Collects what a KafkaRecordSerializationSchema needs. Each method returns the builder."""

    def __init__(self) -> None:
        self._topic = ""
        self._selector: KafkaTopicSelector[Any] | None = None
        self._value: SerializationSchema[Any] | None = None
        self._key: SerializationSchema[Any] | None = None
        self._partitioner: Partitioner | None = None
        self._headers: Callable[[Any], Headers] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all rows to one topic."""
        if not isinstance(topic, str) or not topic:
            raise InvalidProgramError(f"{_OWNER}: set_topic takes the name of a topic, not {topic!r}")
        self._check_unset()
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each row."""
        if not isinstance(topic_selector, KafkaTopicSelector):
            raise InvalidProgramError(
                f"{_OWNER}: set_topic_selector takes a KafkaTopicSelector, not {topic_selector!r}"
            )
        self._check_unset()
        self._selector = topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes each record's key of the row. Without it records have no key."""
        self._key = _schema("set_key_serialization_schema", key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes each record's value of the row. It may return None: a tombstone."""
        self._value = _schema("set_value_serialization_schema", value_serialization_schema)
        return self

    def set_partitioner(self, partitioner: Partitioner) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function of row, key, value and topic that returns the number of the partition.

        Without it the property `partitioner` decides: by key, as Java's clients do.
        """
        if not callable(partitioner):
            raise InvalidProgramError(f"{_OWNER}: set_partitioner takes a function, not {partitioner!r}")
        self._partitioner = partitioner
        return self

    def set_header_provider(
        self, header_provider: Callable[[Any], Headers]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function of the row that returns pairs of a header's name and bytes."""
        if not callable(header_provider):
            raise InvalidProgramError(
                f"{_OWNER}: set_header_provider takes a function, not {header_provider!r}"
            )
        self._headers = header_provider
        return self

    def build(self) -> KafkaRecordSerializationSchema[Any]:
        """Return the schema. Raises InvalidProgramError naming what is missing."""
        if self._value is None:
            raise InvalidProgramError(
                f"{_OWNER}: set how rows are written by set_value_serialization_schema, for example"
                " SimpleStringSchema()"
            )
        if not self._topic and self._selector is None:
            raise InvalidProgramError(f"{_OWNER}: set the topic by set_topic or set_topic_selector")
        return _BuiltSchema(self)

    def _check_unset(self) -> None:
        if self._topic or self._selector is not None:
            raise InvalidProgramError(
                f"{_OWNER}: the topic is set already; call one of set_topic and set_topic_selector, once"
            )


def _writer(schema: SerializationSchema[Any], topic: str, is_key: bool) -> Write:
    return (
        schema.writer_for(topic, is_key) if isinstance(schema, TopicSerializationSchema) else schema.serialize
    )


def _schema(method: str, schema: object) -> SerializationSchema[Any]:
    if not isinstance(schema, SerializationSchema):
        raise InvalidProgramError(f"{_OWNER}: {method} takes a SerializationSchema, not {schema!r}")
    return schema
