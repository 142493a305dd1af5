"""Canal's messages of MySQL's binlog as JSON, in the meaning of Flink's `canal-json`.

Owner: the task's thread. A message has several rows in "data". "old" has the former values of changed columns, row by
row.
"""

from __future__ import annotations

import re
from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo
from yarrow.common.types import Row, RowKind
from yarrow.datastream.formats.changelog.change_messages import (
    ChangelogDeserializationSchema,
    ChangelogSerializationSchema,
)

__all__ = ["CanalJsonDeserializationSchema", "CanalJsonSerializationSchema"]

_INSERT: Final = "INSERT"
_UPDATE: Final = "UPDATE"
_DELETE: Final = "DELETE"
#: A table was made; the message has no rows.
_CREATE: Final = "CREATE"


class CanalJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Reads Canal's messages as Rows: +I of INSERT, -U and +U of UPDATE, -D of DELETE, none of CREATE.

    `database` and `table` are regular expressions. A message whose database or table does not match one wholly gives
    no row. Raises ValueError for an expression that is none.
    """

    def __init__(
        self,
        type_info: RowTypeInfo,
        database: str | None = None,
        table: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(type_info, ignore_parse_errors)
        self._only = {"database": database, "table": table}
        self._patterns = [
            (name, _pattern(name, text)) for name, text in self._only.items() if text is not None
        ]

    def changes(self, document: dict[str, Any]) -> list[Row]:
        """Return the rows of a message."""
        for name, pattern in self._patterns:
            value = document.get(name)
            if not isinstance(value, str):
                raise ValueError(f"field {name!r}: a text is expected, not {value!r}")
            if pattern.fullmatch(value) is None:
                return []
        kind = document.get("type")
        if kind == _CREATE:
            return []
        if kind not in (_INSERT, _UPDATE, _DELETE):
            raise ValueError(f"field 'type': INSERT, UPDATE, DELETE or CREATE is expected, not {kind!r}")
        data = _rows(document, "data")
        if kind == _UPDATE:
            return self._updates(_rows(document, "old"), data)
        change = RowKind.INSERT if kind == _INSERT else RowKind.DELETE
        return [self.row(change, values, "data") for values in data]

    def _updates(self, old: list[Any], data: list[Any]) -> list[Row]:
        if len(old) != len(data):
            raise ValueError(f"field 'old': {len(data)} rows are expected, as in 'data', not {len(old)}")
        return [row for before, after in zip(old, data, strict=True) for row in self.update(before, after)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, *self._only.values(), self._ignore_parse_errors)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(
            f"CanalJsonDeserializationSchema: {name} must be a regular expression, not {text!r}: {error}"
        ) from error


def _rows(document: dict[str, Any], name: str) -> list[Any]:
    rows = document.get(name)
    if not isinstance(rows, list):
        raise ValueError(f"field {name!r}: an array of rows is expected, not {rows!r}")
    return rows


class CanalJsonSerializationSchema(ChangelogSerializationSchema):
    """Writes a Row as a message of type INSERT or DELETE with one row in "data"."""

    def message(self, values: dict[str, Any], is_deletion: bool) -> dict[str, Any]:
        """Return a message of one row."""
        return {"data": [values], "type": _DELETE if is_deletion else _INSERT}
