"""CsvFiles: how CSV files become tuples or Rows of a data set.

Owner: the thread that builds the program. Fields are read as Flink's CsvReader says, but that a quote character is set
from the start. Must not know the class of data sets that a program sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from yarrow.batch.dataset.data_sources import DataSources
from yarrow.batch.dataset.row_operations import RowOperations
from yarrow.common.typeinfo import BasicTypeInfo, TypeInformation, Types
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import ProjectOperator

if TYPE_CHECKING:
    from yarrow.datastream.formats.csv_schema import CsvSchema

#: The class of data sets that a program sees.
D = TypeVar("D", bound=RowOperations[Any])
_TEXTS = frozenset({"STRING", "CHAR"})


class CsvFiles(Generic[D]):
    """Collects how CSV files are read; `types` and `row_type` end it with a data set."""

    def __init__(self, environment: DataSources[D], file_path: str) -> None:
        self._environment = environment
        self._path = file_path
        self._delimiter = ","
        self._quote: str | None = '"'
        self._skips_first_line = False
        self._skips_comments = False
        self._skips_invalid = False
        self._included: tuple[bool, ...] | None = None

    def field_delimiter(self, delimiter: str) -> Self:
        """Set the one character between fields; a comma unless set."""
        self._delimiter = delimiter
        return self

    def parse_quoted_strings(self, quote_character: str) -> Self:
        """Set the character around fields that hold delimiters; a double quote unless set."""
        self._quote = quote_character
        return self

    def ignore_quotes(self) -> Self:
        """Give quotes no meaning; large files can then be read in parts."""
        self._quote = None
        return self

    def ignore_first_line(self) -> Self:
        """Leave out the first line of each file."""
        self._skips_first_line = True
        return self

    def ignore_comments(self, comment_prefix: str = "#") -> Self:
        """Leave out lines that begin with #."""
        if comment_prefix != "#":
            raise InvalidProgramError(
                f"ignore_comments({comment_prefix!r}): comments begin with '#'; leave out others with filter behind "
                "read_text_file"
            )
        self._skips_comments = True
        return self

    def ignore_invalid_lines(self) -> Self:
        """Leave out lines that cannot be read as declared, which fail the job otherwise."""
        self._skips_invalid = True
        return self

    def include_fields(self, *fields: bool | str | Iterable[bool]) -> Self:
        """Set which fields of a line are read: booleans, or a mask as "10110"; without it all are."""
        given: Any = fields[0] if len(fields) == 1 and not isinstance(fields[0], bool) else fields
        if isinstance(given, str):
            if set(given) - set("10TtFf"):
                raise InvalidProgramError(f"include_fields({given!r}): a mask has 1 or 0 for each field")
            given = [letter in "1Tt" for letter in given]
        mask = tuple(given)
        if not any(mask) or not all(isinstance(each, bool) for each in mask):
            raise InvalidProgramError(
                f"include_fields takes booleans, at least one of them True, not {given!r}"
            )
        self._included = mask
        return self

    def types(self, *field_types: TypeInformation) -> D:
        """Return the included fields as tuples of these types."""
        places = self._places(field_types)
        names = [f"f{position}" for position in range(len(self._mask(field_types)))]
        read = self._read(names, places, field_types)
        made: D = read._operation(
            read._rows(), "CSV fields", ProjectOperator(indexes=tuple(places)), Types.TUPLE(list(field_types))
        )
        return made

    def row_type(self, field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> D:
        """Return the included fields as Rows with these names and types."""
        if len(field_names) != len(field_types):
            raise InvalidProgramError(
                f"row_type has {len(field_names)} names and {len(field_types)} types: give one type for each name"
            )
        places = self._places(field_types)
        names = [f"_{position}" for position in range(len(self._mask(field_types)))]
        for place, name in zip(places, field_names, strict=True):
            names[place] = name
        read = self._read(names, places, field_types)
        if len(places) == len(names):
            return read
        made: D = read.map(
            _Picked(places, field_names), Types.ROW_NAMED(list(field_names), list(field_types))
        )
        return made.name("CSV fields")

    def _mask(self, field_types: Sequence[TypeInformation]) -> tuple[bool, ...]:
        return self._included or (True,) * len(field_types)

    def _places(self, field_types: Sequence[TypeInformation]) -> list[int]:
        places = [position for position, taken in enumerate(self._mask(field_types)) if taken]
        if not field_types or len(places) != len(field_types):
            raise InvalidProgramError(
                f"read_csv_file({self._path!r}): {len(places)} fields are included, with {len(field_types)} types; "
                "give a type for each included field"
            )
        return places

    def _read(self, names: Sequence[str], places: Sequence[int], field_types: Sequence[TypeInformation]) -> D:
        from yarrow.common.values.error_handling import ErrorPolicy
        from yarrow.datastream.connectors.file_source import FileSource
        from yarrow.datastream.formats.csv import CsvReaderFormat

        policy = ErrorPolicy.SKIP if self._skips_invalid else ErrorPolicy.FAIL
        schema = self._schema(names, dict(zip(places, field_types, strict=True)))
        fmt = CsvReaderFormat.for_schema(schema, on_malformed=policy)
        source = FileSource.for_record_stream_format(fmt, self._path).build()
        return self._environment.create_input(source, name=f"CSV {self._path}")

    def _schema(self, names: Sequence[str], types: dict[int, TypeInformation]) -> CsvSchema:
        from yarrow.datastream.formats.csv_schema import CsvSchema

        builder = CsvSchema.builder().set_column_separator(self._delimiter)
        for position, name in enumerate(names):
            declared = types.get(position)
            if declared is None or (isinstance(declared, BasicTypeInfo) and declared.tag in _TEXTS):
                builder.add_string_column(name)
            elif declared == Types.BOOLEAN():
                builder.add_boolean_column(name)
            elif isinstance(declared, BasicTypeInfo):
                builder.add_number_column(name, declared)
            else:
                raise InvalidProgramError(
                    f"read_csv_file({self._path!r}): field {position} has the type {declared}, which a field of CSV "
                    "cannot have; read it as Types.STRING() and convert it with map"
                )
        builder.set_skip_first_data_row(self._skips_first_line).set_allow_comments(self._skips_comments)
        if self._quote is None:
            builder.disable_quote_char()
        else:
            builder.set_quote_char(self._quote)
        return builder.build()


class _Picked:
    """Some fields of a Row as a Row with names."""

    def __init__(self, places: Sequence[int], names: Sequence[str]) -> None:
        self._places = tuple(places)
        self._names = tuple(names)

    def __call__(self, row: Any) -> Any:
        from yarrow.common.types import Row

        return Row(**{name: row[place] for place, name in zip(self._places, self._names, strict=True)})
