"""Whether keys of two declared types can be the same keys: the check when keyed state is restored.

Decided by the canonical encoding of keys (runtime.data.keys), and by nothing else: numbers of every width are one kind,
and so are texts. A type that says nothing of the encoding (undeclared, pickled, arrays, maps) is never compared.
Owner: any thread; pure. It must not know states or snapshots.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

from yarrow.common.time import Instant
from yarrow.common.typeinfo import (
    BasicTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.runtime.data.key_classes import RowKey

_NUMBER: Final = "number"
#: Kinds of single keys and the classes of their canonical form.
_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    _NUMBER: (int, float, Decimal),
    "text": (str,),
    "bytes": (bytes,),
    "instant": (Instant,),
    "SQL_DATE": (dt.date,),
    "SQL_TIME": (dt.time,),
    "SQL_TIMESTAMP": (dt.datetime,),
}
_BASIC_KINDS: Final = {"STRING": "text", "CHAR": "text", "INSTANT": "instant"}


def keys_may_meet(one: TypeInformation | None, other: TypeInformation | None) -> bool:
    """False where no key of the one type, but for None, is a key of the other; None: not declared.

    Rows of a named type may have been made without names, so that names are compared where both types have some.
    """
    if isinstance(one, TupleTypeInfo) and isinstance(other, TupleTypeInfo):
        return _fields_may_meet(one, other)
    if isinstance(one, RowTypeInfo) and isinstance(other, RowTypeInfo):
        named_apart = one.is_named and other.is_named and one.get_field_names() != other.get_field_names()
        return not named_apart and _fields_may_meet(one, other)
    kinds = _kind(one), _kind(other)
    return None in kinds or kinds[0] == kinds[1]


def _fields_may_meet(one: TupleTypeInfo | RowTypeInfo, other: TupleTypeInfo | RowTypeInfo) -> bool:
    ones, others = one.get_field_types(), other.get_field_types()
    return len(ones) == len(others) and all(map(keys_may_meet, ones, others))


def _kind(declared: TypeInformation | None) -> str | None:
    """The kind of keys of that type, the same for types with one encoding; None = the type does not say."""
    match declared:
        case BasicTypeInfo():
            return _BASIC_KINDS.get(declared.tag, _NUMBER)
        case SqlTimeTypeInfo():
            return declared.tag
        case PrimitiveArrayTypeInfo() if declared.python_type is bytes:
            return "bytes"
        case TupleTypeInfo():
            return "tuple"
        case RowTypeInfo():
            return "row"
    return None


def borne_out(declared: TypeInformation, key: Any) -> TypeInformation | None:
    """The part of a declared type that holds for a canonical key.

    Rows without names lose them, and PICKLED_BYTE_ARRAY stands for what the type does not say. It is None if
    the key is of another type.
    """
    match declared:
        case TupleTypeInfo():
            if key is None:
                return TupleTypeInfo([_unseen(each) for each in declared.get_field_types()])
            fields = _fields_borne_out(declared, key) if type(key) is tuple else None
            return None if fields is None else TupleTypeInfo(fields)
        case RowTypeInfo():
            if key is None:
                return RowTypeInfo([_unseen(each) for each in declared.get_field_types()])
            if not isinstance(key, RowKey):
                return None
            fields = _fields_borne_out(declared, key.values)
            if fields is None:
                return None
            named = declared.is_named and key.names is not None
            if named and list(key.names or ()) != declared.get_field_names():
                return None
            return RowTypeInfo(fields, declared.get_field_names() if named else None)
    kind = _kind(declared)
    if kind is None:
        return PickledBytesTypeInfo()
    if key is None:
        return declared
    if isinstance(key, dt.datetime):
        # A date to Python, and a key of its own; with a zone it is none that a type describes.
        return declared if kind == "SQL_TIMESTAMP" and key.tzinfo is None else None
    return declared if isinstance(key, _CLASSES[kind]) else None


def _unseen(declared: TypeInformation) -> TypeInformation:
    seen = borne_out(declared, None)
    assert seen is not None
    return seen


def _fields_borne_out(
    declared: TupleTypeInfo | RowTypeInfo, values: tuple[Any, ...]
) -> list[TypeInformation] | None:
    types = declared.get_field_types()
    if len(types) != len(values):
        return None
    found: list[TypeInformation] = []
    for field_type, value in zip(types, values, strict=True):
        seen = borne_out(field_type, value)
        if seen is None:
            return None
        found.append(seen)
    return found
