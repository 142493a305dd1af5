"""JsonMessages: the JSON of messages whose writers' schemas are in a registry, for one schema of the reader.

Owner: the task's thread. The first message with an id makes the reader ask for its writer's schema, once. The two
schemas are compared then. JSON needs no schema to be decoded, so the reader only looks at the heads of further
messages. It validates each where the program wants it. The registry's client is made on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from yarrow.datastream.formats.registry.chosen_schema import ReaderChoice
from yarrow.datastream.formats.registry.errors import RegistryMessageError
from yarrow.datastream.formats.registry.evolution import SchemaEvolution, unknown_field
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument, problem_of
from yarrow.datastream.formats.registry.json_schema.evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.json_schema.shapes import JsonShape, shape_of_document
from yarrow.datastream.formats.registry.registered_schema import JSON
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.wire_format import HEAD_BYTES, schema_id_of
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.errors import InvalidProgramError

#: Raises RegistryMessageError for the bytes behind a head that its writer's schema does not allow.
Check = Callable[[bytes], None]
#: Characters of a message that an error shows.
_SHOWN: Final = 120


class JsonMessages:
    """Finds the JSON in messages, and refuses messages that the reader's schema cannot read."""

    def __init__(
        self,
        settings: RegistrySettings,
        reader: JsonShape,
        choice: ReaderChoice | None,
        evolution: SchemaEvolution,
        validates: bool,
    ) -> None:
        self._reader = reader
        #: The schema of the reader; None = a declared type.
        self._choice = choice
        self._evolution = evolution
        self._validates = validates
        self._writers = WriterSchemas(settings)
        #: Head of messages -> what checks each of them; None = nothing.
        self._by_head: dict[bytes, Check | None] = {}

    def json_of(self, message: bytes) -> bytes:
        """Return the JSON of a message.

        Raises RegistryMessageError, and SchemaRegistryError if the registry cannot be asked.
        """
        head = message[:HEAD_BYTES]
        content = message[HEAD_BYTES:]
        check = self._by_head[head] if head in self._by_head else self._first(message)
        if check is not None:
            check(content)
        return content

    def json_of_all(self, messages: Sequence[bytes]) -> list[bytes]:
        """Return the JSON of each message. Raises as `json_of`."""
        known = self._by_head
        for head in {message[:HEAD_BYTES] for message in messages}:
            if known.get(head, _unknown) is not None:
                return list(map(self.json_of, messages))
        return [message[HEAD_BYTES:] for message in messages]

    def unreadable(self, message: bytes, problem: object) -> RegistryMessageError:
        """The error for a message that is no value of the reader's type."""
        schema_id = schema_id_of(message)
        content = message[HEAD_BYTES:]
        return RegistryMessageError(
            f"a message of {self._writers.shown(schema_id)} is no JSON of the declared type: {problem}:"
            f" {content[:_SHOWN]!r}",
            schema_id,
        )

    # ------------------------------------------------------------------ schemas of writers

    def _first(self, message: bytes) -> Check | None:
        """What checks messages of a schema; made at its first message."""
        schema_id = schema_id_of(message)
        check = self._check_of(schema_id)
        self._by_head[bytes(message[:HEAD_BYTES])] = check
        return check

    def _check_of(self, schema_id: int) -> Check | None:
        schema = self._writers.schema(schema_id, JSON)
        try:
            document = JsonDocument.of(schema.text, dict(schema.referred))
            written = shape_of_document(document)
            validator = document.validator() if self._validates else None
        except InvalidProgramError as error:
            return self._refusing(schema_id, str(error))
        own = self._choice
        is_own = own is not None and (own.text, own.referred) == (schema.text, schema.referred)
        if not is_own and (fault := self._fault(written)) is not None:
            return self._refusing(schema_id, fault)
        return None if validator is None else self._validating(schema_id, validator)

    def _fault(self, written: JsonShape) -> str | None:
        """Why the reader does not read messages of another schema; None = it does."""
        if (fault := fault_of(written, self._reader)) is not None:
            return fault
        if self._evolution is SchemaEvolution.FAIL and (added := new_fields(written, self._reader)):
            return unknown_field(added[0])
        return None

    def _refusing(self, schema_id: int, fault: str) -> Check:
        """The check of messages none of which can be read."""
        text = f"a message of {self._writers.shown(schema_id)} cannot be read by the reader's schema: {fault}"

        def refuse(content: bytes) -> None:
            raise RegistryMessageError(text, schema_id)

        return refuse

    def _validating(self, schema_id: int, validator: Any) -> Check:
        is_valid = validator.is_valid
        decode = msgspec.json.Decoder().decode

        def check(content: bytes) -> None:
            try:
                value = decode(content)
                if is_valid(value):
                    return
                problem = problem_of(validator, value)
            except (ValueError, msgspec.DecodeError) as failure:
                problem = str(failure)
            raise RegistryMessageError(
                f"a message breaks its own {self._writers.shown(schema_id)}: {problem}: {content[:_SHOWN]!r}",
                schema_id,
            )

        return check


def _unknown(content: bytes) -> None:
    """Stands for the check of a head that no message has had."""
