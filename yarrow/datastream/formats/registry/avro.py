"""Schemas of Avro messages whose writers' schemas are in a registry, with the names of Flink's Java classes.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from yarrow.common.serialization import DeserializationSchema, KeepsSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from yarrow.datastream.formats.avro_values import row_reader, row_type_of
from yarrow.datastream.formats.registry.avro_messages import AvroMessages
from yarrow.datastream.formats.registry.chosen_schema import ReaderChoice, registered
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, evolution_of, evolution_of_rows
from yarrow.datastream.formats.registry.registered_schema import AVRO
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.errors import InvalidProgramError

_READER = "ConfluentRegistryAvroDeserializationSchema"


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema[Any], KeepsSchema):
    """Messages of Avro as records of one schema, whatever schemas their writers had.

    Made by `for_generic` and `for_row_type_info`.
    """

    @staticmethod
    def for_generic(
        schema: AvroSchema | str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Records as dicts. A RegistrySubject is asked for now.

        Raises InvalidProgramError for settings or a schema that cannot be used, SchemaRegistryError if the registry
        does not give the schema.
        """
        settings = RegistrySettings.of(url, registry_configs)
        return ConfluentRegistryAvroDeserializationSchema(
            settings, _choice(settings, schema), evolution_of(evolution, _READER), False
        )

    @staticmethod
    def for_row_type_info(
        schema: AvroSchema | str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Records as Rows with the fields of the schema. Raises as `for_generic`."""
        settings = RegistrySettings.of(url, registry_configs)
        chosen = evolution_of_rows(evolution, _READER)
        return ConfluentRegistryAvroDeserializationSchema(settings, _choice(settings, schema), chosen, True)

    def __init__(
        self, settings: RegistrySettings, choice: ReaderChoice, evolution: SchemaEvolution, makes_rows: bool
    ) -> None:
        self._state = (settings, choice, evolution, makes_rows)
        self._choice = choice
        self._schema = AvroSchema.parse_string(choice.text)
        if self._schema.root.kind != "record":
            raise InvalidProgramError(
                f"{_READER}: a schema of a record is expected, not of {self._schema.root.kind}"
            )
        self._type = row_type_of(self._schema.root) if makes_rows else GenericRecordAvroTypeInfo(self._schema)

    @property
    def schema(self) -> AvroSchema:
        """The schema of the reader."""
        return self._schema

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        settings, _, evolution, makes_rows = self._state
        read = AvroMessages(settings, self._schema, evolution).read
        if not makes_rows:
            return read
        row = row_reader(self._schema.root)
        return lambda message: row(read(message))

    @property
    def adds_columns(self) -> bool:
        """Whether records get the fields that only their writer's schema has."""
        return self._state[2] is SchemaEvolution.ADD_COLUMNS

    def deserialize(self, message: bytes) -> Any:
        """Return the record.

        Raises RegistryMessageError for a message that cannot be read, SchemaRegistryError if the registry does not
        give its schema.
        """
        return self._read(message)

    def kept_schema(self) -> KeptSchema:
        """The schema by which the job begins to read."""
        return self._choice.kept()

    def with_kept_schema(self, kept: KeptSchema) -> ConfluentRegistryAvroDeserializationSchema:
        """The same, by the schema of a snapshot."""
        settings, _, evolution, makes_rows = self._state
        choice = ReaderChoice.of_kept(kept)
        return type(self)(settings, choice, evolution, makes_rows)

    def get_produced_type(self) -> TypeInformation:
        """The type of the records."""
        return self._type

    def __repr__(self) -> str:
        return f"{_READER}({self._schema.root.name}, {self._choice}, {self._state[0]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._state


def _choice(settings: RegistrySettings, schema: AvroSchema | str | RegistrySubject) -> ReaderChoice:
    if isinstance(schema, RegistrySubject):
        found = registered(settings, schema, AVRO)
        return ReaderChoice.of_subject(found, schema, WriterSchemas.avro_text(found))
    if isinstance(schema, AvroSchema | str):
        return ReaderChoice(schema.text if isinstance(schema, AvroSchema) else schema)
    raise InvalidProgramError(
        f"{_READER}: an AvroSchema, its JSON, or a RegistrySubject is expected, not {type(schema).__name__}"
    )
