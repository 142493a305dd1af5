"""Schemas that read and write one Protobuf message as a Row.

Owner: the task's thread; the schemas pickle by their settings. Types of messages are made in message_type.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from yarrow.common.serialization import DeserializationSchema, SerializationSchema
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.protobuf.fields import row_type_of
from yarrow.datastream.formats.protobuf.message_type import ProtobufType, protobuf_library
from yarrow.datastream.formats.protobuf.reading import row_reader
from yarrow.datastream.formats.protobuf.writing import row_writer

__all__ = ["ProtobufRowDeserializationSchema", "ProtobufRowSerializationSchema", "ProtobufType"]


def _row_type(message_type: ProtobufType, type_info: RowTypeInfo | None) -> RowTypeInfo:
    """The type of rows; it raises InvalidProgramError if it does not fit the message."""
    descriptor = message_type.message_class.DESCRIPTOR
    row_type = row_type_of(descriptor) if type_info is None else type_info
    row_reader(descriptor, row_type)
    return row_type


class ProtobufRowDeserializationSchema(DeserializationSchema[Row]):
    """A Protobuf message as a Row.

    `type_info` chooses fields by name; without it a Row has all fields of the message. Raises InvalidProgramError for a
    declared type that does not fit the message, and for a message that contains itself if no type is declared.
    """

    def __init__(self, message_type: ProtobufType, type_info: RowTypeInfo | None = None) -> None:
        self._message_type = message_type
        self._type_info = _row_type(message_type, type_info)

    @cached_property
    def _parse(self) -> Any:
        return self._message_type.message_class.FromString

    @cached_property
    def _read(self) -> Any:
        return row_reader(self._message_type.message_class.DESCRIPTOR, self._type_info)

    @cached_property
    def _decode_error(self) -> Any:
        return protobuf_library("message").DecodeError

    def deserialize(self, message: bytes) -> Row:
        """Return the Row. Raises FileFormatError for bytes that are no such message, or a value that does not fit."""
        try:
            parsed = self._parse(message)
            if not parsed.IsInitialized():
                raise ValueError(
                    f"required fields are missing: {', '.join(parsed.FindInitializationErrors())}"
                )
            row: Row = self._read(parsed)
        except (ValueError, self._decode_error) as error:
            raise FileFormatError(
                f"a message of {len(message)} bytes is no {self._message_type.message_name} of the declared type:"
                f" {error}: {message[:120]!r}"
            ) from error
        return row

    def get_produced_type(self) -> TypeInformation:
        """The type of the rows."""
        return self._type_info

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message_type, self._type_info)


class ProtobufRowSerializationSchema(SerializationSchema[Row]):
    """A Row as a Protobuf message, the same bytes for the same row and library.

    Raises InvalidProgramError as ProtobufRowDeserializationSchema.
    """

    def __init__(self, message_type: ProtobufType, type_info: RowTypeInfo | None = None) -> None:
        self._message_type = message_type
        self._type_info = _row_type(message_type, type_info)

    @cached_property
    def _fill(self) -> Any:
        return row_writer(self._message_type.message_class.DESCRIPTOR, self._type_info)

    def serialize(self, element: Row) -> bytes:
        """Return the message. Raises FileFormatError naming the field of a value that does not fit."""
        message = self._message_type.message_class()
        name = self._message_type.message_name
        try:
            self._fill(message, element)
        except ValueError as error:
            raise FileFormatError(f"{element!r} is no {name}: {error}") from error
        missing = message.FindInitializationErrors()
        if missing:
            raise FileFormatError(f"{element!r} is no {name}: required fields are None: {', '.join(missing)}")
        content: bytes = message.SerializeToString(deterministic=True)
        return content

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message_type, self._type_info)
