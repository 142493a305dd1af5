"""ConfluentRegistryJsonSerializationSchema: rows as JSON messages whose schema is in a registry, named as that of Avro.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for or registered. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.datastream.formats.registry.chosen_schema import referring, registered_with_its_references
from yarrow.datastream.formats.registry.errors import RegistryMessageError
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument, problem_of
from yarrow.datastream.formats.registry.json_schema.evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.json_schema.row_schemas import schema_of_row_type
from yarrow.datastream.formats.registry.json_schema.shapes import shape_of_document
from yarrow.datastream.formats.registry.json_schema.values import value_writer
from yarrow.datastream.formats.registry.registered_schema import JSON, RegisteredSchema, SchemaReference
from yarrow.datastream.formats.registry.registration import SchemaRegistration
from yarrow.datastream.formats.registry.registry_serializer import RegistrySerializationSchema, part_of_key
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject, SubjectNameStrategy, writers_subject
from yarrow.datastream.formats.registry.wire_format import head_of
from yarrow.runtime.common.errors import InvalidProgramError

_WRITER: Final = "ConfluentRegistryJsonSerializationSchema"


class ConfluentRegistryJsonSerializationSchema(RegistrySerializationSchema):
    """Dicts and Rows as JSON of one schema; made by `for_generic` and `for_row_type_info`."""

    @staticmethod
    def for_generic(
        subject: str | SubjectNameStrategy,
        schema: str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        registration: str | SchemaRegistration = SchemaRegistration.REGISTER,
        validate: bool = True,
    ) -> ConfluentRegistryJsonSerializationSchema:
        """Write by a JSON Schema, which the workers register under a subject.

        `registration` is that of ConfluentRegistryAvroSerializationSchema. Without `validate` a row is written without
        a look at the types of its values. A RegistrySubject, and the `references` of a schema, are asked for now.

        Raises InvalidProgramError for settings or a schema that cannot be used, SchemaRegistryError if the registry
        does not give a schema.
        """
        settings = RegistrySettings.of(url, registry_configs)
        return ConfluentRegistryJsonSerializationSchema(
            settings,
            writers_subject(_WRITER, subject),
            SchemaRegistration.of(_WRITER, registration),
            _chosen(settings, schema, references),
            validate,
        )

    @staticmethod
    def for_row_type_info(
        subject: str | SubjectNameStrategy,
        type_info: RowTypeInfo,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        registration: str | SchemaRegistration = SchemaRegistration.REGISTER,
        validate: bool = True,
    ) -> ConfluentRegistryJsonSerializationSchema:
        """Write by the JSON Schema of a Row type, each of whose fields may be null.

        `title` is the name of the record, of which subjects may be made. Raises as `for_generic`, and
        InvalidProgramError for a type that has no form in JSON.
        """
        settings = RegistrySettings.of(url, registry_configs)
        text = msgspec.json.encode(schema_of_row_type(type_info, title)).decode()
        return ConfluentRegistryJsonSerializationSchema(
            settings,
            writers_subject(_WRITER, subject),
            SchemaRegistration.of(_WRITER, registration),
            RegisteredSchema(JSON, text),
            validate,
        )

    def __init__(
        self,
        settings: RegistrySettings,
        subject: str | SubjectNameStrategy,
        registration: SchemaRegistration,
        schema: RegisteredSchema,
        validates: bool,
    ) -> None:
        super().__init__(settings, subject, registration, schema)
        self._validates = validates
        shape_of_document(self._document)  # a program whose schema cannot be used fails where it is built
        if validates:
            self._document.validator()
        is_named = isinstance(subject, str) or subject is SubjectNameStrategy.TOPIC_NAME
        if not self.record_name and not is_named:
            raise InvalidProgramError(
                f"{_WRITER}: {subject} needs the name of the record; give the schema a title"
            )

    @cached_property
    def _document(self) -> JsonDocument:
        """The schema of the program, with those that it refers to."""
        return _parsed(self._written)

    @property
    def record_name(self) -> str:
        """The title of the schema, or an empty text."""
        root = self._document.root
        return str(root.get("title", "")) if isinstance(root, dict) else ""

    def fault(self, written: RegisteredSchema, declared: RegisteredSchema) -> str | None:
        """Return why Avro's rules, carried over, refuse to read messages of the first schema by the second."""
        if (written.text, written.referred) == (declared.text, declared.referred):
            return None
        return fault_of(shape_of_document(_parsed(written)), shape_of_document(_parsed(declared)))

    def message_writer(self, schema: RegisteredSchema, is_key: bool) -> Callable[[Any], bytes]:
        """Return the function from a row to a message. It raises RegistryMessageError for a row that does not fit.

        A key takes its fields from dicts and from Rows with names, whatever else they have.
        """
        document = _parsed(schema)
        shape = shape_of_document(document)
        if self._registration is SchemaRegistration.LATEST:
            own = shape_of_document(self._document)
            self._check_latest(schema, fault_of(own, shape), new_fields(own, shape))
        assert schema.schema_id is not None
        schema_id, head = schema.schema_id, head_of(schema.schema_id)
        value_of = value_writer(shape)
        validator = document.validator() if self._validates else None
        is_valid = (lambda value: True) if validator is None else validator.is_valid
        encode = msgspec.json.Encoder().encode

        def write(row: Any) -> bytes:
            try:
                value = value_of(part_of_key(row, shape.properties) if is_key else row)
                if is_valid(value):
                    return head + encode(value)
                problem = problem_of(validator, value)
            except (TypeError, ValueError) as error:
                problem = str(error)
            raise RegistryMessageError(f"{row!r} is no JSON of {schema}: {problem}", schema_id)

        return write

    def __reduce__(self) -> tuple[Any, ...]:
        made, arguments = super().__reduce__()
        return made, (*arguments, self._validates)


def _parsed(schema: RegisteredSchema) -> JsonDocument:
    return JsonDocument.of(schema.text, dict(schema.referred))


def _chosen(
    settings: RegistrySettings, schema: str | RegistrySubject, references: Sequence[SchemaReference]
) -> RegisteredSchema:
    if isinstance(schema, RegistrySubject):
        return registered_with_its_references(settings, schema, JSON, _WRITER, references)
    if isinstance(schema, str):
        return referring(settings, RegisteredSchema(JSON, schema), _WRITER, references)
    raise InvalidProgramError(
        f"{_WRITER}: the text of a JSON Schema, or a RegistrySubject is expected, not {type(schema).__name__}"
    )
