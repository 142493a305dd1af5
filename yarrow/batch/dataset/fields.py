"""Fields: which part of a record is its key, or what it is sorted or aggregated by.

Owner: the thread that builds the program makes the selectors, tasks call them. A field is a position or a name.
Names are those of a Row's fields and of attributes. `f0` is the first field of a tuple, `a.b` a nested field, and `*`
the record itself.
Checks against declared types alone: nothing here looks at records before the program runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from yarrow.common.typeinfo import BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.datastream.functions import KeySelector
from yarrow.datastream.program.user_functions import require_function
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.errors import MissingFieldError

#: A field of a record.
Field = int | str
#: A field, or a key selector.
Key = Field | Callable[[Any], Any] | KeySelector[Any, Any]
WHOLE: Final = "*"
_POSITIONAL: Final = re.compile("f([0-9]+)")


class NamedField:
    """Reads a field by its name from Rows, dicts and objects, and `f0` and so on from tuples."""

    def __init__(self, name: str) -> None:
        self._name = name
        found = _POSITIONAL.fullmatch(name)
        self._position = int(found[1]) if found else None

    def __call__(self, record: Any) -> Any:
        """The value of the field. Raises MissingFieldError for a record without it."""
        try:
            if isinstance(record, dict):
                return record[self._name]
            return getattr(record, self._name)
        except (KeyError, AttributeError):
            if self._position is not None and isinstance(record, tuple | list):
                if self._position < len(record):
                    return record[self._position]
                raise MissingFieldError(self._position, record) from None
            raise MissingFieldError(self._name, record) from None


class PositionedField:
    """Reads a field by its position, beside fields with names."""

    def __init__(self, position: int) -> None:
        self._position = position

    def __call__(self, record: Any) -> Any:
        """The value of the field. Raises MissingFieldError for a record without it."""
        try:
            return record[self._position]
        except (LookupError, TypeError):
            raise MissingFieldError(self._position, record) from None


class NestedField:
    """Reads a field of a field."""

    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self._steps = tuple(steps)

    def __call__(self, record: Any) -> Any:
        """The value of the field. Raises MissingFieldError."""
        for step in self._steps:
            record = step(record)
        return record


class SeveralFields:
    """The values of several fields as a tuple."""

    def __init__(self, fields: Sequence[Callable[[Any], Any]]) -> None:
        self._fields = tuple(fields)

    def __call__(self, record: Any) -> Any:
        """The values. Raises MissingFieldError."""
        return tuple([field(record) for field in self._fields])


def itself(record: Any) -> Any:
    """The record."""
    return record


def one_group(record: Any) -> int:
    """The key of records that are one group."""
    return 0


def key_of(call: str, keys: Sequence[Any], declared: TypeInformation | None) -> Callable[[Any], Any] | Any:
    """The key selector for the arguments of `call`: one selector, or fields.

    Raises InvalidProgramError for fields that the declared type does not have, TypeError for other arguments.
    """
    if not keys:
        raise InvalidProgramError(
            f"{call}() needs a key: positions or names of fields, or a function that gives the key of a record"
        )
    if len(keys) == 1 and not isinstance(keys[0], int | str):
        require_function(keys[0], KeySelector, call)
        return keys[0]
    return selector_of(call, keys, declared)


def selector_of(call: str, fields: Sequence[Field], declared: TypeInformation | None) -> Callable[[Any], Any]:
    """The function that gives the value of one field, or the tuple of several. Raises as `key_of`."""
    places = [place_of(call, field, declared) for field in fields]
    if all(type(place) is int for place in places):
        return itemgetter(*places)
    readers = [reader_of(place) for place in places]
    return readers[0] if len(readers) == 1 else SeveralFields(readers)


def place_of(call: str, field: Field, declared: TypeInformation | None) -> Field:
    """The field as a position, where the declared type gives it one. Raises as `key_of`."""
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise TypeError(f"{call} takes positions or names of fields, not {field!r}")
    if field == WHOLE:
        return field
    if isinstance(declared, BasicTypeInfo):
        raise InvalidProgramError(
            f"{call}({field!r}): the records are single values of {declared}, without fields; use {WHOLE!r} for the "
            "value itself"
        )
    names = _names_of(declared)
    if isinstance(field, int):
        if field < 0 or (names is not None and field >= len(names)):
            there_are = "positions count from 0" if names is None else f"the records have {len(names)} fields"
            raise InvalidProgramError(f"{call}({field}): there is no such field; {there_are}")
        return field
    first, dot, rest = field.partition(".")
    if names is None:
        return field
    if first not in names:
        raise InvalidProgramError(f"{call}({field!r}): there is no such field; the records have {names}")
    position = names.index(first)
    return f"{position}.{rest}" if dot else position


def reader_of(place: Field) -> Callable[[Any], Any]:
    """The function that reads a field at such a place."""
    if place == WHOLE:
        return itself
    if isinstance(place, int):
        return PositionedField(place)
    steps = [PositionedField(int(step)) if step.isdigit() else NamedField(step) for step in place.split(".")]
    return steps[0] if len(steps) == 1 else NestedField(steps)


def _names_of(declared: TypeInformation | None) -> list[str] | None:
    """The names of the fields of a declared type; None = it does not tell."""
    if isinstance(declared, RowTypeInfo):
        return list(declared.get_field_names())
    if isinstance(declared, TupleTypeInfo):
        return [f"f{position}" for position in range(len(declared.get_field_types()))]
    return None


def type_of(place: Field, declared: TypeInformation | None) -> TypeInformation | None:
    """The declared type of a field; None = it is not declared."""
    if isinstance(place, int) and isinstance(declared, RowTypeInfo | TupleTypeInfo):
        return declared.get_field_types()[place]
    return declared if place == WHOLE else None
