"""Schemas of Protobuf messages whose writers' schemas are in a registry, named as those of Avro.

Owner: the client for building, the task's thread for messages. The client of the registry is loaded where a schema is
asked for. Must not ask a registry when a program is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from yarrow.common.serialization import DeserializationSchema, KeepsSchema
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.formats.protobuf.message_type import ProtobufType
from yarrow.datastream.formats.protobuf.messages import ProtobufRowDeserializationSchema
from yarrow.datastream.formats.registry.chosen_schema import ReaderChoice, registered
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, evolution_of, evolution_of_rows
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema, require_compiler
from yarrow.datastream.formats.registry.protobuf.message_indexes import FIRST
from yarrow.datastream.formats.registry.protobuf.messages import ProtobufMessages
from yarrow.datastream.formats.registry.registered_schema import PROTOBUF
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject
from yarrow.runtime.common.errors import InvalidProgramError

_READER = "ConfluentRegistryProtobufDeserializationSchema"


class ConfluentRegistryProtobufDeserializationSchema(DeserializationSchema[Any], KeepsSchema):
    """Messages of Protobuf as records of one message type, whatever schemas their writers had.

    Made by `for_generic` and `for_row_type_info`.
    """

    @staticmethod
    def for_generic(
        message_type: ProtobufType | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
    ) -> ConfluentRegistryProtobufDeserializationSchema:
        """Records as dicts with the fields of a message. Of a RegistrySubject it is the first one, asked for now.

        Raises InvalidProgramError for settings or a message that cannot be used, SchemaRegistryError if the registry
        does not give the schema. Raises UnsupportedFeatureError without the packages that this needs.
        """
        settings = RegistrySettings.of(url, registry_configs)
        chosen = evolution_of(evolution, _READER)
        found, choice = _type(settings, message_type)
        return ConfluentRegistryProtobufDeserializationSchema(settings, found, None, chosen, True, choice)

    @staticmethod
    def for_row_type_info(
        message_type: ProtobufType | RegistrySubject,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        *,
        type_info: RowTypeInfo | None = None,
        evolution: str | SchemaEvolution = SchemaEvolution.KEEP_KNOWN,
    ) -> ConfluentRegistryProtobufDeserializationSchema:
        """Records as Rows: with all fields of the message, or with those of `type_info`. Raises as `for_generic`."""
        settings = RegistrySettings.of(url, registry_configs)
        chosen = evolution_of_rows(evolution, _READER)
        found, choice = _type(settings, message_type)
        return ConfluentRegistryProtobufDeserializationSchema(
            settings, found, type_info, chosen, False, choice
        )

    def __init__(
        self,
        settings: RegistrySettings,
        message_type: ProtobufType,
        type_info: RowTypeInfo | None,
        evolution: SchemaEvolution,
        makes_dicts: bool,
        choice: ReaderChoice | None,
    ) -> None:
        require_compiler()  # a worker without it fails here, and not message by message
        self._state = (settings, message_type, type_info, evolution, makes_dicts, choice)
        self._rows = ProtobufRowDeserializationSchema(message_type, type_info)

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        settings, message_type, _, evolution, makes_dicts, _ = self._state
        return ProtobufMessages(settings, message_type, self._rows, evolution, makes_dicts).read

    @property
    def adds_columns(self) -> bool:
        """Whether records get the fields that only their writer's schema has."""
        return self._state[3] is SchemaEvolution.ADD_COLUMNS

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is ConfluentRegistryProtobufDeserializationSchema

    def deserialize(self, message: bytes) -> Any:
        """Return the record.

        Raises RegistryMessageError for a message that cannot be read, SchemaRegistryError if the registry does not
        give its schema.
        """
        return self._read(message)

    def deserialize_many(self, messages: Sequence[bytes]) -> list[Any]:
        # A subclass may read single messages in its own way.
        if type(self).deserialize is not ConfluentRegistryProtobufDeserializationSchema.deserialize:
            return super().deserialize_many(messages)
        return list(map(self._read, messages))

    def kept_schema(self) -> KeptSchema | None:
        """The schema by which the job begins to read; None = the program declares a message type."""
        choice = self._state[5]
        return None if choice is None else choice.kept()

    def with_kept_schema(self, kept: KeptSchema) -> ConfluentRegistryProtobufDeserializationSchema:
        """The same, by the schema of a snapshot."""
        settings, _, type_info, evolution, makes_dicts, _ = self._state
        choice = ReaderChoice.of_kept(kept)
        return type(self)(settings, _first_message(choice), type_info, evolution, makes_dicts, choice)

    def get_produced_type(self) -> TypeInformation:
        """The type of the records."""
        return Types.PICKLED_BYTE_ARRAY() if self._state[4] else self._rows.get_produced_type()

    def __repr__(self) -> str:
        return f"{_READER}({self._state[1].message_name}, {self._state[0]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._state


def _type(
    settings: RegistrySettings, given: ProtobufType | RegistrySubject
) -> tuple[ProtobufType, ReaderChoice | None]:
    """The message of the reader, and the schema that the program has asked for."""
    if isinstance(given, ProtobufType):
        return given, None
    if not isinstance(given, RegistrySubject):
        raise InvalidProgramError(
            f"{_READER}: a ProtobufType or a RegistrySubject is expected, not {type(given).__name__}"
        )
    choice = ReaderChoice.of_subject(registered(settings, given, PROTOBUF), given)
    return _first_message(choice), choice


def _first_message(choice: ReaderChoice) -> ProtobufType:
    try:
        return CompiledSchema.of(choice.text, dict(choice.referred)).message(FIRST)
    except InvalidProgramError as error:
        raise InvalidProgramError(f"{_READER}: {choice}: {error}") from None
