"""Arrow schemas on the client: of a declared type, as bytes for an operator spec, and checks of column names.

Owner: the thread that builds the program; pure. pyarrow is imported where a schema is made, so that programs
without columns do not load it. A type that no Arrow type stands for is refused naming the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.arrow_types import NoArrowTypeError, arrow_fields, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

#: Column of a stream whose rows are single values.
VALUE_COLUMN = "value"


def schema_of_type(declared: TypeInformation, operator: str) -> pa.Schema:
    """The schema of rows of this type.

    Each field of a Row or tuple is a column; any other value is one column `value`.

    Raises InvalidProgramError naming operator and field where Arrow has no type for it.
    """
    import pyarrow as pa

    extra = {"INSTANT": pa.timestamp("ns", tz="UTC")}
    try:
        if isinstance(declared, RowTypeInfo):
            return pa.schema(arrow_fields(declared, "", extra))
        if isinstance(declared, TupleTypeInfo):
            fields = [(f"f{index}", field) for index, field in enumerate(declared.get_field_types())]
        else:
            fields = [(VALUE_COLUMN, declared)]
        return pa.schema([pa.field(name, arrow_type(field, name, extra)) for name, field in fields])
    except NoArrowTypeError as error:
        raise InvalidProgramError(
            f"Operator {operator!r}: its field {error.path!r} has the type {error.declared}, for which there is no "
            "Arrow type. Convert with to_arrow(schema), or map the field to another type first."
        ) from None


def schema_bytes(schema: pa.Schema) -> bytes:
    """The schema as an IPC message, the form in which specs carry it."""
    return bytes(schema.serialize().to_pybytes())


def read_schema(data: bytes) -> pa.Schema:
    """The schema of `schema_bytes`."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(data))


def plain_schema(data: bytes | None, call: str, stream: str, before: str) -> pa.Schema:
    """The schema of a stream that `call` reads. `stream` and `before` name the stream and its reader in messages.

    Raises InvalidProgramError if it is unknown, or has columns of a dictionary.
    """
    if data is None:
        raise InvalidProgramError(
            f"{call}: the columns of {stream} are not known. Declare the schema of map_batches, or the type of the rows"
            " before to_arrow"
        )
    import pyarrow.types as arrow

    schema = read_schema(data)
    for field in schema:
        if arrow.is_dictionary(field.type):
            raise InvalidProgramError(
                f"{call}: column {field.name!r} of {stream} is a {field.type}. Cast it to {field.type.value_type}"
                f" before {before}"
            )
    return schema


def selected_schema(data: bytes, columns: Sequence[str]) -> bytes:
    """The schema of these columns of a schema."""
    import pyarrow as pa

    schema = read_schema(data)
    return schema_bytes(pa.schema([schema.field(column) for column in columns]))


def check_column(schema: bytes | None, column: str, what: str) -> None:
    """Raises InvalidProgramError, naming the columns there are, when a known schema lacks the column."""
    if schema is None:
        return
    names = read_schema(schema).names
    if column not in names:
        raise InvalidProgramError(f"{what}: there is no column {column!r}; the stream has {names}.")


def check_time_column(schema: bytes | None, column: str, what: str) -> None:
    """Raises InvalidProgramError when a known schema lacks the column, or has one that holds no times."""
    check_column(schema, column, what)
    if schema is None:
        return
    import pyarrow.types as arrow

    kind = read_schema(schema).field(column).type
    if not arrow.is_timestamp(kind) and (not arrow.is_integer(kind) or arrow.is_uint64(kind)):
        raise InvalidProgramError(
            f"{what}: the column {column!r} is of type {kind}; times are timestamps, or epoch milliseconds as integers"
            " of at most 64 bits"
        )


def column_type(schema: bytes | None, column: str) -> TypeInformation | None:
    """The declared type of the values of a column; None if the schema is unknown, or no type fits."""
    return None if schema is None else type_of_values(read_schema(schema).field(column).type)


def type_of_values(kind: pa.DataType) -> TypeInformation | None:
    """A declared type of the single values that an Arrow column has in Python; None if no type fits."""
    import pyarrow.types as arrow

    if arrow.is_dictionary(kind):
        kind = kind.value_type
    if arrow.is_timestamp(kind):
        return None if kind.tz is not None or kind.unit == "ns" else Types.SQL_TIMESTAMP()
    for is_kind, made in (
        (arrow.is_boolean, Types.BOOLEAN),
        (arrow.is_uint64, Types.BIG_INT),
        (arrow.is_integer, Types.LONG),
        (arrow.is_floating, Types.DOUBLE),
        (arrow.is_string, Types.STRING),
        (arrow.is_large_string, Types.STRING),
        (arrow.is_date, Types.SQL_DATE),
    ):
        if is_kind(kind):
            return made()
    return None
