"""Digests of rows: two values have one digest if their types and contents are equal, in any process.

Owner: any thread; pure. A pickle would not do: equal values pickle differently when they share parts. Texts are for
people, and their length is bounded.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import hashlib
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from yarrow.common.types import Row, own_names
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle

DIGEST_BYTES: Final = 16
#: Most characters of a row or key that is shown.
LONGEST_TEXT: Final = 2_000
#: Types whose text names their value.
_BY_TEXT: Final = (dt.date, dt.time, dt.timedelta, Decimal, uuid.UUID, range, complex)


class UncomparableRowError(YarrowError):
    """A row holds a value whose content cannot be read, so two of them cannot be compared."""


def digest(value: Any) -> bytes:
    """16 bytes that stand for the type and content of a value.

    All NaN are one value. Raises UncomparableRowError for a value without readable content.
    """
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        for part in _parts(value):
            found.update(part)
    except RecursionError:
        raise UncomparableRowError(
            f"a row of {type(value).__name__} cannot be compared: it holds itself, or is nested too deeply"
        ) from None
    return found.digest()


def text(value: Any) -> str:
    """The value for people, cut in the middle if it is long."""
    try:
        shown = repr(value)
    except Exception as error:  # user code may raise anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return cut_in_the_middle(shown, LONGEST_TEXT).encode(errors="backslashreplace").decode()


def _parts(value: Any) -> Iterator[bytes]:
    known = _PLAIN.get(type(value))
    if known is not None:
        yield known(value)
        return
    match value:
        case enum.Enum():
            yield _tagged(b"e", _name_of(type(value)), value.name.encode())
        case Row():
            names = own_names(value)
            yield _tagged(b"r", value.get_row_kind().name.encode(), repr(names).encode())
            yield from _sequence(list(value))
        case tuple() | list():
            yield _tagged(b"s", _name_of(type(value)))
            yield from _sequence(value)
        case dict():
            yield _tagged(b"d", _name_of(type(value)))
            yield from sorted(digest(key) + digest(content) for key, content in value.items())
            yield b";"
        case set() | frozenset():
            yield _tagged(b"u", _name_of(type(value)))
            yield from sorted(map(digest, value))
            yield b";"
        case np.ndarray():
            yield _tagged(b"a", str(value.dtype).encode(), str(value.shape).encode())
            yield from _sequence(value.reshape(-1).tolist())
        case np.generic():
            yield _tagged(b"g", str(value.dtype).encode())
            yield from _parts(value.item())
        case _ if isinstance(value, _BY_TEXT):
            yield _tagged(b"t", _name_of(type(value)), repr(value).encode())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield _tagged(b"c", _name_of(type(value)))
            yield from _sequence([getattr(value, field.name) for field in dataclasses.fields(value)])
        case type() | FunctionType() | BuiltinFunctionType():
            yield _tagged(b"q", _name_of(value))
        case _:
            yield from _object(value)


def _object(value: Any) -> Iterator[bytes]:
    """Any other object by what it says of itself for a copy."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception as error:  # user code may raise anything
        raise UncomparableRowError(
            f"a row holds a value of {type(value).__name__}, which cannot be compared: {error}. Give the row a"
            " dataclass, a tuple or another plain type"
        ) from error
    if isinstance(reduced, str):
        yield _tagged(b"q", reduced.encode())
        return
    made_by, arguments, state, items, entries = (*reduced, None, None, None)[:5]
    yield _tagged(b"o", _name_of(type(value)), _name_of(made_by))
    yield from _sequence(arguments)
    yield from _parts(state)
    yield from _sequence(() if items is None else items)
    yield from _sequence(() if entries is None else entries)


def _sequence(values: Iterable[Any]) -> Iterator[bytes]:
    for value in values:
        yield from _parts(value)
    yield b";"


def _tagged(tag: bytes, *parts: bytes) -> bytes:
    return b"".join((tag, *(struct.pack("<I", len(part)) + part for part in parts)))


def _name_of(thing: Any) -> bytes:
    module = getattr(thing, "__module__", "")
    return f"{module}:{getattr(thing, '__qualname__', type(thing).__qualname__)}".encode()


def _float(value: float) -> bytes:
    return b"f" + (b"nan     " if value != value else struct.pack("<d", value))


_PLAIN: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"n",
    bool: lambda value: b"b1" if value else b"b0",
    int: lambda value: _tagged(b"i", str(value).encode()),
    float: _float,
    str: lambda value: _tagged(b"x", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _tagged(b"y", value),
}
