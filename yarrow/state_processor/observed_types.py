"""ObservedTypes: the shape of values of no declared type, found by a look at all of them.

Values of one kind get a column of that kind. Tuples, Rows and instances of classes become structs, dicts maps or
structs, and values of several kinds texts. Owner: the calling thread; one ObservedTypes serves one
column, and keeps no value.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from yarrow.common.types import Row, own_names
from yarrow.runtime.data.key_classes import RowKey
from yarrow.runtime.data.plain_classes import fields_of_plain_class
from yarrow.state_processor.shapes import (
    SIMPLE,
    Shape,
    decimal_shape,
    integer_shape,
    list_shape,
    map_shape,
    positions,
    row_of,
    row_values,
    struct_shape,
    text_shape,
)

#: Dicts with more different texts as keys are no structs.
_MOST_FIELDS: Final = 64
#: The largest integer that a float holds exactly.
_EXACT: Final = 2**53
_ATOMS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    bytearray: "bytearray",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "timedelta",
    Decimal: "decimal",
    uuid.UUID: "uuid",
}
_LISTS: Final[dict[type, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    deque: deque,
    np.ndarray: np.array,
}
_DICTS: Final[dict[type, Callable[[dict[Any, Any]], Any]]] = {
    dict: dict,
    OrderedDict: OrderedDict,
    Counter: Counter,
    # Without its factory, which is no data: states that need it are written with a descriptor.
    defaultdict: dict,
}


class ObservedTypes:
    """The kinds of values seen in one column."""

    def __init__(self) -> None:
        #: Kinds of values, None left out; a class is its own kind.
        self._kinds: set[Any] = set()
        self._least = self._most = 0
        self._digits = self._scale = 0
        self._finite = True
        self._nulls = False
        self._fields: dict[Any, ObservedTypes] = {}
        self._keys: ObservedTypes | None = None
        self._items: ObservedTypes | None = None

    def observe_all(self, values: Iterable[Any]) -> None:
        """Looks at more values."""
        for value in values:
            self.observe(value)

    def observe(self, value: Any) -> None:
        """Looks at one value."""
        cls = value.__class__
        kind: Any = _ATOMS.get(cls)
        if kind == "null":
            self._nulls = True
            return
        if kind == "int":
            self._least, self._most = min(self._least, value), max(self._most, value)
        elif kind == "decimal":
            self._note_decimal(value)
        elif kind is None:
            kind = self._observe_other(cls, value)
        self._kinds.add(kind)

    def _note_decimal(self, value: Decimal) -> None:
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            self._finite = False
            return
        self._scale = max(self._scale, -exponent)
        self._digits = max(self._digits, len(digits) + exponent)

    def _observe_other(self, cls: type, value: Any) -> Any:
        """Looks into a value with parts; gives its kind."""
        if cls is dt.datetime:
            return "datetime" if value.tzinfo is None else "instant"
        if cls is tuple:
            self._observe_fields(enumerate(value))
            return ("tuple", len(value))
        if cls in _LISTS:
            self._items = self._items or ObservedTypes()
            self._items.observe_all(value if cls is not np.ndarray else value.tolist())
            return ("list", cls)
        if cls in _DICTS:
            self._observe_dict(value)
            return ("dict", cls)
        if cls is Row or cls is RowKey:
            names = own_names(value) if cls is Row else value.names
            self._observe_fields(enumerate(value if cls is Row else value.values))
            return ("row", names, len(self._fields))
        if isinstance(value, enum.Enum):
            return ("enum", cls)
        if isinstance(value, np.generic):
            self.observe(value.item())
            return _ATOMS.get(value.item().__class__, cls)
        names = field_names(value)
        if names is None:
            return cls
        self._observe_fields((name, getattr(value, name, None)) for name in names)
        return ("record", cls)

    def _observe_fields(self, fields: Iterable[tuple[Any, Any]]) -> None:
        for name, value in fields:
            found = self._fields.get(name)
            if found is None:
                found = self._fields[name] = ObservedTypes()
            found.observe(value)

    def _observe_dict(self, value: dict[Any, Any]) -> None:
        if self._keys is None or self._items is None:
            self._keys, self._items = ObservedTypes(), ObservedTypes()
        self._keys.observe_all(value)
        self._items.observe_all(value.values())
        if len(self._fields) <= _MOST_FIELDS:
            self._observe_fields((key, item) for key, item in value.items() if key.__class__ is str)

    def merge(self, other: ObservedTypes) -> None:
        """Add what another has seen, for instance in another process."""
        self._kinds |= other._kinds
        self._least, self._most = min(self._least, other._least), max(self._most, other._most)
        self._digits, self._scale = max(self._digits, other._digits), max(self._scale, other._scale)
        self._finite = self._finite and other._finite
        self._nulls = self._nulls or other._nulls
        for name, found in other._fields.items():
            own = self._fields.get(name)
            if own is None:
                self._fields[name] = found
            else:
                own.merge(found)
        self._keys = _merged(self._keys, other._keys)
        self._items = _merged(self._items, other._items)

    # ------------------------------------------------------------------ the shape

    def shape(self) -> Shape:
        """The shape that all values seen so far fit."""
        found = self._shape()
        return found if found is not None else text_shape(str_of, None)

    @property
    def has_only_numbers(self) -> bool:
        """Whether all values seen so far are integers, floats or None."""
        return self._kinds <= {"int", "float"}

    def map_key_shape(self) -> Shape:
        """The same for keys of maps, which Arrow does not allow to be null."""
        if self._nulls:
            return text_shape(str_of, None)
        return self.shape() if self._kinds else SIMPLE["str"]

    def _shape(self) -> Shape | None:
        kinds = self._kinds
        if not kinds:
            return SIMPLE["null"]
        if kinds == {"int", "float"} and self._least >= -_EXACT and self._most <= _EXACT:
            return SIMPLE["float"]
        if "decimal" in kinds and kinds <= {"decimal", "int"}:
            return self._decimals(kinds)
        if len(kinds) > 1:
            return None
        (kind,) = kinds
        if isinstance(kind, str):
            return self._atoms(kind)
        if isinstance(kind, type):
            return None
        return self._parts(*kind)

    def _decimals(self, kinds: set[Any]) -> Shape | None:
        if not self._finite:
            return None
        digits = max(self._digits, len(str(abs(self._least))), len(str(abs(self._most))))
        return decimal_shape(digits, self._scale)

    def _atoms(self, kind: str) -> Shape | None:
        if kind == "int":
            return integer_shape(self._least, self._most)
        if kind == "uuid":
            return text_shape(str, uuid.UUID)
        return SIMPLE.get(kind)

    def _parts(self, kind: str, detail: Any, count: int = 0) -> Shape | None:
        match kind:
            case "tuple":
                return self._struct(positions(detail), list, tuple)
            case "row" if detail is None:
                return self._struct(positions(count), row_values, lambda values: row_of(None, values))
            case "row":
                names = list(detail)
                return self._struct(names, row_values, lambda values: row_of(names, values))
            case "list":
                assert self._items is not None
                return list_shape(self._items.shape(), _LISTS[detail])  # type: ignore[arg-type]
            case "dict":
                return self._dicts(detail)
            case "enum":
                return text_shape(lambda member: member.name, detail.__getitem__)
        return self._records(detail)

    def _struct(
        self, names: list[str], take: Callable[[Any], list[Any]], make: Callable[[list[Any]], Any]
    ) -> Shape | None:
        if not names:
            return None  # Arrow's files have no structs without fields
        return struct_shape(names, [self._fields[key].shape() for key in self._fields], take, make)

    def _dicts(self, cls: type) -> Shape | None:
        assert self._keys is not None and self._items is not None
        if self._keys._nulls:
            return None
        one_kind = len(self._items._kinds) <= 1
        names = [str(name) for name in self._fields]
        if one_kind or self._keys._kinds != {"str"} or not 0 < len(names) <= _MOST_FIELDS:
            return map_shape(self._keys.map_key_shape(), self._items.shape(), _DICTS[cls])
        shapes = [self._fields[name].shape() for name in names]
        make = _DICTS[cls]

        def dict_of(values: list[Any]) -> Any:
            pairs = zip(names, values, strict=True)
            return make({name: value for name, value in pairs if value is not None})

        # A field that a dict lacks and one that is None look alike in a column.
        return struct_shape(names, shapes, lambda value: [value.get(name) for name in names], dict_of)

    def _records(self, cls: Any) -> Shape | None:
        names = [str(name) for name in self._fields]
        if not names:
            return None

        def make(values: list[Any]) -> Any:
            if issubclass(cls, tuple):
                return cls(*values)
            made = object.__new__(cls)
            for name, value in zip(names, values, strict=True):
                object.__setattr__(made, name, value)
            return made

        shapes = [self._fields[name].shape() for name in names]
        return struct_shape(names, shapes, lambda value: [getattr(value, name, None) for name in names], make)


def _merged(one: ObservedTypes | None, other: ObservedTypes | None) -> ObservedTypes | None:
    if one is not None and other is not None:
        one.merge(other)
    return one or other


def field_names(value: Any) -> list[str] | None:
    """The fields of a NamedTuple, a dataclass or an object with attributes; None for other values."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return list(names) if names is not None else None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    attributes = getattr(value, "__dict__", None)
    if attributes is None or fields_of_plain_class(type(value)) is None:
        return None
    return [name for name in attributes if isinstance(name, str)]


def str_of(value: Any) -> str:
    """A value of which no column is made: a text is itself."""
    return value if value.__class__ is str else repr(value)
