"""StateValues: the bytes of one state's values in RocksDB.

Tuples of fixed-width numbers, and such numbers alone, are packed by one call of `struct`; everything else, and what
does not fit, is written by the state's ValueSerializer. The first byte tells which. With time to live, eight bytes with
the time of the last access (epoch ms) stand in front. Owner: one thread at a time; it must not know keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from yarrow.common.typeinfo import BasicTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.runtime.snapshot.handles import SerializerConfig
from yarrow.runtime.snapshot.value_serializers import ValueSerializer

#: First byte of a packed value; ValueSerializer begins with lower and higher ones, never with this.
PACKED: Final = 0x7E
_STAMP: Final = struct.Struct(">q")
STAMP_BYTES: Final = _STAMP.size
#: What `struct` takes only if it fits: a float is no integer, an integer beyond the width is refused. DOUBLE is not
#: among them: an integer would come back as a float.
_FORMATS: Final = {"BYTE": "b", "SHORT": "h", "INT": "i", "LONG": "q"}
_MISFIT: Final = (struct.error, TypeError, OverflowError)


class StateValues:
    """Writes and reads values of one state; with `ttl` they are pairs (access time, value)."""

    def __init__(self, serializer: ValueSerializer, type_info: TypeInformation | None, ttl: bool) -> None:
        self.serializer = serializer
        self.ttl = ttl
        pack_one, unpack_one, pack_fields = _packing(type_info)
        self._pack, self._unpack, self._pack_fields = pack_one, unpack_one, pack_fields
        dump = self._dump_plain if pack_one is None else self._dump_packed
        load = self._load_plain if unpack_one is None else self._load_packed
        #: Bytes of a value. Raises StateSerializationError.
        self.dump: Callable[[Any], bytes] = self._stamping(dump) if ttl else dump
        #: The value of bytes. Raises StateSerializationError, StateMigrationError.
        self.load: Callable[[bytes], Any] = self._unstamping(load) if ttl else load
        #: Bytes of a value without its access time, and the reverse: what savepoints hold.
        self.dump_bare, self.load_bare = dump, load

    @property
    def config(self) -> SerializerConfig:
        """What a snapshot keeps beside the values."""
        return self.serializer.config()

    def load_all(self, data: list[bytes | None], absent: Any) -> list[Any]:
        """The values of many, `absent` for each None."""
        unpack = self._unpack
        if unpack is None or self.ttl:
            load = self.load
            return [absent if item is None else load(item) for item in data]
        slow = self.serializer.load_value
        return [
            absent if item is None else unpack(item, 1) if item[0] == PACKED else slow(item) for item in data
        ]

    def dump_all(self, values: list[Any]) -> list[bytes]:
        """The bytes of many."""
        pack_fields = self._pack_fields
        if pack_fields is not None and not self.ttl and set(map(type, values)) == {tuple}:
            try:
                return [pack_fields(PACKED, *value) for value in values]
            except _MISFIT:
                pass  # one of them does not fit: the others may
        dump = self.dump
        return [dump(value) for value in values]

    def _dump_plain(self, value: Any) -> bytes:
        return self.serializer.dump_value(value)

    def _load_plain(self, data: bytes) -> Any:
        return self.serializer.load_value(data)

    def _dump_packed(self, value: Any) -> bytes:
        assert self._pack is not None
        try:
            return self._pack(value)
        except _MISFIT:
            return self.serializer.dump_value(value)

    def _load_packed(self, data: bytes) -> Any:
        assert self._unpack is not None
        return self._unpack(data, 1) if data[0] == PACKED else self.serializer.load_value(data)

    @staticmethod
    def _stamping(dump: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda pair: _STAMP.pack(pair[0]) + dump(pair[1])

    @staticmethod
    def _unstamping(load: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        return lambda data: (_STAMP.unpack_from(data)[0], load(data[STAMP_BYTES:]))


def access_time(data: bytes) -> int:
    """The time in front of a value with time to live."""
    stamp: int = _STAMP.unpack_from(data)[0]
    return stamp


def _packing(
    type_info: TypeInformation | None,
) -> tuple[Callable[[Any], bytes] | None, Callable[[bytes, int], Any] | None, Callable[..., bytes] | None]:
    """(bytes of a value, value of bytes from an offset on, bytes of a mark and the fields of a tuple); None where the
    type is not of fixed width.
    """
    if isinstance(type_info, BasicTypeInfo) and type_info.tag in _FORMATS:
        one = struct.Struct(f">{_FORMATS[type_info.tag]}")
        pack_one = struct.Struct(f">B{_FORMATS[type_info.tag]}").pack
        return (lambda value: pack_one(PACKED, value)), (lambda data, at: one.unpack_from(data, at)[0]), None
    if type(type_info) is not TupleTypeInfo:
        return None, None, None
    fields = type_info.get_field_types()
    formats = [_FORMATS.get(field.tag) if isinstance(field, BasicTypeInfo) else None for field in fields]
    if not formats or None in formats:
        return None, None, None
    body = "".join(f for f in formats if f is not None)
    pack, length = struct.Struct(f">B{body}").pack, len(formats)

    def packed(value: Any) -> bytes:
        if value.__class__ is not tuple or len(value) != length:
            raise TypeError
        return pack(PACKED, *value)

    return packed, struct.Struct(f">{body}").unpack_from, pack
