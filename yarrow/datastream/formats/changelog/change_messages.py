"""What the schemas of all change logs share: a JSON object becomes rows with a RowKind, and a row an object.

Owner: the task's thread; a schema pickles by its settings. A tool's module knows the names in its messages. Must not
know where messages come from.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from yarrow.common.serialization import MultiRecordDeserializationSchema, SerializationSchema
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.types import Row, RowKind
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.json import encoded, object_of
from yarrow.datastream.formats.values import json_decoder, json_reader, row_checked, row_reader
from yarrow.runtime.common.errors import InvalidProgramError

#: Bytes of a message that an error shows.
_SHOWN_BYTES = 120


class ChangelogDeserializationSchema(MultiRecordDeserializationSchema[Row]):
    """Reads the changes of one message as Rows of a declared type, each with its RowKind.

    A message without bytes is a tombstone and gives no row. Numbers and booleans may be texts in a message, and a
    boolean 0 or 1. Raises InvalidProgramError for a type that is no Row type, or that has no form in JSON.
    """

    def __init__(self, type_info: RowTypeInfo, ignore_parse_errors: bool) -> None:
        _require_rows(type(self).__name__, type_info)
        self._type_info = type_info
        self._ignore_parse_errors = ignore_parse_errors
        self._decode = json_decoder(type_info)
        self._read = row_reader(type_info, missing_is_error=False, from_text=True)

    def document(self, message: bytes) -> Any:
        """Return the JSON value of a message."""
        return self._decode(message)

    @abstractmethod
    def changes(self, document: dict[str, Any]) -> list[Row]:
        """Return the rows of a message. Raises ValueError naming the field that is wrong."""

    def deserialize_all(self, message: bytes) -> Sequence[Row]:
        """Return the rows of a message, an update as old and new row.

        An unreadable message gives none if errors are ignored; FileFormatError is raised otherwise.
        """
        if not message:
            return ()
        try:
            document = self.document(message)
            if not isinstance(document, dict):
                raise ValueError(f"an object is expected, not {document!r}")
            return self.changes(document)
        except (ValueError, msgspec.DecodeError) as error:
            if self._ignore_parse_errors:
                return ()
            raise FileFormatError(
                f"no change that {type(self).__name__} reads: {error}: {message[:_SHOWN_BYTES]!r}"
            ) from error

    def get_produced_type(self) -> TypeInformation:
        """The declared type of the rows."""
        return self._type_info

    def row(self, kind: RowKind, values: Any, field: str) -> Row:
        """Return the Row of a JSON object. Raises ValueError that names `field`, where the object stands."""
        try:
            row = self._read(values)
        except ValueError as error:
            raise ValueError(f"field {field!r}: {error}") from None
        if kind is not RowKind.INSERT:
            row.set_row_kind(kind)
        return row

    def update(self, old: Any, data: Any) -> tuple[Row, Row]:
        """Return both rows of an update whose `old` has only the former values of changed columns."""
        for name, part in (("old", old), ("data", data)):
            if not isinstance(part, dict):
                raise ValueError(f"field {name!r}: an object is expected, not {part!r}")
        return (
            self.row(RowKind.UPDATE_BEFORE, {**data, **old}, "old"),
            self.row(RowKind.UPDATE_AFTER, data, "data"),
        )


class ChangelogSerializationSchema(SerializationSchema[Row]):
    """Writes one Row as one message. The message tells an insertion from a deletion.

    An old row of an update is written as a deletion and the new one as an insertion, as Flink does. Raises
    InvalidProgramError for a type that is no Row type, or that has no form in JSON.
    """

    def __init__(self, type_info: RowTypeInfo) -> None:
        _require_rows(type(self).__name__, type_info)
        json_reader(type_info)  # refuses a type without a form in JSON
        self._type_info = type_info
        self._check = row_checked(type_info)

    @abstractmethod
    def message(self, values: dict[str, Any], is_deletion: bool) -> dict[str, Any]:
        """Return the JSON object of a change."""

    def serialize(self, element: Row) -> bytes:
        """Return the message. Raises FileFormatError for other fields, and for a value without a form in JSON."""
        if not isinstance(element, Row):
            raise FileFormatError(f"a Row with a RowKind is expected, not {element!r}")
        is_deletion = element.get_row_kind() in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
        return encoded(self.message(object_of(element, self._check), is_deletion))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)


def _require_rows(name: str, type_info: object) -> None:
    if not isinstance(type_info, RowTypeInfo):
        raise InvalidProgramError(f"{name}: give the type of rows, Types.ROW_NAMED(...), not {type_info!r}")
