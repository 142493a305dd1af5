"""Avro: the names that programs import, record schemas for messages, and the InputFormat that `create_input` takes.

Owner: the task's thread. Files are read and written in avro_files. fastavro is imported where a schema is parsed.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from yarrow.common.serialization import BulkWriterFactory, DeserializationSchema, SerializationSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.file_input_format import FileInputFormat
from yarrow.datastream.formats.avro_files import (
    AvroBulkFormat,
    AvroWriterFactory,
    message_reader,
    message_writer,
)
from yarrow.datastream.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from yarrow.datastream.formats.avro_values import AvroValueError, row_reader, row_type_of, writer_values
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

__all__ = [
    "AvroBulkFormat",
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]


class AvroInputFormat(FileInputFormat[dict[str, Any]]):
    """Records of Avro files at a path, as dicts, for `create_input`. A FileSource with AvroBulkFormat does the same."""

    def __init__(self, path: str, schema: AvroSchema) -> None:
        super().__init__(path, AvroBulkFormat(schema))
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """The type of the records."""
        return GenericRecordAvroTypeInfo(self._schema)


class AvroBulkWriters:
    """Makes writers of Avro files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema, codec: str = "null") -> BulkWriterFactory[dict[str, Any]]:
        """A factory of writers of dicts and Rows with the fields of the schema.

        `codec` is null, deflate, bzip2 or xz; InvalidProgramError for another. A datetime without a zone is taken
        as UTC, unless the type is a local timestamp.
        """
        return AvroWriterFactory(schema, codec)


def _message_schema(name: str, record_class: object, avro_schema_string: str | None) -> AvroSchema:
    if record_class is not None:
        raise UnsupportedFeatureError(
            f"{name}: record_class names a class of Java; give avro_schema_string, the schema as JSON"
        )
    if avro_schema_string is None:
        raise InvalidProgramError(f"{name}: give avro_schema_string, the schema as JSON")
    schema = AvroSchema.parse_string(avro_schema_string)
    if schema.root.kind != "record":
        raise InvalidProgramError(f"{name}: a schema of a record is expected, not of {schema.root.kind}")
    return schema


class AvroRowDeserializationSchema(DeserializationSchema[Row]):
    """A message in Avro's binary form as a Row. Timestamps are those of UTC, without a zone.

    Raises InvalidProgramError without a schema of a record.
    """

    def __init__(self, record_class: object = None, avro_schema_string: str | None = None) -> None:
        self._schema = _message_schema("AvroRowDeserializationSchema", record_class, avro_schema_string)
        self._type = row_type_of(self._schema.root)

    @cached_property
    def _record(self) -> Any:
        return message_reader(self._schema)

    @cached_property
    def _read(self) -> Any:
        return row_reader(self._schema.root)

    def deserialize(self, message: bytes) -> Row:
        """Return the Row. Raises FileFormatError for bytes that are no record of the schema."""
        row: Row = self._read(self._record(message))
        return row

    def get_produced_type(self) -> TypeInformation:
        """The Row type of the schema."""
        return self._type

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._schema.text)


class AvroRowSerializationSchema(SerializationSchema[Row]):
    """A Row as a message in Avro's binary form.

    Raises InvalidProgramError without a schema of a record.
    """

    def __init__(self, record_class: object = None, avro_schema_string: str | None = None) -> None:
        self._schema = _message_schema("AvroRowSerializationSchema", record_class, avro_schema_string)

    @cached_property
    def _values(self) -> Any:
        return writer_values(self._schema.root)

    @cached_property
    def _message(self) -> Any:
        return message_writer(self._schema)

    def serialize(self, element: Row) -> bytes:
        """Return the message. Raises FileFormatError naming the field of a value that does not fit."""
        try:
            record = self._values(element)
        except AvroValueError as error:
            raise FileFormatError(f"{element!r} is no record of {self._schema.root.name}: {error}") from error
        message: bytes = self._message(record)
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._schema.text)
