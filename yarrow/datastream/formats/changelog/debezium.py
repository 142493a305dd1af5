"""Debezium's change events as JSON, in the meaning of Flink's `debezium-json`.

Owner: the task's thread. An event has the row before and after the change and a letter for the operation.
"""

from __future__ import annotations

from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.common.types import Row, RowKind
from yarrow.datastream.formats.changelog.change_messages import (
    ChangelogDeserializationSchema,
    ChangelogSerializationSchema,
)

__all__ = ["DebeziumJsonDeserializationSchema", "DebeziumJsonSerializationSchema"]

_CREATE: Final = "c"
#: A row that stood in the table before the connector began.
_READ: Final = "r"
_UPDATE: Final = "u"
_DELETE: Final = "d"


class DebeziumJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Reads Debezium's events as Rows: +I of op c and r, -U and +U of u, -D of d.

    `schema_include`: each message has the members "schema" and "payload", as Kafka Connect writes with
    `value.converter.schemas.enable=true`. Decimals are exact with `decimal.handling.mode=string`, times are ISO texts.
    """

    def __init__(
        self, type_info: RowTypeInfo, schema_include: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        super().__init__(type_info, ignore_parse_errors)
        self._schema_include = schema_include

    def changes(self, document: dict[str, Any]) -> list[Row]:
        """Return the rows of an event."""
        event = self._payload(document)
        operation = event.get("op")
        if operation in (_CREATE, _READ):
            return [self.row(RowKind.INSERT, event.get("after"), "after")]
        if operation == _UPDATE:
            return [
                self._before(RowKind.UPDATE_BEFORE, event),
                self.row(RowKind.UPDATE_AFTER, event.get("after"), "after"),
            ]
        if operation == _DELETE:
            return [self._before(RowKind.DELETE, event)]
        if "op" not in event and not self._schema_include and "payload" in event:
            raise ValueError("field 'op' is missing: the event is in 'payload'; give schema_include=True")
        raise ValueError(f'field \'op\': "c", "r", "u" or "d" is expected, not {operation!r}')

    def _payload(self, document: dict[str, Any]) -> dict[str, Any]:
        if not self._schema_include:
            return document
        payload = document.get("payload")
        if not isinstance(payload, dict):
            raise ValueError(f"field 'payload': with schema_include an object is expected, not {payload!r}")
        return payload

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
