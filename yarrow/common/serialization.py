"""Schemas and encoders: how connectors turn records into bytes and back.

Interfaces that users subclass and connectors call, with the few that every program needs. An instance is used
by one thread, the one that owns the task; it must pickle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Self, TypeVar

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.values.kept_schema import KeptSchema

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "ColumnarDeserializationSchema",
    "DeserializationSchema",
    "Encoder",
    "KeepsSchema",
    "MultiRecordDeserializationSchema",
    "RowFieldExtractorSchema",
    "SchemaUnavailableError",
    "SerializationSchema",
    "SimpleStringSchema",
    "TopicSerializationSchema",
]

T = TypeVar("T")
IN = TypeVar("IN", contravariant=True)
OUT = TypeVar("OUT")


class SchemaUnavailableError(Exception):
    """What a schema needs to read or write any message is missing. No message is at fault, so none is left out."""


class SerializationSchema(ABC, Generic[IN]):
    """Turns one record into the bytes of one message."""

    #: True if it writes whatever fields a record has; False = it has fields of its own.
    takes_added_columns: bool = False

    @abstractmethod
    def serialize(self, element: IN) -> bytes:
        """Return the bytes of a record."""


class TopicSerializationSchema(SerializationSchema[IN]):
    """Turns one record into the bytes of one message, in a way that depends on where the message goes."""

    @abstractmethod
    def writer_for(self, topic: str, is_key: bool) -> Callable[[IN], bytes | None]:
        """Return the function that makes the keys, or the values, of a topic's messages.

        A sink with one topic calls it once, where it opens on a worker. A sink that chooses the topic of each row calls
        it for the first row of a topic. Raises SchemaUnavailableError if what the schema needs is missing.
        """


class DeserializationSchema(ABC, Generic[OUT]):
    """Turns the bytes of one message into a record."""

    @property
    def makes_new_rows(self) -> bool:
        """Whether each row is a new object, all through, that the schema neither keeps nor changes.

        Then the engine need not copy it.
        """
        return False

    @property
    def makes_named_rows(self) -> bool:
        """Whether each record is a Row with field names of its own: the engine need not look for those without."""
        return False

    @property
    def adds_columns(self) -> bool:
        """Whether records may have fields that the schema of the program lacks."""
        return False

    @abstractmethod
    def deserialize(self, message: bytes) -> OUT:
        """Return the record of a message."""

    def deserialize_many(self, messages: Sequence[bytes]) -> list[OUT]:
        """Return the records of messages, in order and as `deserialize` gives them. Sources call it for chunks.

        It raises any error if a message cannot be read. The source then calls `deserialize` for each message.
        """
        return list(map(self.deserialize, messages))

    def is_end_of_stream(self, next_element: OUT) -> bool:
        """Whether the stream ends at this record, which is then not emitted."""
        return False

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""


class KeepsSchema(ABC):
    """A deserialization schema that asked for a schema when the program was built; snapshots keep what it got."""

    @abstractmethod
    def kept_schema(self) -> KeptSchema | None:
        """Return what a snapshot keeps; None = the program has asked for nothing."""

    @abstractmethod
    def with_kept_schema(self, kept: KeptSchema) -> Self:
        """Return this with the schema that a snapshot has kept of it."""


class MultiRecordDeserializationSchema(DeserializationSchema[OUT]):
    """Turns the bytes of one message into any number of records, as a change log does."""

    @abstractmethod
    def deserialize_all(self, message: bytes) -> Sequence[OUT]:
        """Return the records of a message, in their order."""

    def deserialize(self, message: bytes) -> OUT:
        """Return the record of a message that has one. Raises ValueError for a message with none or several."""
        records = self.deserialize_all(message)
        if len(records) != 1:
            raise ValueError(
                f"{len(records)} records in a message where one is expected; call deserialize_all: {message[:120]!r}"
            )
        return records[0]


class ColumnarDeserializationSchema(DeserializationSchema[OUT]):
    """Turns the bytes of many messages into columns. `deserialize` gives the row of a single one."""

    @abstractmethod
    def produced_schema(self) -> pa.Schema:
        """Return the columns."""

    @abstractmethod
    def deserialize_batch(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """Return one row for each message, in their order. Raises an error if one of them cannot be read."""


class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """Strings in a character set. Raises LookupError when Python has no such character set."""

    def __init__(self, charset: str = "UTF-8") -> None:
        "".encode(charset)
        self._charset = charset

    def serialize(self, element: str) -> bytes:
        return element.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset)

    def deserialize_many(self, messages: Sequence[bytes]) -> list[str]:
        # A subclass may read single messages in its own way.
        if type(self).deserialize is not SimpleStringSchema.deserialize:
            return super().deserialize_many(messages)
        return list(map(bytes.decode, messages, repeat(self._charset)))

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """Bytes as they are."""

    def serialize(self, element: bytes) -> bytes:
        return element

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema[Row]):
    """One field of a Row, which holds bytes or a bytearray. Raises ValueError for a negative position."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"field_index must not be negative: {field_index}")
        self._field_index = field_index

    def serialize(self, element: Row) -> bytes:
        """Return the bytes in the field, no bytes where it is None. Raises TypeError for any other value."""
        value = element[self._field_index]
        if value is None:
            return b""
        if isinstance(value, bytearray):
            return bytes(value)
        if not isinstance(value, bytes):
            raise TypeError(
                f"field {self._field_index} must hold bytes, not {type(value).__name__}: {element!r}"
            )
        return value


class Encoder(ABC, Generic[IN]):
    """Writes records one by one to an open stream."""

    #: As for a SerializationSchema.
    takes_added_columns: bool = False
    #: The character set to which the encoder itself limits texts; None = it tells none.
    charset: str | None = None

    @abstractmethod
    def encode(self, element: IN, stream: BinaryIO) -> None:
        """Write one record."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder[object]:
        """Return the encoder that writes `str(record)` and a newline."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder[object]):
    """Writes `str(record)` and a newline. Raises LookupError when Python has no such character set."""

    takes_added_columns = True

    def __init__(self, charset_name: str = "UTF-8") -> None:
        "".encode(charset_name)
        self._charset = self.charset = charset_name

    def encode(self, element: object, stream: BinaryIO) -> None:
        stream.write(f"{element}\n".encode(self._charset))


class BulkWriter(ABC, Generic[IN]):
    """Writes records to one file of a format that needs to see many at once, such as Parquet."""

    @abstractmethod
    def add_element(self, element: IN) -> None:
        """Take a record; it need not be written yet."""

    @abstractmethod
    def flush(self) -> None:
        """Hand all complete data to the stream."""

    @abstractmethod
    def finish(self) -> None:
        """Write everything that is left and the end of the file, without closing the stream."""

    def held_row_bytes(self, sample: Any) -> float:
        """Return about how many bytes a row like those of the sample has, if the writer holds rows back for long.

        `sample`: rows, or a record batch. 0 = the writer writes rows soon, so that the bytes of the file tell. Rate
        limits in bytes ask for it.
        """
        return 0.0

    def add_converted(self, converted: Any) -> None:
        """Take records that the factory's `row_converter` has converted; they need not be written yet.

        A FileSink with `on_error` calls it instead of `add_element`. An error is that of the file: it fails the job.
        """
        raise TypeError(f"{type(self).__name__} takes no converted records")


class BulkWriterFactory(ABC, Generic[T]):
    """Makes a BulkWriter for each file."""

    #: False where the bytes of two files, one behind the other, are no file of the format.
    can_be_concatenated: bool = True
    #: True when writers write rows soon, or have `held_row_bytes`: a FileSink then takes a rate limit in bytes.
    counts_bytes: bool = False
    #: True when the factory has `row_converter`, and its writers `add_converted`: a FileSink then has `on_error`.
    tells_refused_rows: bool = False

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter[T]:
        """Return a writer into an open stream."""

    def row_converter(self) -> Callable[[Any], Any]:
        """Return a function that converts records to the form that `BulkWriter.add_converted` of each file takes.

        Its argument is a sequence of records, or a record batch if the factory has `accepts_columns`. It touches no
        file, and raises any Exception if a record does not fit. The sink then calls it again with fewer records, until
        the failing ones are alone. So it must give a record the same result each time.
        """
        raise TypeError(f"{type(self).__name__} converts no records; set tells_refused_rows only if it does")
