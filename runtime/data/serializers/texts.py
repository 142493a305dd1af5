"""Column coders of str, bytes and values that pickle: their bytes joined, with lengths where these are needed.

Owner: the calling thread; coders have no state. Their bytes are a stored form. They must not know None, rows
or frames, nor judge pickles. Loading a pickle runs the code that it names, so the caller answers for the
source of the bytes.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.columns import (
    NO_NULLS,
    SOME_NULLS,
    Buffer,
    ColumnCoder,
    Misfit,
    cut,
    pack_lengths,
    take,
    unpack_lengths,
)

_U64 = struct.Struct("<Q")


class TextCoder(ColumnCoder):
    """str in UTF-8: joined by NUL where no value holds one, else with lengths in characters."""

    def __init__(self, single: bool = False) -> None:
        self._single = single
        self.expected = "a str of one character" if single else "a str"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if self._single and set(map(len, values)) != {1}:
            raise ValueError("not one character")
        text = "\0".join(values)
        if text.count("\0") == len(values) - 1:
            out.append(NO_NULLS)
        else:
            text = "".join(values)
            out.append(SOME_NULLS)
            out.append(pack_lengths([len(value) for value in values]))
        data = text.encode("utf-8", "surrogatepass")
        out.append(_U64.pack(len(data)))
        out.append(data)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        joined = data[at] == 0
        at += 1
        lengths: tuple[int, ...] = ()
        if not joined:
            lengths, at = unpack_lengths(data, at, count)
        size = _U64.unpack_from(data, at)[0]
        at += 8
        text = str(take(data, at, size), "utf-8", "surrogatepass")
        values = text.split("\0") if joined else cut(text, lengths)
        if len(values) != count:
            raise RowFormatError(f"{count} strings were announced and {len(values)} came")
        return values, at + size

    def check(self, value: Any, path: str) -> Misfit | None:
        if isinstance(value, str) and (not self._single or len(value) == 1):
            return None
        return Misfit(path, self.expected, value)


class BytesCoder(ColumnCoder):
    """bytes with their lengths."""

    expected = "bytes"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        for cls in set(map(type, values)):
            if not issubclass(cls, bytes):
                raise TypeError("not bytes")
        out.append(pack_lengths(list(map(len, values))))
        out.append(b"".join(values))

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        lengths, at = unpack_lengths(data, at, count)
        size = sum(lengths)
        return cut(bytes(take(data, at, size)), lengths), at + size

    def check(self, value: Any, path: str) -> Misfit | None:
        return None if isinstance(value, bytes) else Misfit(path, self.expected, value)


class PickledCoder(ColumnCoder):
    """A coder of any values that pickle: one pickle, protocol 5, of the list of values."""

    expected = "a value that pickles"
    pickles = True

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        try:
            data = pickle.dumps(values if type(values) is list else list(values), 5)
        except (pickle.PicklingError, RecursionError) as error:
            raise TypeError(str(error)) from error
        out.append(_U64.pack(len(data)))
        out.append(data)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        size = _U64.unpack_from(data, at)[0]
        values: list[Any] = pickle.loads(take(data, at + 8, size))
        if len(values) != count:
            raise RowFormatError(f"{count} pickled values were announced and {len(values)} came")
        return values, at + 8 + size

    def check(self, value: Any, path: str) -> Misfit | None:
        try:
            pickle.dumps(value, 5)
        except Exception as error:  # a user's __reduce__ may raise anything
            return Misfit(path, f"a value that pickles ({error})", value)
        return None
