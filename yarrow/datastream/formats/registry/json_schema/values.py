"""Values of JSON as dicts with the fields of a reader's schema, and rows as values of JSON.

Owner: any thread; pure. Readers and writers raise ValueError that names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.common.types import Row, own_names
from yarrow.datastream.formats.registry.json_schema.shapes import ANY, JsonShape, kind_of, readable_kinds
from yarrow.datastream.formats.values import to_json

Read = Callable[[Any], Any]


def dict_reader(shape: JsonShape, *, keeps_others: bool) -> Read:
    """Return a function that checks the kinds of a decoded value and its fields, and returns the value.

    Fields that the shape does not know are left out unless `keeps_others`, or the shape is open.
    """
    return _Readers(keeps_others).of(shape)


class _Readers:
    """The functions of one shape, which may contain itself."""

    def __init__(self, keeps_others: bool) -> None:
        self._keeps_others = keeps_others
        self._made: dict[JsonShape, Read] = {}

    def of(self, shape: JsonShape) -> Read:
        if shape is ANY:
            return _as_it_is
        if shape in self._made:
            # The function is not there yet where a shape contains itself.
            return lambda value: self._made[shape](value)
        self._made[shape] = _as_it_is
        read_object = self._objects(shape) if "object" in shape.kinds else _as_it_is
        read_item = _as_it_is if shape.items is None else self.of(shape.items)
        kinds, expected = shape.kinds, shape.shown()

        def read(value: Any) -> Any:
            kind = kind_of(value)
            if not readable_kinds(frozenset({kind}), kinds):
                raise ValueError(f"{expected} is expected, not {value!r}"[:200])
            if kind == "object":
                return read_object(value)
            if kind == "array" and read_item is not _as_it_is:
                return [read_item(part) for part in value]
            return value

        self._made[shape] = read
        return read

    def _objects(self, shape: JsonShape) -> Read:
        named = {name: self.of(part) for name, part in shape.properties.items()}
        rest = None if shape.rest is None else self.of(shape.rest)
        if rest is None and (self._keeps_others or shape.is_open or not named):
            rest = _as_it_is
        required = sorted(shape.required)

        def read(value: dict[str, Any]) -> dict[str, Any]:
            for name in required:
                if name not in value:
                    raise ValueError(f"field {name!r} is missing")
            found = {}
            for name, part in value.items():
                reader = named.get(name, rest)
                if reader is not None:
                    try:
                        found[name] = reader(part)
                    except ValueError as error:
                        raise ValueError(f"field {name!r}: {error}") from None
            return found

        return read


def _as_it_is(value: Any) -> Any:
    return value


# ---------------------------------------------------------------------- writing


def value_writer(shape: JsonShape) -> Read:
    """Return a function from a row to the value that JSON has for it.

    A field of None is left out where the schema allows no null.
    """
    return _Writers().of(shape)


class _Writers:
    """The functions of one shape, which may contain itself."""

    def __init__(self) -> None:
        self._made: dict[JsonShape, Read] = {}

    def of(self, shape: JsonShape) -> Read:
        if not shape.properties and shape.rest is None and shape.items is None:
            return to_json
        if shape in self._made:
            # The function is not there yet where a shape contains itself.
            return lambda value: self._made[shape](value)
        self._made[shape] = to_json
        names = tuple(shape.properties)
        named = {name: self.of(part) for name, part in shape.properties.items()}
        left_out = {name for name, part in shape.properties.items() if "null" not in part.kinds}
        rest = to_json if shape.rest is None else self.of(shape.rest)
        item = to_json if shape.items is None else self.of(shape.items)

        def write(value: Any) -> Any:
            if isinstance(value, Row) and names:
                value = _fields_of(value, names)
            if isinstance(value, dict):
                found = {}
                for name, part in value.items():
                    if part is None and name in left_out:
                        continue
                    try:
                        found[name] = named.get(name, rest)(part)
                    except ValueError as error:
                        raise ValueError(f"field {name!r}: {error}") from None
                return found
            return [item(part) for part in value] if isinstance(value, list | tuple) else to_json(value)

        self._made[shape] = write
        return write


def _fields_of(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a Row by its own names, or by those of the schema."""
    if own_names(row) is not None:
        return row.as_dict()
    if len(row) != len(names):
        raise ValueError(f"{row!r} has {len(row)} fields without names, and the schema has {list(names)}")
    return dict(zip(names, row, strict=True))
