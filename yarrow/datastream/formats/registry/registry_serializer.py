"""RegistrySerializationSchema: rows as messages that begin with the id of a schema in a registry, in any form.

Owner: the client for building, the task's thread for messages. A schema gets its id once for each subject: where the
sink opens on a worker, or at the first row of a topic. A subclass knows one form of messages. Must not ask a registry
when a program is unpickled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from yarrow.common.serialization import TopicSerializationSchema
from yarrow.common.types import Row, own_names
from yarrow.datastream.formats.registry.errors import SchemaRegistryError
from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema
from yarrow.datastream.formats.registry.registration import SchemaRegistration, schema_to_write
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import SubjectNameStrategy
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    from yarrow.datastream.formats.registry.client import RegistryClient

Write = Callable[[Any], bytes | None]


class RegistrySerializationSchema(TopicSerializationSchema[Any]):
    """Turns rows into messages of one schema, each with the head of its id. A row of None is a tombstone."""

    def __init__(
        self,
        settings: RegistrySettings,
        subject: str | SubjectNameStrategy,
        registration: SchemaRegistration,
        schema: RegisteredSchema,
    ) -> None:
        self._settings = settings
        self._subject = subject
        self._registration = registration
        #: The schema of the program, without an id.
        self._written = schema
        #: Subject, and whether it is that of keys -> the function that makes messages.
        self._writers: dict[tuple[str, bool], Write] = {}

    @property
    @abstractmethod
    def record_name(self) -> str:
        """The full name of the schema's record, of which subjects may be made."""

    @abstractmethod
    def message_writer(self, schema: RegisteredSchema, is_key: bool) -> Callable[[Any], bytes]:
        """Return the function from a row to a message with the head of the schema's id.

        A key is made of some fields of its row: those that the schema of keys has. `schema` is the program's, or with
        registration="latest" that of the registry. Raises SchemaRegistryError for a schema of the registry that cannot
        take the rows of the program's.
        """

    @abstractmethod
    def fault(self, written: RegisteredSchema, declared: RegisteredSchema) -> str | None:
        """Return why the second schema cannot read messages of the first, with the field.

        None = it can, or the form of messages has no rules for that.
        """

    @cached_property
    def _client(self) -> RegistryClient:
        """The client, which is imported here."""
        from yarrow.datastream.formats.registry.client import RegistryClient

        return RegistryClient(self._settings)

    def writer_for(self, topic: str, is_key: bool) -> Write:
        """Return what makes the keys or values of a topic's messages. Raises SchemaRegistryError."""
        subject = self._subject
        if isinstance(subject, SubjectNameStrategy):
            subject = subject.subject(self.record_name, topic, is_key)
        return self._writer(subject, is_key)

    @cached_property
    def _without_topic(self) -> Write:
        subject = self._subject
        if isinstance(subject, str):
            return self._writer(subject, False)
        if subject.needs_topic:
            raise InvalidProgramError(
                f"{type(self).__name__}: a sink that names no topic cannot make a subject by {subject.value}; give the"
                " name of the subject"
            )
        return self._writer(self.record_name, False)

    def serialize(self, element: Any) -> Any:
        """Return the message of a row where no topic is known.

        Raises RegistryMessageError naming the field of a value that does not fit, and SchemaRegistryError if the
        registry refuses the schema. Raises InvalidProgramError for a subject that is made of a topic.
        """
        return self._without_topic(element)

    def _writer(self, subject: str, is_key: bool) -> Write:
        found = self._writers.get((subject, is_key))
        if found is None:
            schema = schema_to_write(self._client, subject, self._written, self._registration, self.fault)
            write = self.message_writer(schema, is_key)
            found = self._writers[subject, is_key] = lambda row: None if row is None else write(row)
        return found

    def _check_latest(self, latest: RegisteredSchema, fault: str | None, lost: Sequence[str]) -> None:
        """Raise SchemaRegistryError if rows of the program's schema cannot be written by the latest version.

        `fault` is why it cannot read them, `lost` are the fields that it does not have.
        """
        if fault is None and lost:
            fault = f"field {lost[0]!r}: that version does not have it"
        if fault is not None:
            name = f" {self.record_name}" if self.record_name else ""
            raise SchemaRegistryError(
                f"rows of the program's schema{name} cannot be written by version {latest.version} of the subject"
                f" {latest.subject!r}, which is its latest: {fault}. Register the program's schema, or name the version"
                " in the program"
            )

    def __repr__(self) -> str:
        shown = self._subject if isinstance(self._subject, str) else self._subject.value
        return f"{type(self).__name__}({self.record_name}, {shown}, {self._settings!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings, self._subject, self._registration, self._written)


def part_of_key(row: Any, names: Collection[str]) -> Any:
    """Return the fields of a row that a schema of keys has; a row without names stays as it is."""
    if isinstance(row, Row) and not set(names).isdisjoint(own_names(row) or ()):
        row = row.as_dict()
    return {name: row[name] for name in names if name in row} if isinstance(row, Mapping) else row
