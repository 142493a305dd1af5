"""ConfluentRegistryAvroSerializationSchema: rows as Avro messages whose schema is in a registry, by Flink's name.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for or registered. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from yarrow.datastream.formats.avro_files import message_writer
from yarrow.datastream.formats.avro_schema import AvroSchema
from yarrow.datastream.formats.avro_values import AvroValueError, writer_values
from yarrow.datastream.formats.registry.avro_evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.chosen_schema import referring, registered_with_its_references
from yarrow.datastream.formats.registry.errors import RegistryMessageError
from yarrow.datastream.formats.registry.registered_schema import AVRO, RegisteredSchema, SchemaReference
from yarrow.datastream.formats.registry.registration import SchemaRegistration
from yarrow.datastream.formats.registry.registry_serializer import RegistrySerializationSchema, part_of_key
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject, SubjectNameStrategy, writers_subject
from yarrow.datastream.formats.registry.wire_format import head_of
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.errors import InvalidProgramError

_WRITER: Final = "ConfluentRegistryAvroSerializationSchema"


class ConfluentRegistryAvroSerializationSchema(RegistrySerializationSchema):
    """Dicts and Rows as messages of one record schema; made by `for_generic`."""

    @staticmethod
    def for_generic(
        subject: str | SubjectNameStrategy,
        schema: AvroSchema | str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        registration: str | SchemaRegistration = SchemaRegistration.REGISTER,
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Write by a schema, which the workers register under a subject.

        `registration`: "register", "lookup" for a schema that must be there already, or "latest" for the latest version
        of the subject. A RegistrySubject, and the `references` of a schema, are asked for now.

        Raises InvalidProgramError for settings or a schema that cannot be used, SchemaRegistryError if the registry
        does not give a schema.
        """
        settings = RegistrySettings.of(url, registry_configs)
        return ConfluentRegistryAvroSerializationSchema(
            settings,
            writers_subject(_WRITER, subject),
            SchemaRegistration.of(_WRITER, registration),
            _chosen(settings, schema, references),
        )

    def __init__(
        self,
        settings: RegistrySettings,
        subject: str | SubjectNameStrategy,
        registration: SchemaRegistration,
        schema: RegisteredSchema,
    ) -> None:
        super().__init__(settings, subject, registration, schema)
        root = self.schema.root
        if root.kind != "record":
            raise InvalidProgramError(f"{_WRITER}: a schema of a record is expected, not of {root.kind}")

    @cached_property
    def schema(self) -> AvroSchema:
        """The schema of the program, with the types that it refers to."""
        return _parsed(self._written)

    @property
    def record_name(self) -> str:
        """The full name of the record."""
        return self.schema.root.name

    def fault(self, written: RegisteredSchema, declared: RegisteredSchema) -> str | None:
        """Return why Avro's rules refuse to read records of the first schema by the second."""
        return fault_of(_parsed(written).root, _parsed(declared).root)

    def message_writer(self, schema: RegisteredSchema, is_key: bool) -> Callable[[Any], bytes]:
        """Return the function from a row to a message. It raises RegistryMessageError for a row that does not fit.

        A key takes its fields from dicts and from Rows with names, whatever else they have.
        """
        chosen = _parsed(schema)
        if self._registration is SchemaRegistration.LATEST:
            own, latest = self.schema.root, chosen.root
            self._check_latest(schema, fault_of(own, latest), new_fields(own, latest))
        assert schema.schema_id is not None
        schema_id, name = schema.schema_id, f"{chosen.root.name}, {schema}"
        values, written = writer_values(chosen.root), message_writer(chosen, head_of(schema_id))
        names = frozenset(field for field, _ in chosen.root.fields)

        def write(row: Any) -> bytes:
            try:
                record = values(part_of_key(row, names) if is_key else row)
            except AvroValueError as error:
                raise RegistryMessageError(f"{row!r} is no record of {name}: {error}", schema_id) from error
            return written(record)

        return write


def _parsed(schema: RegisteredSchema) -> AvroSchema:
    return AvroSchema.parse_string(WriterSchemas.avro_text(schema))


def _chosen(
    settings: RegistrySettings,
    schema: AvroSchema | str | RegistrySubject,
    references: Sequence[SchemaReference],
) -> RegisteredSchema:
    if isinstance(schema, RegistrySubject):
        return registered_with_its_references(settings, schema, AVRO, _WRITER, references)
    if isinstance(schema, AvroSchema | str):
        text = schema.text if isinstance(schema, AvroSchema) else schema
        return referring(settings, RegisteredSchema(AVRO, text), _WRITER, references)
    raise InvalidProgramError(
        f"{_WRITER}: an AvroSchema, its JSON, or a RegistrySubject is expected, not {type(schema).__name__}"
    )
