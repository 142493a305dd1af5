"""The Arrow type of each declared type: one table for conversions in a plan and for file formats.

Owner: any thread; pure. pyarrow is imported where a type is made, so that programs without columns do not load it.
Must not know operators or formats: callers put their names into the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

#: Tag of a declared type -> how Arrow writes its own.
_LEAVES: Final[Mapping[str, str]] = {
    "STRING": "string",
    "CHAR": "string",
    "BOOLEAN": "bool",
    "BYTE": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "SQL_DATE": "date32",
    "SQL_TIME": "time64[us]",
    "SQL_TIMESTAMP": "timestamp[us]",
}


class NoArrowTypeError(Exception):
    """No Arrow type fits `declared`, the part at `path` (`user.address.key`) of the requested type."""

    def __init__(self, path: str, declared: TypeInformation) -> None:
        super().__init__(path, declared)
        self.path = path
        self.declared = declared


def arrow_type(declared: TypeInformation, path: str, extra: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of a column; `extra` adds types for tags that the caller alone can read and write.

    Raises NoArrowTypeError.
    """
    import pyarrow as pa

    match declared:
        case BasicTypeInfo() | SqlTimeTypeInfo() if declared.tag in extra:
            return extra[declared.tag]
        case BasicTypeInfo() | SqlTimeTypeInfo() if declared.tag in _LEAVES:
            return pa.type_for_alias(_LEAVES[declared.tag])
        case RowTypeInfo():
            return pa.struct(list(arrow_fields(declared, f"{path}.", extra)))
        case MapTypeInfo():
            key = arrow_type(declared.key_type_info, f"{path}.key", extra)
            return pa.map_(key, arrow_type(declared.value_type_info, f"{path}.value", extra))
    element = getattr(declared, "element_type", None)
    if isinstance(element, TypeInformation):
        if declared.python_type is bytes:
            return pa.binary()
        return pa.list_(arrow_type(element, f"{path}.element", extra))
    raise NoArrowTypeError(path, declared)


def arrow_fields(declared: RowTypeInfo, prefix: str, extra: Mapping[str, pa.DataType]) -> list[pa.Field]:
    """An Arrow field for each field of a Row; `prefix` precedes its name in the path of a NoArrowTypeError."""
    import pyarrow as pa

    named = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
    return [pa.field(name, arrow_type(field, f"{prefix}{name}", extra)) for name, field in named]


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds instead of nanoseconds, which Python's own types lack.

    pyarrow makes objects of pandas of nanoseconds where pandas is installed, and fails where it is not.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(in_microseconds(field.type)) for field in fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(in_microseconds(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(in_microseconds(kind.value_type)), kind.list_size)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, in_microseconds(kind.value_type), kind.ordered)
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(in_microseconds(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(
            in_microseconds(kind.key_type), kind.item_field.with_type(in_microseconds(kind.item_type))
        )
    return kind
