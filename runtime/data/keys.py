"""The canonical form of a key: one Python object for all values that are the same key.

Made once at key_by and used by routing, state and timers. Owner: the thread of the task; nothing here has
state but the table of types already seen. It must not use hash(), pickle or repr of a key for anything that
leaves the process.

An engine may first look a raw key up in a dict of canonical keys. For the supported types, a raw value that
Python finds equal to a canonical key (same hash, ==) is that key. Only a miss needs `canonicalize`. The
exceptions are listed in docs/design/0003-key-encoding.md.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from yarrow.common.types import Row, own_names, positional_row
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.data.key_classes import RecordPlan, RowKey, record_plan, refuse_local
from yarrow.runtime.data.key_encoding import (
    NAN,
    decode_key_from,
    encode_key,
    range_parts,
)

__all__ = [
    "NAN",
    "RowKey",
    "canonicalize",
    "decode_key_from",
    "encode_key",
    "user_key",
]

Canonicalizer = Callable[[Any], Any]

#: An integral Decimal longer than this is refused: Decimal("1E+999999999") would fill the memory as an int.
MAX_DECIMAL_DIGITS: Final = 10_000
_MAX_TYPES: Final = 4096
_SUPPORTED: Final = (
    "Key by None, a number, str, bytes, date, time, datetime, timedelta, UUID, Enum, range, frozen "
    "dataclass, Row, or a tuple or frozenset of these"
)


def canonicalize(key: Any) -> Any:
    """The canonical object of a key: equal results mean the same key, and `encode_key` takes the result.

    Raises UnsupportedKeyError for a value of any other type than those a key may have.
    """
    kind = type(key)
    if kind is int or kind is str or kind is bytes or key is None:
        return key
    found = _canonicalizers.get(kind)
    if found is None:
        found = _learn(kind)
    try:
        return found(key)
    except RecursionError:
        raise UnsupportedKeyError(kind, "it is nested too deeply", "Key by a flat tuple") from None


def user_key(key: Any) -> Any:
    """The key as user code sees it: the canonical key, with each Row in place of its immutable form."""
    kind = type(key)
    if kind is RowKey:
        values = [user_key(value) for value in key.values]
        if key.names is None:
            return positional_row(values)
        row = Row(*values)
        row.set_field_names(key.names)
        return row
    if kind is tuple:
        return tuple([user_key(value) for value in key])
    if kind is frozenset:
        return frozenset([user_key(value) for value in key])
    return key


def _same(key: Any) -> Any:
    return key


def _integer(key: Any) -> int:
    return int.__pos__(key)


def _float(key: Any) -> int | float:
    if key != key:
        return NAN
    if key.is_integer():
        return int(key)
    return float(key)


def _numpy_float(key: Any) -> int | float:
    value = float(key)
    if value != key and key == key:
        raise UnsupportedKeyError(type(key), "its value is no 64-bit float", "Convert it with float(key)")
    return _float(value)


def _decimal(key: Decimal) -> int | float | Decimal:
    if not key.is_finite():
        return NAN if key.is_nan() else float(key)
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    while len(digits) > 1 and digits[-1] == 0:
        digits = digits[:-1]
        exponent += 1
    if exponent >= 0 or digits == (0,):
        if len(digits) + exponent > MAX_DECIMAL_DIGITS and digits != (0,):
            raise UnsupportedKeyError(
                type(key), f"it is an integer of more than {MAX_DECIMAL_DIGITS} digits", "Key by its text"
            )
        return int(key)
    with decimal.localcontext() as context:
        context.traps[decimal.FloatOperation] = False
        value = float(key)
        if value == key:
            return value
    return Decimal((sign, digits, exponent))


def _date(key: dt.date) -> dt.date:
    return key if type(key) is dt.date else dt.date(key.year, key.month, key.day)


def _datetime(key: dt.datetime) -> dt.datetime:
    offset = key.utcoffset()
    if offset is None:
        return dt.datetime(key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond)
    wall = dt.datetime(
        key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond, tzinfo=dt.UTC
    )
    try:
        return wall - offset
    except OverflowError:
        raise UnsupportedKeyError(
            type(key),
            f"its UTC instant lies outside the years 1 to 9999 ({key.isoformat()})",
            "Key by an int timestamp",
        ) from None


def _time(key: dt.time) -> dt.time:
    if key.utcoffset() is not None:
        raise UnsupportedKeyError(
            type(key),
            "it is a time of day with a UTC offset",
            "Key by an aware datetime or by key.replace(tzinfo=None)",
        )
    return dt.time(key.hour, key.minute, key.second, key.microsecond)


def _uuid(key: uuid.UUID) -> uuid.UUID:
    return key if type(key) is uuid.UUID else uuid.UUID(int=key.int)


def _duration(key: dt.timedelta) -> dt.timedelta:
    return key if type(key) is dt.timedelta else dt.timedelta(key.days, key.seconds, key.microseconds)


#: Microseconds of numpy's units, above the line in one unit and below it in units of one microsecond.
_MICROS_OF: Final = {
    "W": 604_800_000_000, "D": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000,
    "ms": 1000, "us": 1,
}  # fmt: skip
_PER_MICRO: Final = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}


def _numpy_duration(key: Any) -> dt.timedelta:
    unit, count = np.datetime_data(key.dtype)
    number = int(key.astype(np.int64)) * count
    if np.isnat(key):
        raise UnsupportedKeyError(type(key), "it is no time (NaT)", "Key by None in its place")
    if unit in _PER_MICRO:
        number, rest = divmod(number, _PER_MICRO[unit])
        if rest:
            raise UnsupportedKeyError(
                type(key), "it has a fraction of a microsecond", "Key by its whole number of units"
            )
    elif unit in _MICROS_OF:
        number *= _MICROS_OF[unit]
    else:
        raise UnsupportedKeyError(
            type(key), f"its unit '{unit}' has no length in microseconds", "Convert it with key.item()"
        )
    try:
        return dt.timedelta(microseconds=number)
    except OverflowError:
        raise UnsupportedKeyError(
            type(key), "it is longer than a timedelta can be", "Key by its whole number of units"
        ) from None


def _frozenset(key: frozenset[Any]) -> frozenset[Any]:
    canonical = [(value, canonicalize(value)) for value in key]
    if type(key) is frozenset and all(value is made for value, made in canonical):
        return key
    return frozenset([made for _, made in canonical])


def _range(key: range) -> range:
    count, start, step = range_parts(key)
    return range(start, start + count * step, step)


_ATOMS: Final = frozenset((int, str, bytes, type(None)))


def _tuple(key: tuple[Any, ...]) -> tuple[Any, ...]:
    atoms = _ATOMS
    for value in key:
        if type(value) not in atoms:
            return tuple([canonicalize(value) for value in key])
    return key if type(key) is tuple else tuple(key)


def _row(key: Row) -> RowKey:
    return RowKey(own_names(key) or None, tuple([canonicalize(value) for value in key._values]))


def _record(key: Any, plan: RecordPlan) -> Any:
    values = [getattr(key, name) for name in plan.fields]
    canonical = [canonicalize(value) for value in values]
    if all(a is b for a, b in zip(values, canonical, strict=True)):
        return key
    return plan.rebuild(canonical)


def _member(key: enum.Enum) -> enum.Enum:
    if key.name not in type(key).__members__:
        raise UnsupportedKeyError(
            type(key), "it is a combination of flags without a name", "Key by its .value"
        )
    return key


_BASES: Final[tuple[tuple[type, Canonicalizer], ...]] = (
    (int, _integer),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (float, _float),
    (Decimal, _decimal),
    (dt.datetime, _datetime),
    (dt.date, _date),
    (dt.time, _time),
    (dt.timedelta, _duration),
    (uuid.UUID, _uuid),
    (tuple, _tuple),
    (frozenset, _frozenset),
    (range, _range),
)

#: Canonicalizer by exact type; grows by each type seen.
_canonicalizers: Final[dict[type, Canonicalizer]] = {
    **dict(_BASES),
    bool: _integer,
    type(None): _same,
    Row: _row,
    RowKey: _same,
}
_BUILT_IN: Final = dict(_canonicalizers)


def _learn(cls: type) -> Canonicalizer:
    found = _canonicalizer_of(cls)
    if len(_canonicalizers) >= _MAX_TYPES:  # a program that makes classes for ever must not fill the memory
        _canonicalizers.clear()
        _canonicalizers.update(_BUILT_IN)
    _canonicalizers[cls] = found
    return found


def _method(cls: Any, name: str) -> object:
    """The function behind a method of `cls`, for a comparison: a method's type hides it."""
    found: object = getattr(cls, name)
    return found


def _keeps_equality(cls: type, base: type) -> bool:
    return all(_method(cls, name) is _method(base, name) for name in ("__eq__", "__hash__"))


def _canonicalizer_of(cls: type) -> Canonicalizer:
    if issubclass(cls, np.generic):
        return _numpy_canonicalizer(cls)
    for base, canonicalizer in _BASES:
        if issubclass(cls, base):
            if not _keeps_equality(cls, base):
                raise UnsupportedKeyError(
                    cls,
                    f"it defines its own equality, which is not that of {base.__name__}",
                    f"Key by a {base.__name__}",
                )
            return canonicalizer
    if issubclass(cls, Row):
        return _row
    if issubclass(cls, enum.Enum):
        refuse_local(cls)
        if _method(cls, "__eq__") is not object.__eq__:
            raise UnsupportedKeyError(cls, "the Enum defines its own equality", "Key by its .value or .name")
        return _member
    if dataclasses.is_dataclass(cls):
        plan = record_plan(cls)
        return lambda key: _record(key, plan)
    raise UnsupportedKeyError(cls, "its type has no canonical form", _remedy(cls))


def _numpy_canonicalizer(cls: type) -> Canonicalizer:
    if issubclass(cls, np.timedelta64):  # numpy counts it among the integers
        return _numpy_duration
    if issubclass(cls, (np.bool_, np.integer)):
        return int
    if issubclass(cls, np.floating):
        return _numpy_float
    if issubclass(cls, np.str_):
        return str.__str__
    if issubclass(cls, np.bytes_):
        return bytes.__bytes__
    raise UnsupportedKeyError(cls, "its type has no canonical form", "Convert it with key.item()")


def _remedy(cls: type) -> str:
    if issubclass(cls, set):
        return "Key by frozenset(key)"
    if issubclass(cls, (list, dict)):
        return "Key by a tuple of its (sorted) elements"
    if issubclass(cls, (bytearray, memoryview)):
        return "Key by bytes(key)"
    return _SUPPORTED
