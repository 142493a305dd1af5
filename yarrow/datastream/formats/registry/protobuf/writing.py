"""ConfluentRegistryProtobufSerializationSchema: rows as Protobuf messages whose schema is in a registry.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for or registered. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.protobuf.message_type import ProtobufType
from yarrow.datastream.formats.protobuf.messages import ProtobufRowSerializationSchema
from yarrow.datastream.formats.registry.chosen_schema import referring, registered_with_its_references
from yarrow.datastream.formats.registry.errors import RegistryMessageError, SchemaRegistryError
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema, require_compiler
from yarrow.datastream.formats.registry.protobuf.descriptors import (
    encoded_file,
    file_of,
    indexes_in,
    needed_references,
)
from yarrow.datastream.formats.registry.protobuf.evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.protobuf.message_indexes import FIRST, encoded
from yarrow.datastream.formats.registry.registered_schema import PROTOBUF, RegisteredSchema, SchemaReference
from yarrow.datastream.formats.registry.registration import SchemaRegistration
from yarrow.datastream.formats.registry.registry_serializer import RegistrySerializationSchema, part_of_key
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject, SubjectNameStrategy, writers_subject
from yarrow.datastream.formats.registry.wire_format import head_of
from yarrow.runtime.common.errors import InvalidProgramError

_WRITER: Final = "ConfluentRegistryProtobufSerializationSchema"


class ConfluentRegistryProtobufSerializationSchema(RegistrySerializationSchema):
    """Rows and dicts as messages of one type; made by `for_row_type_info`."""

    @staticmethod
    def for_row_type_info(
        subject: str | SubjectNameStrategy,
        schema: ProtobufType | str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        message: str | None = None,
        type_info: RowTypeInfo | None = None,
        references: Sequence[SchemaReference] = (),
        registration: str | SchemaRegistration = SchemaRegistration.REGISTER,
    ) -> ConfluentRegistryProtobufSerializationSchema:
        """Write by a message type, whose file the workers register under a subject.

        `schema` may be the text of a .proto file: then `message` is the full name of the message, by default that of
        the first one. `type_info` chooses fields of the rows. `registration` is that of
        ConfluentRegistryAvroSerializationSchema. A RegistrySubject, and the `references` of a schema, are asked for
        now. The files that a schema imports must be references, but those of google/protobuf and KNOWN_FILES.

        Raises InvalidProgramError for settings or a schema that cannot be used, SchemaRegistryError if the registry
        does not give a schema. Raises UnsupportedFeatureError without the packages that this needs.
        """
        settings = RegistrySettings.of(url, registry_configs)
        require_compiler()
        found = _chosen(settings, schema, references)
        return ConfluentRegistryProtobufSerializationSchema(
            settings,
            writers_subject(_WRITER, subject),
            SchemaRegistration.of(_WRITER, registration),
            found,
            schema if isinstance(schema, ProtobufType) else _message_type(found, message),
            type_info,
        )

    def __init__(
        self,
        settings: RegistrySettings,
        subject: str | SubjectNameStrategy,
        registration: SchemaRegistration,
        schema: RegisteredSchema,
        message_type: ProtobufType,
        type_info: RowTypeInfo | None,
    ) -> None:
        super().__init__(settings, subject, registration, schema)
        self._message_type = message_type
        self._type_info = type_info
        self._rows = ProtobufRowSerializationSchema(message_type, type_info)

    @property
    def record_name(self) -> str:
        """The full name of the message."""
        return self._message_type.message_name

    def fault(self, written: RegisteredSchema, declared: RegisteredSchema) -> str | None:
        """Return why Protobuf's rules refuse to read the message of the first schema by the second."""
        theirs, ours = (self._descriptor_in(schema) for schema in (written, declared))
        return fault_of(theirs, ours)

    def _descriptor_in(self, schema: RegisteredSchema) -> Any:
        return _message_type(schema, self.record_name).message_class.DESCRIPTOR

    def message_writer(self, schema: RegisteredSchema, is_key: bool) -> Callable[[Any], bytes]:
        """Return the function from a row to a message. It raises RegistryMessageError for a row that does not fit.

        A key takes its fields from dicts and from Rows with names, whatever else they have.
        """
        assert schema.schema_id is not None
        schema_id = schema.schema_id
        head = head_of(schema_id) + encoded(self._indexes(schema))
        serialize = self._rows.serialize
        names = [field.name for field in self._message_type.message_class.DESCRIPTOR.fields]
        if self._type_info is not None:
            names = list(self._type_info.get_field_names())

        def write(row: Any) -> bytes:
            try:
                return head + serialize(part_of_key(row, names) if is_key else row)
            except FileFormatError as error:
                raise RegistryMessageError(f"{error} ({schema})", schema_id) from error

        return write

    def _indexes(self, schema: RegisteredSchema) -> tuple[int, ...]:
        """The path of the message in a schema's file. Raises SchemaRegistryError if the latest version does not fit."""
        if self._registration is not SchemaRegistration.LATEST:
            return indexes_in(file_of(self._message_type), self.record_name)
        try:
            latest = _compiled(schema)
            indexes = latest.indexes_of(self.record_name)
            theirs = latest.message(indexes).message_class.DESCRIPTOR
        except InvalidProgramError as error:
            raise SchemaRegistryError(
                f"version {schema.version} of the subject {schema.subject!r}, which is its latest, cannot be used:"
                f" {error}"
            ) from None
        # What the latest version can read may be written by the program's: the rules see to that.
        ours = self._message_type.message_class.DESCRIPTOR
        self._check_latest(schema, fault_of(ours, theirs), new_fields(ours, theirs))
        return indexes

    def __reduce__(self) -> tuple[Any, ...]:
        made, arguments = super().__reduce__()
        return made, (*arguments, self._message_type, self._type_info)


def _compiled(schema: RegisteredSchema) -> CompiledSchema:
    return CompiledSchema.of(schema.text, dict(schema.referred))


def _message_type(schema: RegisteredSchema, message: str | None) -> ProtobufType:
    """The message of this full name, or the first one."""
    compiled = _compiled(schema)
    return compiled.message(FIRST if message is None else compiled.indexes_of(message))


def _chosen(
    settings: RegistrySettings,
    schema: ProtobufType | str | RegistrySubject,
    references: Sequence[SchemaReference],
) -> RegisteredSchema:
    if isinstance(schema, RegistrySubject):
        return registered_with_its_references(settings, schema, PROTOBUF, _WRITER, references)
    if isinstance(schema, ProtobufType):
        file = file_of(schema)
        missing = set(needed_references(file)) - {reference.name for reference in references}
        if missing:
            raise InvalidProgramError(
                f"{_WRITER}: the file of {schema.message_name} imports {', '.join(sorted(missing))}; register these"
                " files, and give references=[SchemaReference(name of the import, subject, version)]"
            )
        return referring(settings, RegisteredSchema(PROTOBUF, encoded_file(file)), _WRITER, references)
    if isinstance(schema, str):
        return referring(settings, RegisteredSchema(PROTOBUF, schema), _WRITER, references)
    raise InvalidProgramError(
        f"{_WRITER}: a ProtobufType, the text of a .proto file, or a RegistrySubject is expected, not"
        f" {type(schema).__name__}"
    )
