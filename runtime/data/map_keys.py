"""Keys of the maps that programs keep in state: as a dict may hold them, as a program sees them, as a type wants them.

A Row is no key of a dict, and equal keys may differ in their type: both are settled by the canonical form of keys.
Owner: any thread; pure. Must not know states, backends or stored forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from yarrow.common.typeinfo import BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.common.types import Row, bear_names
from yarrow.runtime.data.keys import RowKey, canonicalize, user_key

Convert = Callable[[Any], Any]

#: Types of keys that are the same to a dict and to a program.
_PLAIN = frozenset((int, str, bytes, bool, type(None)))


def map_key(key: Any) -> Any:
    """The form of a user's map key in a dict: the key itself, or its canonical form if the dict needs that.

    Raises UnsupportedKeyError for a key that can neither be hashed nor made canonical.
    """
    if isinstance(key, Row) or key != key:
        return canonicalize(key)
    try:
        hash(key)
    except TypeError:
        return canonicalize(key)
    return key


def shown_map_key(key: Any) -> Any:
    """The user's form of `map_key`, whatever the declared type."""
    return user_key(key) if type(key) is RowKey or type(key) is tuple else key


def map_keys(keys: list[Any]) -> list[Any]:
    """`map_key` of each; the list itself where no key needs it."""
    return keys if set(map(type, keys)) <= _PLAIN else list(map(map_key, keys))


def shown_as(type_info: TypeInformation | None) -> Convert:
    """A function from a key in a dict to the user's form of it, of the declared type of the map's keys."""
    declared = declared_map_key(type_info)
    return shown_map_key if declared is None else lambda key: declared(shown_map_key(key))


def shown_map_keys(keys: list[Any], type_info: TypeInformation | None) -> list[Any]:
    """`shown_as` of each; the list itself where no key needs it."""
    if set(map(type, keys)) <= _PLAIN and declared_map_key(type_info) is None:
        return keys
    return list(map(shown_as(type_info), keys))


def declared_map_key(type_info: TypeInformation | None) -> Convert | None:
    """A function from a key in canonical form to a key of its declared type.

    There True is 1, 3.0 is 3 and Decimal("2.50") is 2.5. None where the canonical form is of the type. What is not of
    the type comes back as it is, to be refused by name.
    """
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC.get(type_info.tag)
    if isinstance(type_info, RowTypeInfo):
        of_fields = _steps(type_info.get_field_types())
        return None if of_fields is None else partial(_row, of_fields)
    if isinstance(type_info, TupleTypeInfo):
        of_fields = _steps(type_info.get_field_types())
        return None if of_fields is None else partial(_tuple, of_fields)
    return None


def _steps(types: Sequence[TypeInformation]) -> list[Convert | None] | None:
    steps = [declared_map_key(each) for each in types]
    return steps if any(steps) else None


def _bool(key: Any) -> Any:
    return bool(key) if type(key) is int and key in (0, 1) else key


def _decimal(key: Any) -> Any:
    return Decimal(key) if type(key) is int or type(key) is float else key


def _float(key: Any) -> Any:
    if type(key) is not int:
        return key
    try:
        number = float(key)
    except OverflowError:
        return key
    # The canonical form of a float is exact; another integer is refused by name.
    return number if number == key else key


_BASIC: Final[dict[str, Convert]] = {
    "BOOLEAN": _bool,
    "BIG_DEC": _decimal,
    "DOUBLE": _float,
    "FLOAT": _float,
}


def _fields(values: Sequence[Any], steps: list[Convert | None]) -> list[Any]:
    return [value if step is None else step(value) for value, step in zip(values, steps, strict=True)]


def _tuple(steps: list[Convert | None], key: Any) -> Any:
    return tuple(_fields(key, steps)) if type(key) is tuple and len(key) == len(steps) else key


def _row(steps: list[Convert | None], key: Any) -> Any:
    if not isinstance(key, Row) or len(key) != len(steps):
        return key
    row = Row(*_fields(list(key), steps))
    if key._fields is not None:
        bear_names(row, key._fields)
    return row
