"""AvroMessages: records of messages whose writers' schemas are in a registry, read by one schema of the reader.

Owner: the task's thread. The reader asks for a writer's schema once, when the first message has its id. It applies
Avro's rules then, and makes one function for all messages of that schema. It makes the registry's client on first
use.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from yarrow.datastream.formats.avro_resolution import ReaderSchema
from yarrow.datastream.formats.avro_schema import AvroSchema, avro_library
from yarrow.datastream.formats.registry.avro_columns import with_columns
from yarrow.datastream.formats.registry.avro_evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.errors import RegistryMessageError
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, unknown_field
from yarrow.datastream.formats.registry.registered_schema import AVRO
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.wire_format import HEAD_BYTES
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.errors import InvalidProgramError

Read = Callable[[bytes], Any]


class AvroMessages:
    """Reads messages by the schema of one reader."""

    def __init__(self, settings: RegistrySettings, reader: AvroSchema, evolution: SchemaEvolution) -> None:
        self._reader = reader
        self._evolution = evolution
        self._declared = ReaderSchema(reader)
        self._writers = WriterSchemas(settings)
        #: Head of messages -> the function that reads those with this head.
        self._by_head: dict[bytes, Read] = {}

    def read(self, message: bytes) -> Any:
        """Return the record. Raises RegistryMessageError, and SchemaRegistryError if the registry cannot be asked."""
        read = self._by_head.get(message[:HEAD_BYTES])
        return read(message) if read is not None else self._first(message)

    def _first(self, message: bytes) -> Any:
        """Read the first message of a schema."""
        schema_id = self._writers.id_of(message)
        read = self._reader_of(schema_id)
        self._by_head[bytes(message[:HEAD_BYTES])] = read
        return read(message)

    def _reader_of(self, schema_id: int) -> Read:
        schema = self._writers.schema(schema_id, AVRO)
        try:
            written = AvroSchema.parse_string(self._writers.avro_text(schema))
        except InvalidProgramError as error:
            return self._refusing(schema_id, str(error))
        if written.text == self._reader.text:
            return self._resolved(schema_id, written, None)
        if (fault := fault_of(written.root, self._reader.root)) is not None:
            return self._refusing(schema_id, fault)
        declared = self._declared
        if self._evolution is not SchemaEvolution.KEEP_KNOWN and (
            added := new_fields(written.root, self._reader.root)
        ):
            if self._evolution is SchemaEvolution.FAIL:
                return self._refusing(schema_id, unknown_field(added[0]))
            try:
                declared = ReaderSchema(with_columns(self._reader, written))
            except InvalidProgramError as error:
                return self._refusing(schema_id, str(error))
        return self._resolved(schema_id, written, declared)

    def _refusing(self, schema_id: int, fault: str) -> Read:
        """The function for messages none of which can be read."""
        text = (
            f"a message of {self._writers.shown(schema_id)} cannot be read by the reader's schema"
            f" {self._reader.root.name or self._reader.root.kind}: {fault}"
        )

        def refuse(message: bytes) -> Any:
            raise RegistryMessageError(text, schema_id)

        return refuse

    def _resolved(self, schema_id: int, written: AvroSchema, declared: ReaderSchema | None) -> Read:
        read_record, writer = avro_library().schemaless_reader, written.parsed
        reader = None if declared is None else declared.parsed
        name = written.root.name or written.root.kind
        finish: Callable[[Any], Any] | None = None
        if declared is not None and declared.has_mutable:
            finish = declared.finished_record

        def read(message: bytes) -> Any:
            stream = io.BytesIO(message)
            stream.seek(HEAD_BYTES)
            try:
                record = read_record(stream, writer, reader)
            except Exception as error:  # the message is data: its damage shows in any way
                raise RegistryMessageError(
                    f"a message of {len(message)} bytes is no record of {name}, {self._writers.shown(schema_id)}:"
                    f" {type(error).__name__}: {error}",
                    schema_id,
                ) from error
            if stream.tell() != len(message):
                raise RegistryMessageError(
                    f"a message of {len(message)} bytes has {len(message) - stream.tell()} bytes behind its record of"
                    f" {self._writers.shown(schema_id)}",
                    schema_id,
                )
            return record if finish is None else finish(record)

        return read
