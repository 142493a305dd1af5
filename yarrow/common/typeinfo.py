"""Types: makes the declared types of streams, keys and state.

Users import this module. A type says which Python values it takes, and whether these can change after they were
emitted. It has a plain form (`to_spec`) of strings and lists, so that a graph can hold it without pickle. The
spec and its tags are a stored format: tags are added, never renamed. Values only, usable from any thread; the
coders that encode values of a type belong to the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yarrow.common.basic_types import (
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from yarrow.common.collection_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
)
from yarrow.common.composite_types import RowTypeInfo, TupleTypeInfo
from yarrow.common.type_information import TypeInformation, TypeSpec, add_composite, require_type

# Stored pickles name this function by this module.
from yarrow.common.type_information import _from_spec as _from_spec

__all__ = [
    "BasicArrayTypeInfo",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "TypeSpec",
    "Types",
]


class ExternalTypeInfo:
    """Stands for the type of a table's column as user code sees it, which is the declared type itself.

    PyFlink wraps the type because Java has a second form of such values; there is none here, so `ExternalTypeInfo(t)`
    gives `t` back. Raises TypeError for anything but a declared type.
    """

    def __new__(cls, type_info: TypeInformation) -> TypeInformation:  # type: ignore[misc]
        require_type("type of ExternalTypeInfo", type_info)
        return type_info


class Types:
    """Makes declared types."""

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`."""
        return BasicTypeInfo("STRING")

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of `int` of 8 bits, signed."""
        return BasicTypeInfo("BYTE")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return BasicTypeInfo("BOOLEAN")

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of `int` of 16 bits, signed."""
        return BasicTypeInfo("SHORT")

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of `int` of 32 bits, signed."""
        return BasicTypeInfo("INT")

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of `int` of 64 bits, signed."""
        return BasicTypeInfo("LONG")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of `float` of 32 bits in columns; rows keep its 64 bits."""
        return BasicTypeInfo("FLOAT")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of `float`."""
        return BasicTypeInfo("DOUBLE")

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of `str` of one character."""
        return BasicTypeInfo("CHAR")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of `int` of any size."""
        return BasicTypeInfo("BIG_INT")

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`."""
        return BasicTypeInfo("BIG_DEC")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of `yarrow.common.Instant`."""
        return InstantTypeInfo()

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time` without a zone."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime` without a zone."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any value that pickles."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of Rows without field names."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of Rows with these field names."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Return the type of Python tuples."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """Return the type of arrays without None; of `bytes` when the elements are BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """Return the type of arrays of basic values or None."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """Return the type of arrays of any declared type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """Return the type of dicts."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """Return the type of lists."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def TYPED_DICT(typed_dict: type, defaults: Mapping[str, Any] | None = None) -> TypeInformation:
        """Return the type of the dicts of a TypedDict class, for states.

        `defaults` are the values of fields that values written by an older program do not have. (Not in PyFlink.)
        """
        from yarrow.common.typed_dict import TypedDictTypeInfo

        return TypedDictTypeInfo.of(typed_dict, defaults)


def _typed_dict(*arguments: Any) -> TypeInformation:
    # Imported here, since most programs declare no TypedDict.
    from yarrow.common.typed_dict import TypedDictTypeInfo

    return TypedDictTypeInfo.from_arguments(*arguments)


add_composite("TYPED_DICT", _typed_dict)
