"""ProtobufMessages: messages whose writers' schemas are in a registry, read by one message type of the reader.

Owner: the task's thread. The first message with an id and message indexes makes the reader ask for its writer's
schema, compile it, and compare the two types, once. The library of Protobuf then reads further messages by the
reader's type. The registry's client is made on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from yarrow.common.serialization import DeserializationSchema
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.protobuf.fields import row_type_of
from yarrow.datastream.formats.protobuf.message_type import ProtobufType
from yarrow.datastream.formats.protobuf.messages import ProtobufRowDeserializationSchema
from yarrow.datastream.formats.registry.errors import RegistryMessageError
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, unknown_field
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.datastream.formats.registry.protobuf.evolution import fault_of, new_fields, own_fields
from yarrow.datastream.formats.registry.protobuf.message_indexes import indexes_at
from yarrow.datastream.formats.registry.registered_schema import PROTOBUF
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.wire_format import HEAD_BYTES, schema_id_of
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.errors import InvalidProgramError

Read = Callable[[bytes], Any]
#: Bytes of a head whose message is the first one of its file, as nearly all are.
_USUAL_HEAD_BYTES = HEAD_BYTES + 1


class _Head(NamedTuple):
    schema_id: int
    indexes: tuple[int, ...]
    size_bytes: int


class ProtobufMessages:
    """Reads messages by the type of one reader, as the rows of `rows` or as dicts."""

    def __init__(
        self,
        settings: RegistrySettings,
        reader: ProtobufType,
        rows: DeserializationSchema[Row],
        evolution: SchemaEvolution,
        makes_dicts: bool,
    ) -> None:
        self._reader = reader
        self._rows = rows
        self._evolution = evolution
        self._makes_dicts = makes_dicts
        self._writers = WriterSchemas(settings)
        self._compiled: dict[int, CompiledSchema | str] = {}
        #: Head of messages -> the function that reads those with this head.
        self._by_head: dict[bytes, Read] = {}

    def read(self, message: bytes) -> Any:
        """Return the record. Raises RegistryMessageError, and SchemaRegistryError if the registry cannot be asked."""
        read = self._by_head.get(message[:_USUAL_HEAD_BYTES])
        return read(message) if read is not None else self._other(message)

    def _other(self, message: bytes) -> Any:
        """Read a message with a longer head, or the first one with its head."""
        head = _head_of(message)
        key = bytes(message[: head.size_bytes])
        read = self._by_head.get(key)
        if read is None:
            # A longer head is never the beginning of a usual one, whose last byte is the only zero there.
            read = self._by_head[key] = self._reader_of(head)
        return read(message)

    # ------------------------------------------------------------------ schemas of writers

    def _reader_of(self, head: _Head) -> Read:
        schema = self._schema(head.schema_id)
        if isinstance(schema, str):
            return self._refusing(head.schema_id, schema)
        try:
            written = schema.message(head.indexes)
        except InvalidProgramError as error:
            return self._refusing(head.schema_id, str(error))
        theirs, ours = written.message_class.DESCRIPTOR, self._reader.message_class.DESCRIPTOR
        if (fault := fault_of(theirs, ours)) is not None:
            return self._refusing(head.schema_id, fault)
        if self._evolution is SchemaEvolution.FAIL and (added := new_fields(theirs, ours)):
            return self._refusing(head.schema_id, unknown_field(added[0]))
        adds = self._evolution is SchemaEvolution.ADD_COLUMNS and bool(own_fields(theirs, ours))
        try:
            further = added_fields(written, own_fields(theirs, ours)) if adds else None
        except InvalidProgramError as error:
            return self._refusing(head.schema_id, str(error))
        return self._reading(head, further)

    def _schema(self, schema_id: int) -> CompiledSchema | str:
        """The schema of an id, or why it cannot be used. A compiler runs, so it is kept for all its messages."""
        known = self._compiled.get(schema_id)
        if known is None:
            found = self._writers.schema(schema_id, PROTOBUF)
            try:
                known = CompiledSchema.of(found.text, dict(found.referred))
            except InvalidProgramError as error:
                known = str(error)
            self._compiled[schema_id] = known
        return known

    def _refusing(self, schema_id: int, fault: str) -> Read:
        """The function for messages none of which can be read."""
        text = (
            f"a message of {self._writers.shown(schema_id)} cannot be read by the reader's message"
            f" {self._reader.message_name}: {fault}"
        )

        def refuse(message: bytes) -> Any:
            raise RegistryMessageError(text, schema_id)

        return refuse

    def _reading(self, head: _Head, added: ProtobufRowDeserializationSchema | None) -> Read:
        start, schema_id = head.size_bytes, head.schema_id
        deserialize, makes_dicts = self._rows.deserialize, self._makes_dicts

        def read(message: bytes) -> Any:
            content = message[start:]
            try:
                row = deserialize(content)
                if not makes_dicts:
                    return row
                record = row.as_dict(recursive=True)
                return (
                    record if added is None else record | added.deserialize(content).as_dict(recursive=True)
                )
            except FileFormatError as error:
                raise RegistryMessageError(
                    f"a message of {self._writers.shown(schema_id)} cannot be read: {error}", schema_id
                ) from error

        return read


def _head_of(message: bytes) -> _Head:
    schema_id = schema_id_of(message)
    try:
        indexes, end = indexes_at(message, HEAD_BYTES)
    except ValueError as error:
        raise RegistryMessageError(
            f"a message of {len(message)} bytes has no message indexes behind the id of its schema: {error}:"
            f" {bytes(message[:20])!r}. Its writer must be one for Protobuf",
            schema_id,
        ) from None
    return _Head(schema_id, indexes, end)


def added_fields(written: ProtobufType, names: list[str]) -> ProtobufRowDeserializationSchema:
    """Return what reads the fields that only the writer's message has.

    Raises InvalidProgramError, which names the field, for one whose messages contain themselves.
    """
    descriptor = written.message_class.DESCRIPTOR
    for name in names:
        try:
            row_type_of(descriptor, only=[name])
        except InvalidProgramError:
            kind = descriptor.fields_by_name[name].message_type.full_name
            raise InvalidProgramError(
                f"field {name!r} cannot be added to the records: a message {kind} may contain itself, and records"
                ' cannot; take evolution="keep"'
            ) from None
    return ProtobufRowDeserializationSchema(written, row_type_of(descriptor, only=names))
