"""Single CSV records as messages: a Row to bytes, and bytes to a Row.

Owner: the task's thread; both schemas pickle by their settings.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from yarrow.common.serialization import DeserializationSchema, SerializationSchema
from yarrow.common.typeinfo import ListTypeInfo, ObjectArrayTypeInfo, RowTypeInfo, TypeInformation
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.csv_records import CsvRowParser, CsvRowWriter
from yarrow.datastream.formats.csv_schema import CsvColumn, CsvSchema, field_reader, one_character


@dataclass(slots=True)
class _SchemaBuilder:
    """The settings that the builders of both message schemas share."""

    type_info: RowTypeInfo
    settings: dict[str, Any] = field(default_factory=dict)
    array_separator: str = ";"

    def schema(self) -> CsvSchema:
        names, types = self.type_info.get_field_names(), self.type_info.get_field_types()
        columns = [
            CsvColumn(
                name,
                kind,
                self.array_separator
                if isinstance(kind, ListTypeInfo | ObjectArrayTypeInfo | RowTypeInfo)
                else None,
            )
            for name, kind in zip(names, types, strict=True)
        ]
        for column in columns:
            field_reader(column)
        return CsvSchema(tuple(columns), **self.settings)


class CsvRowSerializationSchema(SerializationSchema[Row]):
    """A Row as one CSV record; made by `CsvRowSerializationSchema.Builder(type_info)`."""

    class Builder:
        """Collects settings."""

        def __init__(self, type_info: RowTypeInfo) -> None:
            self._shared = _SchemaBuilder(type_info, {"line_separator": "\n"})
            self._line_end = True

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the one character between fields."""
            self._shared.settings["column_separator"] = one_character("field delimiter", c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the end of a record: `\\n`, `\\r\\n`, or nothing."""
            if delimiter not in ("", "\n", "\r\n"):
                raise ValueError(f"the line delimiter must be empty, \\n or \\r\\n, not {delimiter!r}")
            self._line_end = bool(delimiter)
            self._shared.settings["line_separator"] = delimiter or "\n"
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the text between the elements of a list, and between the fields of a Row in a field."""
            self._shared.array_separator = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Write no quotes; a field that would need them is an error."""
            self._shared.settings["quote_char"] = None
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character around fields that hold delimiters."""
            self._shared.settings["quote_char"] = one_character("quote", c)
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that takes the meaning from the next one."""
            self._shared.settings["escape_char"] = one_character("escape", c)
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that stands for None."""
            self._shared.settings["null_value"] = s
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema."""
            return CsvRowSerializationSchema(self._shared.schema(), self._line_end)

    def __init__(self, schema: CsvSchema, line_end: bool = True) -> None:
        self._schema = schema
        self._line_end = line_end
        self._writer: CsvRowWriter | None = None

    def serialize(self, element: Row) -> bytes:
        """Return the bytes of one record."""
        if self._writer is None:
            self._writer = CsvRowWriter(self._schema)
        line = self._writer.line(element)
        return line if self._line_end else line.removesuffix(self._schema.line_separator.encode())

    def __getstate__(self) -> tuple[CsvSchema, bool]:
        return self._schema, self._line_end

    def __setstate__(self, state: tuple[CsvSchema, bool]) -> None:
        self.__init__(*state)  # type: ignore[misc]


class CsvRowDeserializationSchema(DeserializationSchema[Row | None]):
    """A schema that reads one CSV record as a Row; made by `CsvRowDeserializationSchema.Builder(type_info)`."""

    class Builder:
        """Collects settings."""

        def __init__(self, type_info: RowTypeInfo) -> None:
            self._shared = _SchemaBuilder(type_info)
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the one character between fields."""
            self._shared.settings["column_separator"] = one_character("field delimiter", delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether a message that begins with # is none."""
            self._shared.settings["allow_comments"] = allow_comments
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text between the elements of a list, and between the fields of a Row in a field."""
            self._shared.array_separator = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character around fields that hold delimiters."""
            self._shared.settings["quote_char"] = one_character("quote", c)
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that takes the meaning from the next one."""
            self._shared.settings["escape_char"] = one_character("escape", c)
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that stands for None."""
            self._shared.settings["null_value"] = null_literal
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether a message that cannot be read gives None instead of an error."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema."""
            return CsvRowDeserializationSchema(self._shared.schema(), self._ignore_parse_errors)

    def __init__(self, schema: CsvSchema, ignore_parse_errors: bool = False) -> None:
        self._schema = schema
        self._ignore_parse_errors = ignore_parse_errors
        self._rows = CsvRowParser(schema, None)

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is CsvRowDeserializationSchema

    def deserialize(self, message: bytes) -> Row | None:
        """Return the Row; None for a comment, or for an unreadable record if errors are ignored.

        Raises FileFormatError otherwise.
        """
        try:
            text = message.decode()
            if self._schema.allow_comments and text.startswith("#"):
                return None
            records = list(csv.reader(io.StringIO(text, newline=""), **self._schema.dialect()))
            if len(records) != 1:
                raise ValueError(f"{len(records)} records where one is expected")
            return self._rows.row(records[0])
        except (ValueError, csv.Error) as error:
            if self._ignore_parse_errors:
                return None
            raise FileFormatError(
                f"no CSV record of the declared type: {error}: {message[:120]!r}"
            ) from error

    def get_produced_type(self) -> TypeInformation:
        return self._schema.row_type

    def __getstate__(self) -> tuple[CsvSchema, bool]:
        return self._schema, self._ignore_parse_errors

    def __setstate__(self, state: tuple[CsvSchema, bool]) -> None:
        self.__init__(*state)  # type: ignore[misc]
