"""WriterSchemas: the schemas of those who wrote messages, by the ids that the messages carry.

Owner: the task's thread. The client of the registry is made on first use, which is in a worker. An id that the registry
does not know is a fault of its messages. It is asked for again after a while, since a registry may lag behind.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from yarrow.datastream.formats.registry.avro_references import with_references
from yarrow.datastream.formats.registry.errors import (
    RegistryMessageError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.wire_format import schema_id_of
from yarrow.runtime.common.clock import Clock, SystemClock

if TYPE_CHECKING:
    from yarrow.datastream.formats.registry.client import RegistryClient

#: Seconds for which an id that the registry does not know is not asked for again, and how many are remembered.
_UNKNOWN_SECONDS: Final = 30.0
_MOST_UNKNOWN: Final = 1000


class WriterSchemas:
    """The schemas of one registry that messages name."""

    def __init__(self, settings: RegistrySettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        #: Id -> what the registry said, and when.
        self._unknown: dict[int, tuple[str, float]] = {}
        self._shown: dict[int, str] = {}
        #: Seconds of the clock until which the registry is not asked for the subjects of an id.
        self._silent_until = float("-inf")

    @cached_property
    def client(self) -> RegistryClient:
        """The client, which is imported here."""
        from yarrow.datastream.formats.registry.client import RegistryClient

        return RegistryClient(self._settings, self._clock)

    @staticmethod
    def id_of(message: bytes) -> int:
        """Return the id that a message carries. Raises RegistryMessageError."""
        return schema_id_of(message)

    def schema(self, schema_id: int, kind: str) -> RegisteredSchema:
        """Return the schema of an id.

        Raises RegistryMessageError for an id that the registry does not know, and for a schema of another kind.
        Raises SchemaRegistryError if the registry cannot be asked.
        """
        now = self._clock.monotonic()
        known = self._unknown.get(schema_id)
        if known is not None and now - known[1] < _UNKNOWN_SECONDS:
            raise RegistryMessageError(known[0], schema_id)
        try:
            found = self.client.by_id(schema_id)
        except SchemaNotFoundError as error:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[schema_id] = str(error), now
            raise RegistryMessageError(str(error), schema_id) from None
        if found.kind != kind:
            raise RegistryMessageError(
                f"{self.shown(schema_id)} is of the kind {found.kind}, and {kind} is expected: read its topic with a"
                " schema of that kind",
                schema_id,
            )
        return found

    @staticmethod
    def avro_text(schema: RegisteredSchema) -> str:
        """Return the text of a schema of Avro, with the types that it refers to."""
        try:
            return with_references(schema.text, dict(schema.referred))
        except (ValueError, TypeError, AttributeError):
            # What is wrong with the text is told where it is parsed.
            return schema.text

    def shown(self, schema_id: int) -> str:
        """Return an id with its subjects and versions, for errors.

        A registry that cannot be asked is left alone for a while: its answer would only make a message clearer.
        """
        shown = self._shown.get(schema_id)
        if shown is None:
            if self._clock.monotonic() < self._silent_until:
                return f"schema {schema_id} (the registry does not tell its subject)"
            try:
                places = self.client.places(schema_id)
            except SchemaRegistryError:
                self._silent_until = self._clock.monotonic() + _UNKNOWN_SECONDS
                return f"schema {schema_id} (the registry does not tell its subject)"
            names = ", ".join(f"subject {subject!r} version {version}" for subject, version in places[:5])
            shown = self._shown[schema_id] = (
                f"schema {schema_id} ({names})" if names else f"schema {schema_id}"
            )
        return shown
