"""Maxwell's messages of MySQL's binlog as JSON, in the meaning of Flink's `maxwell-json`.

Owner: the task's thread. A message has one row in "data", and in "old" the former values of changed columns.
"""

from __future__ import annotations

from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.common.types import Row, RowKind
from yarrow.datastream.formats.changelog.change_messages import (
    ChangelogDeserializationSchema,
    ChangelogSerializationSchema,
)

__all__ = ["MaxwellJsonDeserializationSchema", "MaxwellJsonSerializationSchema"]

_INSERT: Final = "insert"
_UPDATE: Final = "update"
_DELETE: Final = "delete"


class MaxwellJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Reads Maxwell's messages as Rows: +I of insert, -U and +U of update, -D of delete."""

    def __init__(self, type_info: RowTypeInfo, ignore_parse_errors: bool = False) -> None:
        super().__init__(type_info, ignore_parse_errors)

    def changes(self, document: dict[str, Any]) -> list[Row]:
        """Return the rows of a message."""
        kind, data = document.get("type"), document.get("data")
        if kind == _INSERT:
            return [self.row(RowKind.INSERT, data, "data")]
        if kind == _UPDATE:
            return list(self.update(document.get("old"), data))
        if kind == _DELETE:
            return [self.row(RowKind.DELETE, data, "data")]
        raise ValueError(f"field 'type': insert, update or delete is expected, not {kind!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._ignore_parse_errors)


class MaxwellJsonSerializationSchema(ChangelogSerializationSchema):
    """Writes a Row as a message of type insert or delete."""

    def message(self, values: dict[str, Any], is_deletion: bool) -> dict[str, Any]:
        """Return a message of one row."""
        return {"data": values, "type": _DELETE if is_deletion else _INSERT}
