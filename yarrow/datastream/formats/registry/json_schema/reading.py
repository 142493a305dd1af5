"""Schemas of JSON messages whose writers' schemas are in a registry, named as those of Avro.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from yarrow.common.serialization import DeserializationSchema, KeepsSchema
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.formats.json_rows import row_decoder, rows_decoder
from yarrow.datastream.formats.registry.chosen_schema import ReaderChoice, registered
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, evolution_of, evolution_of_rows
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument, json_schema_library
from yarrow.datastream.formats.registry.json_schema.messages import JsonMessages
from yarrow.datastream.formats.registry.json_schema.row_schemas import row_type_of_shape
from yarrow.datastream.formats.registry.json_schema.shapes import JsonShape, shape_of_document, shape_of_type
from yarrow.datastream.formats.registry.json_schema.values import dict_reader
from yarrow.datastream.formats.registry.registered_schema import JSON
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject
from yarrow.datastream.formats.values import row_reader
from yarrow.runtime.common.errors import InvalidProgramError

_READER = "ConfluentRegistryJsonDeserializationSchema"


class ConfluentRegistryJsonDeserializationSchema(DeserializationSchema[Any], KeepsSchema):
    """Messages of JSON as records of one schema, whatever schemas their writers had.

    Made by `for_generic` and `for_row_type_info`.
    """

    @staticmethod
    def for_generic(
        schema: str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
        validate: bool = False,
    ) -> ConfluentRegistryJsonDeserializationSchema:
        """Records as dicts with the fields of a JSON Schema. A RegistrySubject is asked for now.

        With `validate` each message must be valid by its writer's schema. Raises InvalidProgramError for settings or a
        schema that cannot be used, SchemaRegistryError if the registry does not give the schema.
        """
        settings = RegistrySettings.of(url, registry_configs)
        chosen = evolution_of(evolution, _READER)
        return ConfluentRegistryJsonDeserializationSchema(
            settings, _choice(settings, schema), None, chosen, validate
        )

    @staticmethod
    def for_row_type_info(
        schema: RowTypeInfo | str | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
        validate: bool = False,
    ) -> ConfluentRegistryJsonDeserializationSchema:
        """Records as Rows, of a declared type or with the fields of a JSON Schema. Absent fields are None.

        Raises as `for_generic`, and InvalidProgramError for a schema that no Row type tells.
        """
        settings = RegistrySettings.of(url, registry_configs)
        chosen = evolution_of_rows(evolution, _READER)
        if isinstance(schema, RowTypeInfo):
            return ConfluentRegistryJsonDeserializationSchema(settings, None, schema, chosen, validate)
        choice = _choice(settings, schema)
        row_type = row_type_of_shape(_shape_of(choice))
        return ConfluentRegistryJsonDeserializationSchema(settings, choice, row_type, chosen, validate)

    def __init__(
        self,
        settings: RegistrySettings,
        choice: ReaderChoice | None,
        row_type: RowTypeInfo | None,
        evolution: SchemaEvolution,
        validates: bool,
    ) -> None:
        json_schema_library()  # a program without it fails where it is built
        self._state = (settings, choice, row_type, evolution, validates)
        self._choice = choice
        self._row_type = row_type
        if row_type is not None:
            row_reader(row_type, missing_is_error=False)  # refuses a type without a form in JSON
        if choice is not None:
            self._shape: JsonShape = _shape_of(choice, validates)
        elif row_type is not None:
            self._shape = shape_of_type(row_type)

    @cached_property
    def _messages(self) -> JsonMessages:
        settings, choice, _, evolution, validates = self._state
        return JsonMessages(settings, self._shape, choice, evolution, validates)

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        if self._row_type is not None:
            return row_decoder(self._row_type, missing_is_error=False)
        read = dict_reader(self._shape, keeps_others=self._state[3] is SchemaEvolution.ADD_COLUMNS)
        decode = msgspec.json.Decoder().decode
        return lambda content: read(decode(content))

    @cached_property
    def _decode_many(self) -> Callable[[Sequence[bytes]], list[Any]]:
        many = None if self._row_type is None else rows_decoder(self._row_type, missing_is_error=False)
        if many is not None:
            return many
        decode = self._decode
        return lambda contents: list(map(decode, contents))

    @property
    def adds_columns(self) -> bool:
        """Whether records get the fields that only their writer's schema has."""
        return self._state[3] is SchemaEvolution.ADD_COLUMNS

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is ConfluentRegistryJsonDeserializationSchema

    def deserialize(self, message: bytes) -> Any:
        """Return the record.

        Raises RegistryMessageError for a message that cannot be read, SchemaRegistryError if the registry does not
        give its schema.
        """
        content = self._messages.json_of(message)
        try:
            return self._decode(content)
        except (ValueError, msgspec.DecodeError) as error:
            raise self._messages.unreadable(message, error) from error

    def deserialize_many(self, messages: Sequence[bytes]) -> list[Any]:
        # A subclass may read single messages in its own way.
        if type(self).deserialize is not ConfluentRegistryJsonDeserializationSchema.deserialize:
            return super().deserialize_many(messages)
        return self._decode_many(self._messages.json_of_all(messages))

    def kept_schema(self) -> KeptSchema | None:
        """The schema by which the job begins to read; None = the program declares a type."""
        return None if self._choice is None else self._choice.kept()

    def with_kept_schema(self, kept: KeptSchema) -> ConfluentRegistryJsonDeserializationSchema:
        """The same, by the schema of a snapshot."""
        settings, _, row_type, evolution, validates = self._state
        choice = ReaderChoice.of_kept(kept)
        if row_type is not None:
            row_type = row_type_of_shape(_shape_of(choice))
        return type(self)(settings, choice, row_type, evolution, validates)

    def get_produced_type(self) -> TypeInformation:
        """The type of the records."""
        return self._row_type or Types.PICKLED_BYTE_ARRAY()

    def __repr__(self) -> str:
        chosen = self._row_type if self._choice is None else self._choice
        return f"{_READER}({chosen}, {self._state[0]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._state


def _shape_of(choice: ReaderChoice, validates: bool = False) -> JsonShape:
    try:
        document = JsonDocument.of(choice.text, dict(choice.referred))
        if validates:
            document.validator()  # messages of this schema could not be validated, so that the program is refused
        return shape_of_document(document)
    except InvalidProgramError as error:
        raise InvalidProgramError(f"{_READER}: {choice}: {error}") from None


def _choice(settings: RegistrySettings, schema: str | RegistrySubject) -> ReaderChoice:
    if isinstance(schema, RegistrySubject):
        return ReaderChoice.of_subject(registered(settings, schema, JSON), schema)
    if isinstance(schema, str):
        return ReaderChoice(schema)
    raise InvalidProgramError(
        f"{_READER}: the text of a JSON Schema, or a RegistrySubject is expected, not {type(schema).__name__}"
    )
