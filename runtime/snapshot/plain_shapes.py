"""Shapes of values that MessagePack can carry unchanged: the fast form of undeclared values.

One call in C writes a run of equal-shaped values made of None, bool, int, float, str, bytes, lists, tuples
and dicts. The shape is a short text beside the run, so that reading returns tuples as tuples. Owner: the
calling thread; no state but caches. It must not be given values that contain themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypedDict

import msgspec

#: Exact types that MessagePack returns unchanged; integers only within its 64 bits, text only as UTF-8.
ATOMS: Final = frozenset((type(None), bool, int, float, str, bytes))

_NONE: Final = type(None)
_MAX_DEPTH: Final = 8
#: Most characters of a shape; longer ones (very wide tuples of unlike fields) use the general form.
_MAX_SHAPE: Final = 200

#: Decoders that are kept: names of dicts are data, so shapes may be as many as values.
_MOST_DECODERS: Final = 256
#: Characters that end a name in a shape.
_NAME_ENDS: Final = frozenset(":|")

# The grammar: a = atom, <s> = tuple of any length, (s1s2) = tuple of these fields, [s] = list, {s} = dict from
# atoms, |name:s1name:s2| = dict with just these names; a leading ? = or None.


def shape_of(values: Sequence[Any], depth: int = 0) -> str | None:
    """The common shape of all values, or None if they have none."""
    kinds = set(map(type, values))
    if kinds <= ATOMS:
        return "a"
    optional = "?" if _NONE in kinds else ""
    kinds.discard(_NONE)
    if len(kinds) != 1 or depth == _MAX_DEPTH:
        return None
    if optional:
        values = [value for value in values if value is not None]
    kind = kinds.pop()
    if kind is tuple:
        inner = _tuple_shape(values, depth + 1)
    elif kind is list:
        inner = _enclosed("[", shape_of(list(chain.from_iterable(values)), depth + 1), "]")
    elif kind is dict:
        inner = _dict_shape(values, depth + 1)
    else:
        return None
    return None if inner is None or len(inner) > _MAX_SHAPE else optional + inner


def _tuple_shape(values: Sequence[tuple[Any, ...]], depth: int) -> str | None:
    if set(map(type, chain.from_iterable(values))) <= ATOMS:
        return "<a>"
    length = len(values[0])
    if any(len(value) != length for value in values):
        return _enclosed("<", shape_of(list(chain.from_iterable(values)), depth), ">")
    fields = []
    for index in range(length):
        field = shape_of([value[index] for value in values], depth)
        if field is None:
            return None
        fields.append(field)
    return f"({''.join(fields)})"


def _dict_shape(values: Sequence[dict[Any, Any]], depth: int) -> str | None:
    kinds = set(map(type, values[0].values())) - {_NONE}
    if len(kinds) > 1 and not kinds <= ATOMS:
        # The contents of this dict alone have no common shape.
        return _record_shape(values, depth)
    if not set(map(type, chain.from_iterable(values))) <= ATOMS:
        return None
    inner = shape_of(list(chain.from_iterable(map(dict.values, values))), depth)
    return _record_shape(values, depth) if inner is None else f"{{{inner}}}"


def _record_shape(values: Sequence[dict[Any, Any]], depth: int) -> str | None:
    """The shape of dicts that all have the same names, in the same order, with a shape a name.

    One dict alone has none: its names may be data, and to make a decoder takes longer than to read a tree.
    """
    if len(values) < 2:
        return None
    names = tuple(values[0])
    if not all(type(name) is str and name.isascii() and _NAME_ENDS.isdisjoint(name) for name in names):
        return None
    if any(tuple(value) != names for value in values):
        return None
    fields = []
    for name in names:
        field = shape_of([value[name] for value in values], depth)
        if field is None:
            return None
        fields.append(f"{name}:{field}")
    return f"|{''.join(fields)}|"


def _enclosed(opening: str, inner: str | None, closing: str) -> str | None:
    return None if inner is None else opening + inner + closing


@lru_cache(maxsize=_MOST_DECODERS)
def decoder_of(shape: str) -> msgspec.msgpack.Decoder[list[Any]]:
    """Makes a decoder for lists of values of this shape. Raises ValueError for a text that is no shape."""
    found, end = _parse(shape, 0)
    if end != len(shape):
        raise ValueError(f"{shape!r} is no shape of values")
    return msgspec.msgpack.Decoder(list.__class_getitem__(found))


def _parse(shape: str, at: int) -> tuple[Any, int]:
    mark = shape[at : at + 1]
    if mark == "a":
        return Any, at + 1
    if mark == "?":
        inner, end = _parse(shape, at + 1)
        return inner | None, end
    if mark == "(":
        fields = []
        at += 1
        while shape[at : at + 1] != ")":
            field, at = _parse(shape, at)
            fields.append(field)
        return tuple.__class_getitem__(tuple(fields)), at + 1
    if mark == "|":
        return _parse_record(shape, at + 1)
    if mark in ("<", "[", "{"):
        inner, end = _parse(shape, at + 1)
        if shape[end : end + 1] == {"<": ">", "[": "]", "{": "}"}[mark]:
            made: Any = {
                "<": lambda: tuple.__class_getitem__((inner, ...)),
                "[": lambda: list.__class_getitem__(inner),
                "{": lambda: dict.__class_getitem__((Any, inner)),
            }[mark]()
            return made, end + 1
    raise ValueError(f"{shape!r} is no shape of values")


def _parse_record(shape: str, at: int) -> tuple[Any, int]:
    fields: dict[str, Any] = {}
    while shape[at : at + 1] != "|":
        end = shape.find(":", at)
        if end < 0:
            raise ValueError(f"{shape!r} is no shape of values")
        name = shape[at:end]
        fields[name], at = _parse(shape, end + 1)
    return TypedDict("Record", fields), at + 1  # type: ignore[operator]
