"""StateValues: the bytes of one state's values in RocksDB.

`struct` packs tuples of fixed-width numbers, and such numbers alone, in one call. The state's ValueSerializer
writes everything else, including numbers that do not fit. The first byte tells which. With time to live,
eight bytes with the time of the last access (epoch ms) come first. Owner: one thread at a time; it must not
know keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any, Final

import numpy as np

from yarrow.common.typeinfo import BasicTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.runtime.snapshot.handles import SerializerConfig
from yarrow.runtime.snapshot.value_serializers import ValueSerializer

#: First byte of a packed value; ValueSerializer begins with lower and higher ones, never with this.
PACKED: Final = 0x7E
_MARK: Final = bytes([PACKED])
_STAMP: Final = struct.Struct(">q")
STAMP_BYTES: Final = _STAMP.size
#: Formats of `struct` that refuse other values: a float is no integer, and an integer beyond the width fails.
#: DOUBLE is not among them: an integer would come back as a float.
_FORMATS: Final = {"BYTE": "b", "SHORT": "h", "INT": "i", "LONG": "q"}
#: With fewer values, numpy costs more than it saves.
_FEW: Final = 16
_MISFIT: Final = (struct.error, TypeError, OverflowError)


class StateValues:
    """Encodes and decodes values of one state; with `ttl` they are pairs (access time, value)."""

    def __init__(self, serializer: ValueSerializer, type_info: TypeInformation | None, ttl: bool) -> None:
        self.serializer = serializer
        self.ttl = ttl
        packing = _packing(type_info)
        self._packing = packing
        #: Packs and unpacks many values at once; None = one by one.
        self._tuples = None if packing is None or packing.tuples is None or ttl else packing.tuples
        self._numbers = None if packing is None or ttl else packing.numbers
        dump = self._dump_plain if packing is None else self._dump_packed
        load = self._load_plain if packing is None else self._load_packed
        #: Encodes a value. Raises StateSerializationError.
        self.dump: Callable[[Any], bytes] = self._stamping(dump) if ttl else dump
        #: Decodes a value. Raises StateSerializationError and StateMigrationError.
        self.load: Callable[[bytes], Any] = self._unstamping(load) if ttl else load

    @property
    def config(self) -> SerializerConfig:
        """The serializer's description, which a snapshot stores beside the values."""
        return self.serializer.config()

    def load_all(self, data: list[bytes | None], absent: Any) -> list[Any]:
        """Decodes many values, with `absent` for each None."""
        if self._tuples is not None:
            found = self._tuples.load_all(data)
            if found is not None:
                return found
        if self._packing is None or self.ttl:
            load = self.load
            return [absent if item is None else load(item) for item in data]
        unpack, slow = self._packing.unpack, self.serializer.load_value
        return [
            absent if item is None else unpack(item, 1) if item[0] == PACKED else slow(item) for item in data
        ]

    def dump_all(self, values: list[Any]) -> list[bytes]:
        """Encodes many values."""
        if self._numbers is not None and len(values) >= _FEW:
            numbers = self._numbers.dump_all(values)
            if numbers is not None:
                return numbers
        if self._tuples is not None and set(map(type, values)) == {tuple}:
            try:
                return list(starmap(self._tuples.pack, values))
            except _MISFIT:
                pass  # one of them does not fit: the others may
        dump = self.dump
        return [dump(value) for value in values]

    def _dump_plain(self, value: Any) -> bytes:
        return self.serializer.dump_value(value)

    def _load_plain(self, data: bytes) -> Any:
        return self.serializer.load_value(data)

    def _dump_packed(self, value: Any) -> bytes:
        assert self._packing is not None
        try:
            return self._packing.pack(value)
        except _MISFIT:
            return self.serializer.dump_value(value)

    def _load_packed(self, data: bytes) -> Any:
        assert self._packing is not None
        return self._packing.unpack(data, 1) if data[0] == PACKED else self.serializer.load_value(data)

    @staticmethod
    def _stamping(dump: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda pair: _STAMP.pack(pair[0]) + dump(pair[1])

    @staticmethod
    def _unstamping(load: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        return lambda data: (_STAMP.unpack_from(data)[0], load(data[STAMP_BYTES:]))


def access_time(data: bytes) -> int:
    """The access time of a value with time to live, in epoch ms."""
    stamp: int = _STAMP.unpack_from(data)[0]
    return stamp


class _Numbers:
    """Packed whole numbers of one width, many at once."""

    def __init__(self, form: str) -> None:
        self._form = np.dtype([("mark", "u1"), ("value", f">{form}")])
        self._limits = np.iinfo(np.dtype(form))

    def dump_all(self, values: list[Any]) -> list[bytes] | None:
        """Encodes many; None if some are not of the class or width."""
        if set(map(type, values)) != {int}:
            return None
        try:
            numbers = np.array(values, np.int64)
        except OverflowError:
            return None
        if numbers.min() < self._limits.min or numbers.max() > self._limits.max:
            return None
        out = np.empty(len(values), self._form)
        out["mark"] = PACKED
        out["value"] = numbers
        encoded: list[bytes] = out.view(f"V{out.itemsize}").tolist()
        return encoded


class _Tuples:
    """Packed tuples of one format, many at once."""

    def __init__(self, body: str) -> None:
        marked = struct.Struct(f">B{body}")
        self._size = marked.size
        self._unpack_all = struct.Struct(f">x{body}").iter_unpack
        #: Encodes the fields of a tuple.
        self.pack: Callable[..., bytes] = partial(marked.pack, PACKED)

    def load_all(self, data: list[bytes | None]) -> list[Any] | None:
        """Decodes many; None if some are absent or have another form."""
        try:
            joined = b"".join(data)  # type: ignore[arg-type]
        except TypeError:  # one is absent
            return None
        size = self._size
        if set(map(len, data)) != {size} or joined[::size] != _MARK * len(data):  # type: ignore[arg-type]
            return None
        return list(self._unpack_all(joined))


@dataclass(frozen=True, slots=True)
class _Packing:
    """Values of a type of fixed width."""

    #: Encodes a value, with the mark.
    pack: Callable[[Any], bytes]
    #: Decodes a value from an offset on.
    unpack: Callable[[bytes, int], Any]
    #: None if the values are no tuples.
    tuples: _Tuples | None = None
    #: None if the values are no single numbers.
    numbers: _Numbers | None = None


def _packing(type_info: TypeInformation | None) -> _Packing | None:
    """The packing of a type; None if it has no fixed width."""
    if isinstance(type_info, BasicTypeInfo) and type_info.tag in _FORMATS:
        one = struct.Struct(f">{_FORMATS[type_info.tag]}")
        pack_one = struct.Struct(f">B{_FORMATS[type_info.tag]}").pack
        return _Packing(
            lambda value: pack_one(PACKED, value),
            lambda data, at: one.unpack_from(data, at)[0],
            numbers=_Numbers(_FORMATS[type_info.tag]),
        )
    if type(type_info) is not TupleTypeInfo:
        return None
    fields = type_info.get_field_types()
    formats = [_FORMATS.get(field.tag) if isinstance(field, BasicTypeInfo) else None for field in fields]
    if not formats or None in formats:
        return None
    body = "".join(f for f in formats if f is not None)
    pack, length = struct.Struct(f">B{body}").pack, len(formats)

    def packed(value: Any) -> bytes:
        if value.__class__ is not tuple or len(value) != length:
            raise TypeError
        return pack(PACKED, *value)

    return _Packing(packed, struct.Struct(f">{body}").unpack_from, _Tuples(body))
