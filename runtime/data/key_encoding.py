"""The bytes of a canonical key, version 1: fixed for ever, held by golden vectors.

Self-delimiting, so that keys can be joined to what follows them; not ordered. Used by key groups, RocksDB,
savepoints, Spark and REST. Owner: the calling thread; no state. It must not accept what is not canonical, and
must not run user code when decoding beyond importing the module that defines a key class. Rules:
docs/design/0003-key-encoding.md.
"""

from __future__ import annotations

import datetime as dt
import enum
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from yarrow.runtime.data.errors import KeyDecodeError, UnsupportedKeyError
from yarrow.runtime.data.key_classes import (
    RowKey,
    declared_name,
    record_plan,
    restore_member,
    restore_record,
)

#: The one NaN of canonical keys: dict lookup and tuple comparison find it by identity.
NAN: Final = float("nan")

VERSION: Final = 1
NONE: Final = 0x00
INT: Final = 0x01
BIG_INT: Final = 0x02
FLOAT: Final = 0x03
DECIMAL: Final = 0x04
STR: Final = 0x05
BYTES: Final = 0x06
DATE: Final = 0x07
TIME: Final = 0x08
DATETIME: Final = 0x09
INSTANT: Final = 0x0A
UUID: Final = 0x0B
TUPLE: Final = 0x0C
ROW: Final = 0x0D
RECORD: Final = 0x0E
ENUM: Final = 0x0F
DURATION: Final = 0x10
BIG_DURATION: Final = 0x11
FROZENSET: Final = 0x12
RANGE: Final = 0x13

MIN_INT64: Final = -(1 << 63)
MAX_INT64: Final = (1 << 63) - 1
NAN_BITS: Final = 0x7FF8000000000000
MAX_DEPTH: Final = 64

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO: Final = dt.timedelta(microseconds=1)
_US_OF_DAY: Final = 86_400_000_000

_HEAD_INT = struct.Struct(">BBq")
_HEAD_LEN = struct.Struct(">BBI")
_tag_int = struct.Struct(">Bq").pack
_tag_double = struct.Struct(">Bd").pack
_tag_len = struct.Struct(">BI").pack
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")

Append = Callable[[bytes], None]


def encode_key(key: Any) -> bytes:
    """The encoding of a canonical key, see `canonicalize`.

    Raises TypeError for a value that is not canonical.
    """
    kind = type(key)
    if kind is int:
        if MIN_INT64 <= key <= MAX_INT64:
            return _HEAD_INT.pack(VERSION, INT, key)
    elif kind is str:
        text: bytes = key.encode("utf-8", "surrogatepass")
        return _HEAD_LEN.pack(VERSION, STR, len(text)) + text
    elif kind is bytes:
        return b"".join((_HEAD_LEN.pack(VERSION, BYTES, len(key)), key))
    out = [b"\x01"]
    _encode(key, out.append, 0)
    return b"".join(out)


def _encode(key: Any, put: Append, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnsupportedKeyError(
            type(key), f"it is nested deeper than {MAX_DEPTH} levels in its key", "Key by a flat tuple"
        )
    kind = type(key)
    if kind is str:
        text = key.encode("utf-8", "surrogatepass")
        put(_tag_len(STR, len(text)) + text)
    elif kind is int:
        put(_tag_int(INT, key) if MIN_INT64 <= key <= MAX_INT64 else _big_int(key))
    elif kind is tuple:
        put(_tag_len(TUPLE, len(key)))
        for value in key:
            _encode(value, put, depth + 1)
    elif kind is RowKey:
        _encode_row(key, put, depth)
    elif kind is frozenset:
        put(_tag_len(FROZENSET, len(key)) + b"".join(sorted(_element(value, depth) for value in key)))
    elif kind is range:
        put(b"\x13")
        for part in range_parts(key):
            _encode(part, put, depth + 1)
    else:
        atom = _ATOMS.get(kind)
        if atom is not None:
            put(atom(key))
        elif isinstance(key, enum.Enum) and not isinstance(key, (int, str, bytes, float)):
            put(b"\x0f" + _text(declared_name(kind)) + _text(key.name))
        elif hasattr(kind, "__dataclass_fields__"):
            plan = record_plan(kind)
            put(b"\x0e" + _text(plan.name) + _U32.pack(len(plan.fields)))
            for name in plan.fields:
                put(_text(name))
                _encode(getattr(key, name), put, depth + 1)
        else:
            raise TypeError(
                f"{kind.__module__}.{kind.__qualname__} is not a canonical key; call canonicalize first"
            )


def _element(key: Any, depth: int) -> bytes:
    out: list[bytes] = []
    _encode(key, out.append, depth + 1)
    return b"".join(out)


def range_parts(key: range) -> tuple[int, int, int]:
    """Count, start and step of a range: alike for ranges that are equal as sequences."""
    start, stop, step = int(key.start), int(key.stop), int(key.step)
    count = max(0, -((start - stop) // step))
    return count, start if count else 0, step if count > 1 else 1


def _encode_row(key: RowKey, put: Append, depth: int) -> None:
    put(_tag_len(ROW, len(key.values)) + (b"\x00" if key.names is None else b"\x01"))
    for name in key.names or ():
        put(_text(name))
    for value in key.values:
        _encode(value, put, depth + 1)


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _U32.pack(len(data)) + data


def _big_int(key: int, tag: int = BIG_INT) -> bytes:
    data = key.to_bytes((key.bit_length() + 8) // 8, "big", signed=True)
    return _tag_len(tag, len(data)) + data


def _duration(key: dt.timedelta) -> bytes:
    micros = key // _MICRO
    if MIN_INT64 <= micros <= MAX_INT64:
        return _tag_int(DURATION, micros)
    return _big_int(micros, BIG_DURATION)


def _float(key: float) -> bytes:
    if key != key:
        return _tag_int(FLOAT, NAN_BITS)
    if key.is_integer():
        raise TypeError(f"the integral float {key!r} is not a canonical key; call canonicalize first")
    return _tag_double(FLOAT, key)


def _decimal(key: Decimal) -> bytes:
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"{key!r} is not a canonical key; call canonicalize first")
    number = int("".join(map(str, digits)))
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return b"\x04" + bytes((sign,)) + _I64.pack(exponent) + _U32.pack(len(data)) + data


def _datetime(key: dt.datetime) -> bytes:
    if key.tzinfo is None:
        return _tag_int(DATETIME, (key - _EPOCH) // _MICRO)
    return _tag_int(INSTANT, (key - _EPOCH_UTC) // _MICRO)


def time_micros(key: dt.time) -> int:
    """Microseconds since midnight of a time of day."""
    return ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond


_ATOMS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda key: b"\x00",
    bytes: lambda key: _tag_len(BYTES, len(key)) + key,
    float: _float,
    Decimal: _decimal,
    dt.date: lambda key: _tag_int(DATE, key.toordinal() - _EPOCH_DAY),
    dt.time: lambda key: _tag_int(TIME, time_micros(key)),
    dt.datetime: _datetime,
    dt.timedelta: _duration,
    uuid.UUID: lambda key: b"\x0b" + key.bytes,
}


def decode_key_from(data: bytes, offset: int) -> tuple[Any, int]:
    """The key that begins at `offset`, and the offset after it. Raises KeyDecodeError."""
    return _Decoder(data, restore_record, restore_member).decode(offset)


class _Decoder:
    """A decoder of one key; the caller gives the functions that make keys of classes."""

    def __init__(
        self,
        data: bytes,
        record: Callable[[str, list[tuple[str, Any]]], Any],
        member: Callable[[str, str], Any],
    ) -> None:
        self._data = data
        self._at = 0
        self._record = record
        self._member = member

    def decode(self, offset: int) -> tuple[Any, int]:
        self._at = offset
        version = self._take(1)[0]
        if version != VERSION:
            raise KeyDecodeError(
                f"a key of encoding version {version} is unknown: this release reads version {VERSION}"
            )
        return self._value(0), self._at

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise KeyDecodeError(
                f"a key encoding ends after {len(self._data)} bytes where {end} were expected"
            )
        part = self._data[self._at : end]
        self._at = end
        return part

    def _sized(self) -> bytes:
        return self._take(_U32.unpack(self._take(4))[0])

    def _text(self) -> str:
        try:
            return str(self._sized(), "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise KeyDecodeError(f"a key encoding holds text that is not UTF-8: {error}") from error

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise KeyDecodeError(f"a key encoding is nested deeper than {MAX_DEPTH} levels")
        tag = self._take(1)[0]
        if tag in (INT, DATE, TIME, DATETIME, INSTANT, DURATION):
            return self._fixed(tag, _I64.unpack(self._take(8))[0])
        if tag == STR:
            return self._text()
        if tag == TUPLE:
            return tuple([self._value(depth + 1) for _ in range(self._count(1))])
        if tag == NONE:
            return None
        if tag == FLOAT:
            value = _F64.unpack(self._take(8))[0]
            return NAN if value != value else value
        if tag == BYTES:
            return self._sized()
        if tag == BIG_INT:
            return int.from_bytes(self._sized(), "big", signed=True)
        if tag == UUID:
            return uuid.UUID(bytes=self._take(16))
        if tag == DECIMAL:
            return self._decimal()
        return self._composite(tag, depth)

    def _composite(self, tag: int, depth: int) -> Any:
        if tag == ROW:
            count = self._count(1)
            names = tuple([self._text() for _ in range(count)]) if self._take(1)[0] else None
            return RowKey(names, tuple([self._value(depth + 1) for _ in range(count)]))
        if tag == RECORD:
            name = self._text()
            return self._record(name, [(self._text(), self._value(depth + 1)) for _ in range(self._count(5))])
        if tag == ENUM:
            name = self._text()
            return self._member(name, self._text())
        if tag == BIG_DURATION:
            return self._fixed(tag, int.from_bytes(self._sized(), "big", signed=True))
        if tag == FROZENSET:
            return frozenset([self._value(depth + 1) for _ in range(self._count(1))])
        if tag == RANGE:
            return self._range(depth)
        raise KeyDecodeError(
            f"a key encoding has the unknown tag {tag:#04x}; it was written by a later release or is damaged"
        )

    def _range(self, depth: int) -> range:
        count, start, step = parts = [self._value(depth + 1) for _ in range(3)]
        if set(map(type, parts)) != {int} or count < 0 or not step:
            raise KeyDecodeError(f"a key encoding holds a range of count, start and step {parts}")
        return range(start, start + count * step, step)

    def _count(self, least: int) -> int:
        """A number of elements of at least `least` bytes each, checked before any element is made."""
        count: int = _U32.unpack(self._take(4))[0]
        if count * least > len(self._data) - self._at:
            raise KeyDecodeError(
                f"a key encoding announces {count} elements, more than its {len(self._data)} bytes hold"
            )
        return count

    def _decimal(self) -> Decimal:
        sign = self._take(1)[0]
        exponent = _I64.unpack(self._take(8))[0]
        digits = tuple(map(int, str(int.from_bytes(self._sized(), "big"))))
        return Decimal((sign & 1, digits, exponent))

    def _fixed(self, tag: int, value: int) -> Any:
        try:
            if tag == INT:
                return value
            if tag == DATE:
                return dt.date.fromordinal(value + _EPOCH_DAY)
            if tag == TIME:
                if not 0 <= value < _US_OF_DAY:
                    raise ValueError("time of day out of range")
                return (_EPOCH + value * _MICRO).time()
            if tag in (DURATION, BIG_DURATION):
                return dt.timedelta(microseconds=value)
            return (_EPOCH if tag == DATETIME else _EPOCH_UTC) + value * _MICRO
        except (ValueError, OverflowError) as error:
            raise KeyDecodeError(f"a key encoding holds a date or time out of range: {error}") from error
