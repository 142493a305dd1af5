"""CSV records as Rows and Rows as CSV records.

Owner: the task's thread. Knows text and Rows; files and blocks come in as lines, errors go out through the
caller.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.line_blocks import BlockErrors, BlockParser
from yarrow.datastream.formats.csv_schema import CsvColumn, CsvSchema, field_reader, field_writer, takes_empty
from yarrow.datastream.formats.row_fields import values_in_order
from yarrow.datastream.formats.values import row_checked


class CsvRowParser(BlockParser):
    """Reads record by record."""

    def __init__(self, schema: CsvSchema, names: Sequence[str] | None) -> None:
        self._schema = schema
        self._dialect = schema.dialect()
        wanted = [column.name for column in schema.columns]
        self._width = len(wanted if names is None else names)
        positions = range(len(wanted)) if names is None else [names.index(name) for name in wanted]
        self._fields = [
            (position, column.name, field_reader(column, schema.null_value), _takes_empty(column))
            for position, column in zip(positions, schema.columns, strict=True)
        ]
        self._template = Row(*wanted)

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> list[Row]:
        leading = self._schema.use_header + self._schema.skip_first_data_row if at_file_start else 0
        lines, is_utf8 = _lines_of(block)
        rows = []
        for first, end, fields, problem in self._records(lines):
            if leading:
                leading -= 1
                continue
            if problem is None:
                try:
                    if not is_utf8:
                        _refuse_other_than_utf8(fields)
                    rows.append(self.row(fields))
                    continue
                except ValueError as error:
                    problem = error
            raw = "".join(lines[first:end]).rstrip("\r\n").encode("utf-8", "surrogateescape")
            errors.report(first, raw, str(problem), problem)
        return rows

    def row(self, fields: list[str]) -> Row:
        """The Row of one record. Raises ValueError naming the column that does not fit."""
        if len(fields) != self._width:
            raise ValueError(f"{len(fields)} fields where {self._width} are expected")
        null_value = self._schema.null_value
        values: list[Any] = []
        for position, name, read, empty in self._fields:
            text = fields[position]
            if text == null_value or not (text or empty):
                values.append(None)
                continue
            try:
                values.append(read(text))
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}, found {text!r}") from None
        return self._template(*values)

    def _records(self, lines: list[str]) -> Iterator[tuple[int, int, list[str], Exception | None]]:
        """First line, line behind, fields and problem of each record; without blank lines and comments."""
        comments = self._schema.allow_comments
        start = 0
        while start < len(lines):
            if comments and lines[start].startswith("#"):
                start += 1
                continue
            base = first = start
            reader = csv.reader(islice(lines, base, None), **self._dialect)
            while not (comments and first < len(lines) and lines[first].startswith("#")):
                try:
                    fields = next(reader, None)
                except csv.Error as error:
                    # One line counts as the malformed record, so that an open quote costs no more than a
                    # line.
                    start = first + 1
                    yield first, start, [], error
                    break
                if fields is None:
                    return
                start = base + reader.line_num
                if fields:
                    yield first, start, fields, None
                first = start


def _takes_empty(column: CsvColumn) -> bool:
    """Whether an empty field is a value, not None."""
    is_list = column.separator is not None and not isinstance(column.type_info, RowTypeInfo)
    return is_list or takes_empty(column.type_info)


def _lines_of(block: bytes) -> tuple[list[str], bool]:
    """The lines with their ends, and whether all are UTF-8; other bytes are kept as lone surrogates."""
    try:
        text, is_utf8 = block.decode(), True
    except UnicodeDecodeError:
        text, is_utf8 = block.decode("utf-8", "surrogateescape"), False
    return io.StringIO(text, newline="\n").readlines(), is_utf8


def _refuse_other_than_utf8(fields: list[str]) -> None:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        raise ValueError("not UTF-8") from None


#: Returns the values that a column joins to one text; raises ValueError for a value of another type.
_Parts = Callable[[Any], Iterable[Any]]


def _parts_reader(type_info: TypeInformation) -> _Parts:
    if isinstance(type_info, RowTypeInfo):
        check = row_checked(type_info)
        return lambda row: check(row).values()

    def elements(value: Any) -> Iterable[Any]:
        # A text has elements, too.
        if not isinstance(value, list | tuple):
            raise ValueError(f"{type_info} is expected, not {type(value).__name__}")
        return value

    return elements


class CsvRowWriter:
    """Turns Rows into lines."""

    def __init__(self, schema: CsvSchema) -> None:
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer, **schema.dialect())
        self._null = schema.null_value or ""
        self._columns = [
            (column, field_writer(column), _parts_reader(column.type_info)) for column in schema.columns
        ]
        self._names = tuple([column.name for column in schema.columns])

    def header(self) -> bytes:
        """The line of column names."""
        self._writer.writerow(self._names)
        return self._taken()

    def line(self, row: Any) -> bytes:
        """Return the text of one row.

        Raises FileFormatError for a row with other fields or another number of them, and for a misfit value.
        """
        values = values_in_order(row, self._names)
        if len(values) != len(self._columns):
            raise FileFormatError(f"{row!r} has {len(values)} fields, the CSV schema {len(self._columns)}")
        texts = [
            self._text(value, column, write, parts)
            for value, (column, write, parts) in zip(values, self._columns, strict=True)
        ]
        try:
            self._writer.writerow(texts)
        except csv.Error as error:
            raise FileFormatError(
                f"this CSV schema has no way to write {row!r} ({error}). Set a quote character (set_quote_char) or an"
                " escape character (set_escape_char)"
            ) from error
        return self._taken()

    def _text(self, value: Any, column: CsvColumn, write: Callable[[Any], str], parts: _Parts) -> str:
        if value is None:
            return self._null
        try:
            if column.separator is None:
                return write(value)
            return self._joined(parts(value), column.separator, write)
        except (FileFormatError, ValueError, ArithmeticError) as error:
            raise FileFormatError(f"column {column.name!r}: {error}, found {value!r}") from error

    def _joined(self, values: Iterable[Any], separator: str, write: Callable[[Any], str]) -> str:
        """The elements of a list, or the fields of a Row, in one text."""
        parts = [self._null if value is None else write(value) for value in values]
        for part in parts:
            if separator and separator in part:
                raise ValueError(
                    f"{part!r} holds {separator!r}, which stands between values: set another delimiter of array"
                    " elements"
                )
        return separator.join(parts)

    def _taken(self) -> bytes:
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text.encode()
