"""Arrow schemas on the client: of a declared type, as bytes for an operator spec, and checks of column names.

Owner: the thread that builds the program; pure. pyarrow is imported where a schema is made, so that programs
without columns do not load it. A type that no Arrow type stands for is refused naming the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    import pyarrow as pa

#: Column of a stream whose rows are single values.
VALUE_COLUMN = "value"

_BASIC_NAMES = {
    "STRING": "string",
    "BYTE": "int8",
    "BOOLEAN": "bool_",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "CHAR": "string",
}


def schema_of_type(declared: TypeInformation, operator: str) -> pa.Schema:
    """The schema of rows of this type: fields of a Row or tuple as columns, anything else as one column
    `value`.

    Raises InvalidProgramError naming operator and field where Arrow has no type for it.
    """
    import pyarrow as pa

    if isinstance(declared, RowTypeInfo):
        fields = list(zip(declared.get_field_names(), declared.get_field_types(), strict=True))
    elif isinstance(declared, TupleTypeInfo):
        fields = [(f"f{index}", field) for index, field in enumerate(declared.get_field_types())]
    else:
        fields = [(VALUE_COLUMN, declared)]
    return pa.schema([pa.field(name, _arrow_type(field, operator, name)) for name, field in fields])


def _arrow_type(declared: TypeInformation, operator: str, field: str) -> Any:
    import pyarrow as pa

    match declared:
        case BasicTypeInfo() if declared.tag in _BASIC_NAMES:
            return getattr(pa, _BASIC_NAMES[declared.tag])()
        case BasicTypeInfo() if declared.tag == "INSTANT":
            return pa.timestamp("ns", tz="UTC")
        case SqlTimeTypeInfo():
            return _sql_time(declared, operator, field)
        case RowTypeInfo():
            parts = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
            return pa.struct(
                [pa.field(name, _arrow_type(part, operator, f"{field}.{name}")) for name, part in parts]
            )
        case MapTypeInfo():
            key = _arrow_type(declared.key_type_info, operator, f"{field}.key")
            return pa.map_(key, _arrow_type(declared.value_type_info, operator, f"{field}.value"))
    element = getattr(declared, "element_type", None)
    if isinstance(element, TypeInformation):
        if declared.python_type is bytes:
            return pa.binary()
        return pa.list_(_arrow_type(element, operator, f"{field}.element"))
    raise InvalidProgramError(
        f"Operator {operator!r}: its field {field!r} has the type {declared}, for which there is no Arrow "
        f"type."
        " Convert with to_arrow(schema), or map the field to another type first."
    )


def _sql_time(declared: SqlTimeTypeInfo, operator: str, field: str) -> Any:
    import datetime

    import pyarrow as pa

    by_class = {
        datetime.date: pa.date32(),
        datetime.time: pa.time64("us"),
        datetime.datetime: pa.timestamp("us"),
    }
    return by_class[declared.python_type]


def schema_bytes(schema: pa.Schema) -> bytes:
    """The schema as an IPC message, the form in which specs carry it."""
    return bytes(schema.serialize().to_pybytes())


def read_schema(data: bytes) -> pa.Schema:
    """The schema of `schema_bytes`."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(data))


def check_column(schema: bytes | None, column: str, what: str) -> None:
    """Raises InvalidProgramError, naming the columns there are, when a known schema lacks the column."""
    if schema is None:
        return
    names = read_schema(schema).names
    if column not in names:
        raise InvalidProgramError(f"{what}: there is no column {column!r}; the stream has {names}.")
