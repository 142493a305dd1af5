"""CsvSchema: the columns of a CSV file and how they are written, as a value with a builder.

Owner: the client makes it, the task's thread reads it; never changed after `build`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from yarrow.common.type_information import require_type
from yarrow.common.typeinfo import ListTypeInfo, ObjectArrayTypeInfo, RowTypeInfo, TypeInformation, Types
from yarrow.common.types import Row, positional_row
from yarrow.datastream.formats.data_types import decimal_fitter, type_information
from yarrow.datastream.formats.values import checked, not_finite_text, text_reader
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.table.types import DataType, DecimalType


class _SchemaWide(str):
    """The separator of an array column that was given none: it follows the schema's, whose default it shows."""


_SCHEMA_WIDE: Final = _SchemaWide(";")


@dataclass(frozen=True, slots=True)
class CsvColumn:
    """A column: `separator` stands between the elements of a list, or the fields of a Row, in one text field."""

    name: str
    type_info: TypeInformation
    separator: str | None = None
    #: What the column, or an element of an array, was declared as in SQL's terms; None: by Types.
    data_type: DataType | None = None
    #: False: `separator` is that of the schema. A builder that takes the column over puts its own in its place. Columns
    #: that are read alike are equal.
    own_separator: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CsvSchema:
    """Columns in order and how they are written; made by `CsvSchema.builder()`."""

    columns: tuple[CsvColumn, ...]
    column_separator: str = ","
    quote_char: str | None = '"'
    escape_char: str | None = None
    #: The text that stands for None; None = only an empty field that is no string.
    null_value: str | None = None
    line_separator: str = "\n"
    #: The first record of a file names its columns; fields are found by these names, or by position where the header
    #: has other names.
    use_header: bool = False
    #: With `use_header`: the names must be those of the schema, in its order.
    strict_headers: bool = False
    skip_first_data_row: bool = False
    #: Lines that begin with # are left out.
    allow_comments: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder without columns."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns."""
        return len(self.columns)

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the Rows read with this schema."""
        return Types.ROW_NAMED(
            [column.name for column in self.columns], [column.type_info for column in self.columns]
        )

    def dialect(self) -> dict[str, Any]:
        """The dialect as the csv module takes it."""
        return {
            "delimiter": self.column_separator,
            "quotechar": self.quote_char,
            "quoting": csv.QUOTE_NONE if self.quote_char is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape_char,
            "lineterminator": self.line_separator,
            "strict": True,
        }


class CsvSchemaBuilder:
    """Collects columns and settings."""

    def __init__(self) -> None:
        self._columns: list[CsvColumn] = []
        self._settings: dict[str, Any] = {}
        self._array_separator = str(_SCHEMA_WIDE)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of str."""
        return self._add(CsvColumn(name, Types.STRING()))

    def add_number_column(
        self, name: str, number_type: TypeInformation | DataType | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of numbers: of 64 bits unless another type is given, of Types or DataTypes."""
        return self._add(CsvColumn(name, *_declared(number_type or Types.LONG())))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of true and false."""
        return self._add(CsvColumn(name, Types.BOOLEAN()))

    def add_array_column(
        self,
        name: str,
        separator: str = _SCHEMA_WIDE,
        element_type: TypeInformation | DataType | None = None,
    ) -> CsvSchemaBuilder:
        """Add a column of lists; elements are strings unless another type is given, of Types or DataTypes.

        A separator that is given is the column's own. Without one, and with "", `set_array_element_separator` counts.
        """
        element, _, data_type = _declared(element_type or Types.STRING())
        own = separator is not _SCHEMA_WIDE and separator != ""
        return self._add(CsvColumn(name, Types.LIST(element), separator, data_type, own))

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema behind the present ones, with the separators that are their own."""
        for column in schema.columns:
            self._add(column)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Removes all columns."""
        self._columns.clear()
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the one character between fields; a comma unless set."""
        return self._set("column_separator", one_character("column separator", char))

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """The character around fields that hold separators; a double quote unless set."""
        return self._set("quote_char", one_character("quote", char))

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Give quotes no meaning; files can then be read in parts."""
        return self._set("quote_char", None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """The character that takes the meaning from the next one; none unless set."""
        return self._set("escape_char", one_character("escape", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Take the escape character away."""
        return self._set("escape_char", None)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text of a field that stands for None."""
        return self._set("null_value", null_value)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the text that a writer puts behind a record; readers take `\\n` and `\\r\\n`."""
        if separator not in ("\n", "\r\n"):
            raise ValueError(f"the line separator must be \\n or \\r\\n, not {separator!r}")
        return self._set("line_separator", separator)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether the first record of a file names its columns.

        Names other than the schema's are taken by position.
        """
        return self._set("use_header", use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether the header must have the schema's names in the schema's order."""
        return self._set("strict_headers", strict)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether the first record behind the header is left out."""
        return self._set("skip_first_data_row", skip)

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Set whether lines that begin with # are left out."""
        return self._set("allow_comments", allow)

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of all array columns without one of their own; a semicolon unless set.

        Columns may be added before or after. As in Jackson, which Flink reads CSV files with.
        """
        self._array_separator = separator
        return self

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Take its own separator from the array column at this position, so that it has the schema's."""
        self._columns[index] = replace(self._columns[index], own_separator=False)
        return self

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Read and write each array column without a separator of its own as one element."""
        return self.set_array_element_separator("")

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Refused: a Row has the declared columns only."""
        raise UnsupportedFeatureError(
            f"set_any_property_name({name!r}): a Row cannot take columns beyond the schema; "
            "declare them with add_..."
        )

    def size(self) -> int:
        """The number of columns so far."""
        return len(self._columns)

    def build(self) -> CsvSchema:
        """The schema. Raises ValueError without columns or when two have one name."""
        names = [column.name for column in self._columns]
        if not names:
            raise ValueError(
                "a CSV schema needs at least one column: add_string_column, add_number_column, ..."
            )
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"columns of a CSV schema must have different names: {sorted(twice)}")
        columns = (
            column
            if column.separator is None or column.own_separator
            else replace(column, separator=self._array_separator)
            for column in self._columns
        )
        return CsvSchema(tuple(columns), **self._settings)

    def _add(self, column: CsvColumn) -> CsvSchemaBuilder:
        field_reader(column)  # refuses a type without a form in text
        self._columns.append(column)
        return self

    def _set(self, name: str, value: Any) -> CsvSchemaBuilder:
        self._settings[name] = value
        return self


def one_character(what: str, char: str) -> str:
    if len(char) != 1 or char in "\r\n":
        raise ValueError(f"the {what} must be one character and no line end, not {char!r}")
    return char


def field_reader(column: CsvColumn, null_value: str | None = None) -> Callable[[str], Any]:
    """Return a function that turns the text of a field into the column's value.

    `null_value` stands for None among elements. Raises InvalidProgramError for a type that has no form in text.
    """
    if column.separator is None:
        return _single_reader(column.type_info, column.data_type)
    if isinstance(column.type_info, RowTypeInfo):
        return _row_reader(column, column.type_info, null_value)
    if not isinstance(column.type_info, ListTypeInfo | ObjectArrayTypeInfo):
        raise TypeError(f"column {column.name!r}: an array column needs a list type, not {column.type_info}")
    element, separator = column.type_info.element_type, column.separator
    read = _element_reader(element, column.data_type, null_value)
    if not separator:
        return lambda text: [read(text)]
    return lambda text: [read(part) for part in text.split(separator)] if text else []


def field_writer(column: CsvColumn) -> Callable[[Any], str]:
    """Return a function that turns a value, or an element of an array, into text.

    It raises ValueError for a misfit.
    """
    if isinstance(column.data_type, DecimalType):
        fit = decimal_fitter(column.data_type)
        return lambda value: str(fit(Decimal(value)))
    if isinstance(column.type_info, RowTypeInfo):
        return plain_text
    check = checked(getattr(column.type_info, "element_type", column.type_info))
    return lambda value: plain_text(check(value))


def plain_text(value: Any) -> str:
    """A value as text: as `str` writes it, but for booleans and floats that are not finite."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not isfinite(value):
        return not_finite_text(value)
    # As Flink's readers take it: a date and a time with a space between them, and so does `str` of Python.
    return str(value)


def takes_empty(type_info: TypeInformation) -> bool:
    """Whether an empty text is a value of the type, not None."""
    return type_info == Types.STRING()


def _declared(given: TypeInformation | DataType) -> tuple[TypeInformation, None, DataType | None]:
    """The declared type, no separator, and the type in SQL's terms where it was given so."""
    if isinstance(given, DataType):
        return type_information(given), None, given
    require_type("type of a CSV column", given)
    return given, None, None


def _single_reader(type_info: TypeInformation, data_type: DataType | None) -> Callable[[str], Any]:
    read = text_reader(type_info)
    if not isinstance(data_type, DecimalType):
        return read
    fit = decimal_fitter(data_type)
    return lambda text: fit(read(text))


def _element_reader(
    type_info: TypeInformation, data_type: DataType | None, null_value: str | None
) -> Callable[[str], Any]:
    read, empty = _single_reader(type_info, data_type), takes_empty(type_info)
    return lambda text: None if text == null_value or not (text or empty) else read(text)


def _row_reader(column: CsvColumn, row_type: RowTypeInfo, null_value: str | None) -> Callable[[str], Any]:
    """Reads the fields of a Row out of one text field."""
    readers = [_element_reader(field, None, null_value) for field in row_type.get_field_types()]
    template = Row(*row_type.get_field_names()) if row_type.is_named else None
    separator = column.separator

    def read_row(text: str) -> Row:
        parts = text.split(separator)
        if len(parts) != len(readers):
            raise ValueError(f"{len(readers)} values between {separator!r} are expected")
        values = [read(part) for read, part in zip(readers, parts, strict=True)]
        return positional_row(values) if template is None else template(*values)

    return read_row
