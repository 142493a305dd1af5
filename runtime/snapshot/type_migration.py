"""Conversions of values from the declared type that wrote them to the present one.

Fields of named Rows and TypedDicts are converted by name (added: None or the default, removed: dropped).
Numbers become wider ones. Both also work inside tuples, lists and maps. Owner: the calling thread; pure.
Anything else is refused with the field's path; nothing is guessed from values.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from yarrow.common.typed_dict import TypedDictTypeInfo
from yarrow.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.common.types import Row, positional_row
from yarrow.runtime.data.serializers.tuple_lists import TupleListTypeInfo, list_of
from yarrow.runtime.snapshot.errors import StateMigrationError

Convert = Callable[[Any], Any]

_WHOLE: Final = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")
_LISTS: Final = (ListTypeInfo, ObjectArrayTypeInfo, BasicArrayTypeInfo, PrimitiveArrayTypeInfo)
_REMEDY: Final = (
    "Fields may be added to and removed from named Rows and TypedDicts, and numbers may become wider."
    " For any other change give the state a new name and fill it from the old one, or rewrite the"
    " savepoint."
)


class StatePlace(NamedTuple):
    """The operator, state and field that an error names."""

    operator: str
    state: str
    field: str = ""

    def within(self, part: str) -> StatePlace:
        """The place of a field within it."""
        return StatePlace(self.operator, self.state, f"{self.field}.{part}" if self.field else part)

    def error(self, was: object, now: object, remedy: str = _REMEDY) -> StateMigrationError:
        """The error that refuses a change at this place."""
        return StateMigrationError(self.operator, self.state, self.field, str(was), str(now), remedy)


def conversion(was: TypeInformation, now: TypeInformation, place: StatePlace) -> Convert | None:
    """Converts a value of `was` to one of `now`, neither None; None if values pass unchanged.

    Raises StateMigrationError with the field that cannot be converted.
    """
    if was == now:
        return None
    if isinstance(now, TupleListTypeInfo):
        tuples = conversion(was, now.stored_type, place)
        return lambda value: list_of(value if tuples is None else tuples(value))
    if isinstance(was, BasicTypeInfo) and isinstance(now, BasicTypeInfo):
        return _basic(was, now, place)
    if isinstance(was, RowTypeInfo) and isinstance(now, RowTypeInfo):
        return _rows(was, now, place)
    if isinstance(was, TupleTypeInfo) and isinstance(now, TupleTypeInfo):
        return _tuples(was, now, place)
    if isinstance(was, _LISTS) and isinstance(now, _LISTS) and was.python_type is now.python_type is list:
        element = _nullable(conversion(was.element_type, now.element_type, place.within("[]")))
        return None if element is None else lambda value: [element(item) for item in value]
    if isinstance(was, MapTypeInfo) and isinstance(now, MapTypeInfo):
        return _maps(was, now, place)
    if isinstance(was, TypedDictTypeInfo) and isinstance(now, TypedDictTypeInfo):
        return _typed_dicts(was, now, place)
    raise place.error(was, now)


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _basic(was: BasicTypeInfo, now: BasicTypeInfo, place: StatePlace) -> Convert | None:
    change = (was.tag, now.tag)
    if was.tag in _WHOLE and now.tag in _WHOLE and _WHOLE.index(was.tag) < _WHOLE.index(now.tag):
        return None
    if change in (("FLOAT", "DOUBLE"), ("CHAR", "STRING")):
        return None
    if was.tag in _WHOLE and now.tag == "BIG_DEC":
        return Decimal
    if (was.tag in _WHOLE[:4] and now.tag == "DOUBLE") or (was.tag in _WHOLE[:2] and now.tag == "FLOAT"):
        return lambda value: _exact_float(value, was, now, place)
    raise place.error(was, now)


def _exact_float(value: int, was: TypeInformation, now: TypeInformation, place: StatePlace) -> float:
    made = float(value)
    if made != value:
        raise place.error(f"the {was} {value}", now, "That number is no 64-bit float: declare it as it was.")
    return made


def _rows(was: RowTypeInfo, now: RowTypeInfo, place: StatePlace) -> Convert | None:
    old_types, new_types = was.get_field_types(), now.get_field_types()
    names = now.get_field_names()
    if was.is_named and now.is_named:
        sources: list[int | None] = [
            position if (position := was.get_field_index(name)) >= 0 else None for name in names
        ]
    elif len(old_types) == len(new_types):
        sources = list(range(len(names)))
    else:
        raise place.error(was, now, "Fields without names are told apart by position: keep their number.")
    steps: list[tuple[int | None, Convert | None]] = []
    for name, source, new_type in zip(names, sources, new_types, strict=True):
        inner = None if source is None else conversion(old_types[source], new_type, place.within(name))
        steps.append((source, _nullable(inner)))
    field_names = names if now.is_named else None

    def convert(row: Row) -> Row:
        values = [
            None if source is None else row[source] if inner is None else inner(row[source])
            for source, inner in steps
        ]
        made = positional_row(values)
        if field_names is not None:
            made.set_field_names(field_names)
        made.set_row_kind(row.get_row_kind())
        return made

    return convert


def _tuples(was: TupleTypeInfo, now: TupleTypeInfo, place: StatePlace) -> Convert | None:
    old_types, new_types = was.get_field_types(), now.get_field_types()
    if len(old_types) != len(new_types):
        raise place.error(
            was, now, "Fields of a tuple have no names: keep their number, or declare a named Row."
        )
    steps = [
        _nullable(conversion(old, new, place.within(str(index))))
        for index, (old, new) in enumerate(zip(old_types, new_types, strict=True))
    ]
    if not any(steps):
        return None
    return lambda value: tuple(
        [item if step is None else step(item) for step, item in zip(steps, value, strict=True)]
    )


def _maps(was: MapTypeInfo, now: MapTypeInfo, place: StatePlace) -> Convert | None:
    key = _nullable(conversion(was.key_type_info, now.key_type_info, place.within("keys")))
    item = _nullable(conversion(was.value_type_info, now.value_type_info, place.within("values")))
    if key is None and item is None:
        return None
    keep: Convert = lambda value: value  # noqa: E731
    key, item = key or keep, item or keep
    return lambda value: {key(k): item(v) for k, v in value.items()}


def _typed_dicts(was: TypedDictTypeInfo, now: TypedDictTypeInfo, place: StatePlace) -> Convert | None:
    old, new, defaults = was.fields, now.fields, now.defaults
    steps: dict[str, Convert | None] = {}
    for field, (new_type, required) in new.items():
        if field in old:
            steps[field] = _nullable(conversion(old[field][0], new_type, place.within(field)))
        if field not in defaults and required and not (field in old and old[field][1]):
            raise place.within(field).error(
                "no such field" if field not in old else "a field that may be absent", new_type,
                "Give Types.TYPED_DICT a default for it, or declare it NotRequired.",
            )  # fmt: skip

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for field in new:
            if field in value and field in steps:
                step = steps[field]
                made[field] = value[field] if step is None else step(value[field])
            elif field in defaults:
                made[field] = defaults[field]
        return made

    return convert
