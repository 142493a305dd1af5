"""The declared types of arrays, lists and maps: any number of values of one declared type.

Immutable values, usable from any thread. They know that their elements have a type, not which ones there are, but for
the arrays that take basic values alone. Tags are part of the stored form: added, never renamed.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.basic_types import BASIC_TYPES, PRIMITIVES, BasicTypeInfo
from yarrow.common.type_information import TypeInformation, TypeSpec, add_composite, require_type


class _ElementTypeInfo(TypeInformation):
    """A homogeneous list of values of one declared type."""

    __slots__ = ()

    _TAG = ""
    #: Whether None may stand for an element.
    _NULLABLE_ELEMENTS = True

    def __init__(self, element_type: TypeInformation) -> None:
        require_type(f"element type of {self._TAG}", element_type)
        object.__setattr__(self, "_identity", (element_type,))

    @property
    def element_type(self) -> TypeInformation:
        """The type of the elements."""
        element_type: TypeInformation = self._identity[0]
        return element_type

    @property
    def python_type(self) -> type:
        return list

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        return isinstance(value, list) and all(
            self._NULLABLE_ELEMENTS if item is None else self.element_type.accepts(item) for item in value
        )

    def need_conversion(self) -> bool:
        return self.element_type.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return (
            obj
            if obj is None or not self.need_conversion()
            else [self.element_type.to_internal_type(i) for i in obj]
        )

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return [self.element_type.from_internal_type(item) for item in obj]

    def to_spec(self) -> TypeSpec:
        return [self._TAG, self.element_type.to_spec()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.element_type}>"


class PrimitiveArrayTypeInfo(_ElementTypeInfo):
    """The type of arrays of numbers, booleans or characters without None; `bytes` for elements of type BYTE."""

    __slots__ = ()
    _TAG = "PRIMITIVE_ARRAY"
    _NULLABLE_ELEMENTS = False

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _require_basic(self._TAG, element_type, PRIMITIVES)

    @property
    def _is_bytes(self) -> bool:
        return self.element_type.to_spec() == "BYTE"

    @property
    def python_type(self) -> type:
        return bytes if self._is_bytes else list

    @property
    def is_immutable(self) -> bool:
        return self._is_bytes

    def accepts(self, value: object) -> bool:
        return isinstance(value, bytes) if self._is_bytes else super().accepts(value)


class BasicArrayTypeInfo(_ElementTypeInfo):
    """An array of basic values, any of which may be None."""

    __slots__ = ()
    _TAG = "BASIC_ARRAY"

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _require_basic(self._TAG, element_type, frozenset(BASIC_TYPES))


class ObjectArrayTypeInfo(_ElementTypeInfo):
    """An array of values of any declared type, any of which may be None."""

    __slots__ = ()
    _TAG = "OBJECT_ARRAY"


class ListTypeInfo(_ElementTypeInfo):
    """A list of values of any declared type, any of which may be None."""

    __slots__ = ()
    _TAG = "LIST"


class MapTypeInfo(TypeInformation):
    """A dict from keys of one declared type to values of another; values may be None, keys may not."""

    __slots__ = ()

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        require_type("key type of MAP", key_type_info)
        require_type("value type of MAP", value_type_info)
        object.__setattr__(self, "_identity", (key_type_info, value_type_info))

    @property
    def key_type_info(self) -> TypeInformation:
        """The type of the keys."""
        key_type_info: TypeInformation = self._identity[0]
        return key_type_info

    @property
    def value_type_info(self) -> TypeInformation:
        """The type of the values."""
        value_type_info: TypeInformation = self._identity[1]
        return value_type_info

    @property
    def python_type(self) -> type:
        return dict

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        return isinstance(value, dict) and all(
            self.key_type_info.accepts(key) and (item is None or self.value_type_info.accepts(item))
            for key, item in value.items()
        )

    def need_conversion(self) -> bool:
        return self.key_type_info.need_conversion() or self.value_type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type_info.to_internal_type, self.value_type_info.to_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type_info.from_internal_type, self.value_type_info.from_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def to_spec(self) -> TypeSpec:
        return ["MAP", self.key_type_info.to_spec(), self.value_type_info.to_spec()]

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type_info}, {self.value_type_info}>"


add_composite("PRIMITIVE_ARRAY", lambda element: PrimitiveArrayTypeInfo(TypeInformation.from_spec(element)))
add_composite("BASIC_ARRAY", lambda element: BasicArrayTypeInfo(TypeInformation.from_spec(element)))
add_composite("OBJECT_ARRAY", lambda element: ObjectArrayTypeInfo(TypeInformation.from_spec(element)))
add_composite("LIST", lambda element: ListTypeInfo(TypeInformation.from_spec(element)))
add_composite("MAP", lambda *arguments: MapTypeInfo(*map(TypeInformation.from_spec, arguments)))


def _require_basic(what: str, element_type: TypeInformation, allowed: frozenset[str]) -> None:
    if not isinstance(element_type, BasicTypeInfo) or element_type.tag not in allowed:
        raise TypeError(
            f"{what} takes one of {', '.join(sorted(allowed))}, not {element_type}; use OBJECT_ARRAY"
        )
