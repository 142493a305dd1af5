"""TypedDictTypeInfo: the declared type of dicts with named fields, made from a TypedDict class.

For states: a program may add fields to such a dict and remove some, and still read what an older one has written.
Streams carry Rows or tuples instead. Values only, usable from any thread.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from yarrow.common.basic_types import (
    BasicTypeInfo,
    DateTypeInfo,
    PickledBytesTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from yarrow.common.collection_types import ListTypeInfo, MapTypeInfo, PrimitiveArrayTypeInfo
from yarrow.common.composite_types import TupleTypeInfo
from yarrow.common.type_information import TypeInformation, TypeSpec

__all__ = ["TypedDictTypeInfo"]

_SIMPLE: dict[Any, TypeInformation] = {
    bool: BasicTypeInfo("BOOLEAN"),
    int: BasicTypeInfo("LONG"),
    float: BasicTypeInfo("DOUBLE"),
    str: BasicTypeInfo("STRING"),
    bytes: PrimitiveArrayTypeInfo(BasicTypeInfo("BYTE")),
    Decimal: BasicTypeInfo("BIG_DEC"),
    date: DateTypeInfo(),
    time: TimeTypeInfo(),
    datetime: TimestampTypeInfo(),
}
_PLAIN = (type(None), bool, int, float, str)


class TypedDictTypeInfo(TypeInformation):
    """The type of dicts with declared fields.

    Any field may hold None, and fields that are not required may be absent.

    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        fields: Mapping[str, tuple[TypeInformation, bool]],
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`fields`: type, and whether it is required; `defaults`: of fields that older values do not have.

        Raises ValueError for the default of a field that is not there, TypeError for one of another type.
        """
        defaults = dict(defaults or {})
        for field, value in defaults.items():
            if field not in fields:
                raise ValueError(f"{name}: a default is given for {field!r}, which is no field of it")
            if not isinstance(value, _PLAIN) or not (value is None or fields[field][0].accepts(value)):
                raise TypeError(
                    f"{name}: the default of {field!r} must be None, bool, int, float or str and of the type "
                    f"{fields[field][0]}, not {value!r}"
                )
        declared = tuple((field, *kind) for field, kind in fields.items())
        object.__setattr__(self, "_identity", (name, declared, tuple(sorted(defaults.items()))))

    @staticmethod
    def of(cls: Any, defaults: Mapping[str, Any] | None = None) -> TypedDictTypeInfo:
        """The type of a TypedDict class. Raises TypeError for anything else."""
        if not is_typeddict(cls):
            raise TypeError(f"TYPED_DICT takes a TypedDict class, not {cls!r}")
        fields = {}
        try:
            hints = get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"TYPED_DICT({cls.__qualname__}): its annotations are texts, and {error} here. Make the type"
                " beside the class, as a constant of its module: a function in a worker knows only the names"
                " that it uses itself."
            ) from error
        for name, hint in hints.items():
            required = name in cls.__required_keys__
            if get_origin(hint) in (Required, NotRequired):
                required = get_origin(hint) is Required
                (hint,) = get_args(hint)
            fields[name] = (_type_of(hint), required)
        return TypedDictTypeInfo(cls.__qualname__, fields, defaults)

    @property
    def name(self) -> str:
        """The name of the class."""
        return str(self._identity[0])

    @property
    def fields(self) -> dict[str, tuple[TypeInformation, bool]]:
        """Type of each field, and whether it is required."""
        return {field: (kind, required) for field, kind, required in self._identity[1]}

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of fields in dicts that were written without them."""
        return dict(self._identity[2])

    @property
    def python_type(self) -> type:
        return dict

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        if not isinstance(value, dict):
            return False
        fields = self.fields
        if not value.keys() <= fields.keys():
            return False
        return all(
            (value[field] is None or kind.accepts(value[field])) if field in value else not required
            for field, (kind, required) in fields.items()
        )

    def to_spec(self) -> TypeSpec:
        fields = [[field, kind.to_spec(), required] for field, kind, required in self._identity[1]]
        return ["TYPED_DICT", self.name, fields, [list(item) for item in self._identity[2]]]

    @staticmethod
    def from_arguments(name: str, fields: list[list[Any]], defaults: list[list[Any]]) -> TypedDictTypeInfo:
        """The type of the arguments of a spec."""
        declared = {
            field: (TypeInformation.from_spec(kind), bool(required)) for field, kind, required in fields
        }
        return TypedDictTypeInfo(name, declared, {field: value for field, value in defaults})

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}: {kind}" for field, (kind, _) in self.fields.items())
        return f"TypedDictTypeInfo<{self.name}>({fields})"


def _type_of(hint: Any) -> TypeInformation:
    """The type that an annotation means; any Python value where it says nothing that could be checked."""
    simple = _SIMPLE.get(hint) if isinstance(hint, type) else None
    if simple is not None:
        return simple
    if is_typeddict(hint):
        return TypedDictTypeInfo.of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        return _type_of(others[0]) if len(others) == 1 else PickledBytesTypeInfo()
    if origin is list:
        return ListTypeInfo(_type_of(arguments[0]))
    if origin is dict:
        return MapTypeInfo(_type_of(arguments[0]), _type_of(arguments[1]))
    if origin is tuple and ... not in arguments:
        return TupleTypeInfo([_type_of(argument) for argument in arguments])
    return PickledBytesTypeInfo()
