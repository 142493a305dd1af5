"""Debezium's change events as JSON, in the meaning of Flink's `debezium-json`.

Owner: the task's thread. An event has the row before and after the change and a letter for the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.common.types import Row, RowKind, row_of
from yarrow.datastream.formats.changelog.change_messages import (
    ChangelogDeserializationSchema,
    ChangelogSerializationSchema,
)
from yarrow.datastream.formats.changelog.debezium_values import Convert, converted, converters_of
from yarrow.datastream.formats.json_rows import names_of_rows, row_structure
from yarrow.datastream.formats.values import json_decoder

__all__ = ["DebeziumJsonDeserializationSchema", "DebeziumJsonSerializationSchema"]

_CREATE: Final = "c"
#: A row that stood in the table before the connector began.
_READ: Final = "r"
_UPDATE: Final = "u"
_DELETE: Final = "d"


class _OneStep:
    """Decodes events and the rows in them in one step."""

    def __init__(self, structure: Any, names: tuple[str, ...]) -> None:
        row = structure | None
        event = msgspec.defstruct(
            "Event", [("op", str | None, None), ("before", row, None), ("after", row, None)], gc=False
        )
        self._decode = msgspec.json.Decoder(event).decode
        self._names = names

    def rows(self, message: bytes) -> list[Row] | None:
        """Return the rows of an event. None = it must be decoded in two steps, which finds what is wrong with it."""
        try:
            event: Any = self._decode(message)
        except (msgspec.DecodeError, ValueError):
            return None
        operation, before, after = event.op, event.before, event.after
        if operation in (_CREATE, _READ) and after is not None:
            return [self._row(after)]
        if operation == _UPDATE and before is not None and after is not None:
            return [self._row(before, RowKind.UPDATE_BEFORE), self._row(after, RowKind.UPDATE_AFTER)]
        if operation == _DELETE and before is not None:
            return [self._row(before, RowKind.DELETE)]
        return None

    def _row(self, values: Any, kind: RowKind | None = None) -> Row:
        row = row_of(self._names, list(msgspec.structs.astuple(values)))
        if kind is not None:
            row.set_row_kind(kind)
        return row


class _DescribedEvent(msgspec.Struct):
    #: Decoded only where it differs from that of the message before.
    schema: msgspec.Raw = msgspec.Raw(b"null")
    payload: Any = None


class DebeziumJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Reads Debezium's events as Rows: +I of op c and r, -U and +U of u, -D of d.

    `schema_include`: each message has the members "schema" and "payload", as Kafka Connect writes with
    `value.converter.schemas.enable=true`. The schema tells Debezium's numbers for dates and times and its bytes for
    decimals. Without it times must be ISO texts, and decimals texts or numbers.
    """

    def __init__(
        self, type_info: RowTypeInfo, schema_include: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        super().__init__(type_info, ignore_parse_errors)
        self._schema_include = schema_include
        structure = None if schema_include else row_structure(type_info, missing_is_error=False)
        self._one_step = None if structure is None else _OneStep(structure, names_of_rows(type_info))
        self._described = json_decoder(type_info, _DescribedEvent)
        self._schema = b""
        self._converters: dict[str, Convert] = {}

    def deserialize_all(self, message: bytes) -> Sequence[Row]:
        """Return the rows of an event, in one step where the type is of basic fields. Raises as the other way does."""
        if self._one_step is not None and (rows := self._one_step.rows(message)) is not None:
            return rows
        return super().deserialize_all(message)

    def document(self, message: bytes) -> Any:
        """Return the event; of one with a schema the payload, with texts for dates, times and decimals."""
        if not self._schema_include:
            return super().document(message)
        described = self._described(message)
        event = described.payload
        if not isinstance(event, dict):
            raise ValueError(f"field 'payload': with schema_include an object is expected, not {event!r}")
        schema = bytes(described.schema)
        if schema != self._schema:
            self._converters = converters_of(msgspec.json.decode(schema), self._type_info)
            self._schema = schema
        if self._converters:
            for field in ("before", "after"):
                event[field] = converted(event.get(field), self._converters, field)
        return event

    def changes(self, document: dict[str, Any]) -> list[Row]:
        """Return the rows of an event."""
        operation = document.get("op")
        if operation in (_CREATE, _READ):
            return [self.row(RowKind.INSERT, document.get("after"), "after")]
        if operation == _UPDATE:
            return [
                self._before(RowKind.UPDATE_BEFORE, document),
                self.row(RowKind.UPDATE_AFTER, document.get("after"), "after"),
            ]
        if operation == _DELETE:
            return [self._before(RowKind.DELETE, document)]
        if "op" not in document and not self._schema_include and "payload" in document:
            raise ValueError("field 'op' is missing: the event is in 'payload'; give schema_include=True")
        raise ValueError(f'field \'op\': "c", "r", "u" or "d" is expected, not {operation!r}')

    def _before(self, kind: RowKind, event: dict[str, Any]) -> Row:
        before = event.get("before")
        if before is None:
            raise ValueError(
                "field 'before': the old row is missing; for PostgreSQL set REPLICA IDENTITY FULL on the table"
            )
        return self.row(kind, before, "before")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._schema_include, self._ignore_parse_errors)


class DebeziumJsonSerializationSchema(ChangelogSerializationSchema):
    """Writes a Row as an event of op c with "after", or op d with "before"."""

    def message(self, values: dict[str, Any], is_deletion: bool) -> dict[str, Any]:
        """Return an event without a schema."""
        if is_deletion:
            return {"before": values, "after": None, "op": _DELETE}
        return {"before": None, "after": values, "op": _CREATE}
