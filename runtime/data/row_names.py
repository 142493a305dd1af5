"""The names of Rows by the declared type of their stream, at any depth of nesting.

A Row without names gets those of its type. The names f0, f1, ... of `Types.ROW` are no part of its identity
and are set on the Row itself. The declared names of `Types.ROW_NAMED` are set on a new Row with the same
values. Owner: the calling thread; pure but for that. It must not check values: a value of another type is
returned unchanged, and the serializer reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yarrow.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.common.types import Row, bear_names, positional_names, row_of

Namer = Callable[[Any], Any]

_put_values = Row.__dict__["_values"].__set__


def borne_names(declared: RowTypeInfo) -> tuple[str, ...]:
    """The names of a Row without names in a stream of that type."""
    if declared.is_named:
        return tuple(declared.get_field_names())
    return positional_names(len(declared.get_field_types()))


def named_row(row: Row, names: tuple[str, ...]) -> Row:
    """A Row with these names around the values of another one."""
    return row_of(names, row._values, row._row_kind)


def namer_for(declared: TypeInformation | None) -> Namer | None:
    """A function that gives the Rows in a value of that type their names; None if the type has no Rows.

    The value itself comes back where all its Rows have names, or only f0, f1, ... were to be put on them.
    """
    match declared:
        case RowTypeInfo():
            return _row_namer(declared)
        case TupleTypeInfo():
            fields = _field_namers(declared.get_field_types())
            return (lambda value: _named_tuple(value, fields)) if fields else None
        case ListTypeInfo() | ObjectArrayTypeInfo() | BasicArrayTypeInfo():
            element = namer_for(declared.element_type)
            return None if element is None else lambda value: _named_list(value, element)
        case MapTypeInfo():
            item = namer_for(declared.value_type_info)
            return None if item is None else lambda value: _named_dict(value, item)
    return None


def _field_namers(types: Sequence[TypeInformation]) -> list[tuple[int, Namer]]:
    namers = enumerate(map(namer_for, types))
    return [(position, namer) for position, namer in namers if namer is not None]


def _row_namer(declared: RowTypeInfo) -> Namer:
    names, fields = borne_names(declared), _field_namers(declared.get_field_types())

    def name(value: Any) -> Any:
        if type(value) is not Row or len(value._values) != len(names):
            return value
        if type(value._fields) is not tuple and value._fields is not names:
            if type(names) is tuple:
                value = named_row(value, names)
            else:
                bear_names(value, names)
        for position, inner in fields:
            was = value._values[position]
            now = inner(was)
            if now is not was:
                values = [*value._values]
                values[position] = now
                value = named_row(value, value._fields)
                _put_values(value, values)
        return value

    return name


def _named_tuple(value: Any, fields: list[tuple[int, Namer]]) -> Any:
    if type(value) is not tuple or len(value) <= fields[-1][0]:
        return value
    for position, inner in fields:
        was = value[position]
        now = inner(was)
        if now is not was:
            value = (*value[:position], now, *value[position + 1 :])
    return value


def _named_list(value: Any, element: Namer) -> Any:
    if type(value) is not list:
        return value
    named = [element(each) for each in value]
    return value if all(a is b for a, b in zip(named, value, strict=True)) else named


def _named_dict(value: Any, item: Namer) -> Any:
    if type(value) is not dict:
        return value
    named = {key: item(each) for key, each in value.items()}
    return value if all(named[key] is each for key, each in value.items()) else named
