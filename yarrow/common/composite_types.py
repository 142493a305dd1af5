"""The declared types of tuples and Rows: a fixed number of fields, each of its own declared type.

Immutable values, usable from any thread. They do not know which types there are. Tags are part of the stored form:
added, never renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.common.type_information import TypeInformation, TypeSpec, add_composite, require_type
from yarrow.common.types import Row, RowKind, own_names, positional_row


class TupleTypeInfo(TypeInformation):
    """A Python tuple with a declared type for each position; any position may hold None."""

    __slots__ = ()

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        for index, field_type in enumerate(field_types):
            require_type(f"type of field {index} of TUPLE", field_type)
        object.__setattr__(self, "_identity", (tuple(field_types),))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the positions, in order."""
        return list(self._identity[0])

    @property
    def python_type(self) -> type:
        return tuple

    @property
    def is_immutable(self) -> bool:
        return all(field_type.is_immutable for field_type in self._identity[0])

    def accepts(self, value: object) -> bool:
        return isinstance(value, tuple) and _all_accepted(self._identity[0], value)

    def need_conversion(self) -> bool:
        return any(field_type.need_conversion() for field_type in self._identity[0])

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return tuple(t.to_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return tuple(t.from_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))

    def to_spec(self) -> TypeSpec:
        return ["TUPLE", [field_type.to_spec() for field_type in self._identity[0]]]

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._identity[0]))})"


class RowTypeInfo(TypeInformation):
    """A Row with a declared type, and if given a name, for each field; any field may hold None.

    A Row without names that enters a stream of this type bears the declared names, or f0, f1, ... where there are none.

    Raises ValueError when names and types differ in number or a name comes twice.
    """

    __slots__ = ()

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        for index, field_type in enumerate(field_types):
            require_type(f"type of field {index} of ROW", field_type)
        if field_names is not None:
            if len(field_names) != len(field_types):
                raise ValueError(f"{len(field_names)} names given for the {len(field_types)} fields of a ROW")
            if len(set(field_names)) != len(field_names):
                raise ValueError(f"field names of a ROW must differ from each other: {list(field_names)}")
        names = None if field_names is None else tuple(field_names)
        object.__setattr__(self, "_identity", (tuple(field_types), names))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields, in order."""
        return list(self._identity[0])

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, in order: f0, f1, ... when none were declared."""
        names = self._identity[1]
        return list(names) if names is not None else [f"f{index}" for index in range(len(self._identity[0]))]

    @property
    def is_named(self) -> bool:
        """Whether names were declared, so that they are part of the values."""
        return self._identity[1] is not None

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, or -1 when there is none of that name."""
        names = self.get_field_names()
        return names.index(field_name) if field_name in names else -1

    @property
    def python_type(self) -> type:
        return Row

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        if not isinstance(value, Row):
            return False
        names = own_names(value)
        if self.is_named and names is not None and names != self._identity[1]:
            return False
        return _all_accepted(self._identity[0], value)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        if not isinstance(obj, Row):
            raise TypeError(f"{self} takes a Row, not {type(obj).__name__}")
        values = tuple(t.to_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))
        return (obj.get_row_kind().value, values)

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        row_kind, values = obj
        row = positional_row(
            [t.from_internal_type(v) for t, v in zip(self._identity[0], values, strict=True)]
        )
        if self.is_named:
            row.set_field_names(self._identity[1])
        row.set_row_kind(RowKind(row_kind))
        return row

    def to_spec(self) -> TypeSpec:
        names = self._identity[1]
        return ["ROW", [t.to_spec() for t in self._identity[0]], None if names is None else list(names)]

    def __repr__(self) -> str:
        if not self.is_named:
            return f"RowTypeInfo({', '.join(map(str, self._identity[0]))})"
        pairs = zip(self.get_field_names(), self._identity[0], strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field_type}' for name, field_type in pairs)})"


add_composite("TUPLE", lambda fields: TupleTypeInfo([*map(TypeInformation.from_spec, fields)]))
add_composite("ROW", lambda fields, names: RowTypeInfo([*map(TypeInformation.from_spec, fields)], names))


def _all_accepted(field_types: tuple[TypeInformation, ...], values: Sequence[object] | Row) -> bool:
    return len(values) == len(field_types) and all(
        value is None or field_type.accepts(value)
        for field_type, value in zip(field_types, values, strict=True)
    )
