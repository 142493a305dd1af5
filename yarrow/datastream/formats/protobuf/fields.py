"""The types of Protobuf fields: what rows have for each, and which declared types fit a field.

Owner: the calling thread; pure. Numbers of types are those of `descriptor.proto`. Must not read or write messages.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.runtime.common.errors import InvalidProgramError

DOUBLE: Final = 1
FLOAT: Final = 2
BOOL: Final = 8
STRING: Final = 9
GROUP: Final = 10
MESSAGE: Final = 11
BYTES: Final = 12
ENUM: Final = 14
#: Least and largest value of whole numbers, by type.
RANGES: Final = {
    **dict.fromkeys((5, 15, 17), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((7, 13), (0, 2**32 - 1)),
    **dict.fromkeys((3, 16, 18), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((4, 6), (0, 2**64 - 1)),
}
TIMESTAMP: Final = "google.protobuf.Timestamp"
#: Messages around one value, which rows have as a value or None.
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

_WHOLE_NUMBERS = (("INT", 2**31 - 1), ("LONG", 2**63 - 1), ("BIG_INT", None))
_OTHERS: Final = {
    DOUBLE: ("DOUBLE",),
    FLOAT: ("FLOAT", "DOUBLE"),
    BOOL: ("BOOLEAN",),
    STRING: ("STRING",),
    ENUM: ("STRING", "INT"),
}
_MAKERS: Final = {
    "INT": Types.INT,
    "LONG": Types.LONG,
    "BIG_INT": Types.BIG_INT,
    "DOUBLE": Types.DOUBLE,
    "FLOAT": Types.FLOAT,
    "BOOLEAN": Types.BOOLEAN,
    "STRING": Types.STRING,
}


def is_message(field: Any) -> bool:
    """Whether the values of a field are messages."""
    return field.type in (MESSAGE, GROUP)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list or a map. Older libraries tell it by a label."""
    told = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if told is None else told)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return is_message(field) and bool(field.message_type.GetOptions().map_entry)


def fitting_tags(field: Any) -> tuple[str, ...]:
    """The tags of the types that one value of a field may have in a row, the best one first."""
    if field.type in RANGES:
        largest = RANGES[field.type][1]
        return tuple(tag for tag, most in _WHOLE_NUMBERS if most is None or largest <= most)
    return _OTHERS.get(field.type, ())


def row_type_of(
    descriptor: Any, path: tuple[str, ...] = (), only: Collection[str] | None = None
) -> RowTypeInfo:
    """Return the Row type of a message: a field for each of its own, or for those named.

    Raises InvalidProgramError for a message that contains itself.
    """
    if descriptor.full_name in path:
        raise InvalidProgramError(
            f"{descriptor.full_name} contains itself ({' -> '.join((*path, descriptor.full_name))}), and rows cannot:"
            " give type_info with the fields that are needed"
        )
    inner = (*path, descriptor.full_name)
    fields = [field for field in descriptor.fields if only is None or field.name in only]
    return Types.ROW_NAMED([field.name for field in fields], [_field_type(field, inner) for field in fields])


def _field_type(field: Any, path: tuple[str, ...]) -> TypeInformation:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return Types.MAP(_value_type(entry["key"], path), _value_type(entry["value"], path))
    value = _value_type(field, path)
    return Types.LIST(value) if is_repeated(field) else value


def _value_type(field: Any, path: tuple[str, ...]) -> TypeInformation:
    if is_message(field):
        name = field.message_type.full_name
        if name == TIMESTAMP:
            return Types.INSTANT()
        if name in WRAPPERS:
            return _value_type(field.message_type.fields_by_name["value"], path)
        return row_type_of(field.message_type, path)
    if field.type == BYTES:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _MAKERS[fitting_tags(field)[0]]()


def misfit(field: Any, declared: TypeInformation) -> InvalidProgramError:
    """The error for a declared type that one value of a field cannot have."""
    if is_message(field):
        expected = "INSTANT or SQL_TIMESTAMP" if field.message_type.full_name == TIMESTAMP else "ROW_NAMED"
    else:
        expected = " or ".join(fitting_tags(field)) or "PRIMITIVE_ARRAY(BYTE)"
    return _misfit(field, declared, expected)


def collection_misfit(field: Any, declared: TypeInformation) -> InvalidProgramError:
    """The error for a declared type that a repeated field or a map cannot have."""
    return _misfit(field, declared, "a MAP" if is_map(field) else "a LIST")


def _misfit(field: Any, declared: TypeInformation, expected: str) -> InvalidProgramError:
    return InvalidProgramError(
        f"the field {field.full_name} of a Protobuf message cannot be {declared}; declare {expected}"
    )
