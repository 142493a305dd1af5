"""Column coders: how the values of one declared type are written one after another, and read back.

A coder packs values without None; `write_column` adds the bitmap of those that are None. Packing tries the
fast way and raises one of MISFITS when a value does not fit. `check` then finds the value and says what was
expected. All numbers are little-endian. Owner: the calling thread; coders have no state. They must not know
batches, frames or channels. The coders of single types stand in modules beside this one, by kind of type.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from yarrow.runtime.data.errors import RowFormatError

Buffer = bytes | memoryview

#: Errors of packing when a value does not fit its declared type.
MISFITS: Final = (TypeError, ValueError, OverflowError, AttributeError, struct.error)

#: The most elements of the lists, or entries of the dicts, of one column: checked before memory is taken for
#: them.
MAX_ELEMENTS: Final = 1 << 28

#: Bytes of a length, and of a number of elements.
COUNT_BYTES: Final = 4

NO_NULLS: Final = b"\x00"
SOME_NULLS: Final = b"\x01"
_ALL_NULLS: Final = b"\x02"


class Misfit(NamedTuple):
    """A value that does not fit: its place within the row, the expected form, and the value."""

    path: str
    expected: str
    value: object


class ColumnCoder(ABC):
    """Writes and reads the values of one declared type."""

    #: The expected form in the words of `check`.
    expected: str
    #: Whether values, or parts of them, are pickled.
    pickles = False

    @abstractmethod
    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Appends the encoding of values none of which is None. Raises one of MISFITS."""

    def pack_runs(self, values: Sequence[Any], runs: Sequence[slice], outs: Sequence[list[bytes]]) -> None:
        """Appends the encoding of each run of `values` to its list, as `pack` does for the run alone.

        No run is empty. Raises one of MISFITS; the lists may then have too much.
        """
        for run, out in zip(runs, outs, strict=True):
            self.pack(values[run], out)

    @abstractmethod
    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        """The `count` values that begin at `at`, and the offset after them."""

    @abstractmethod
    def check(self, value: Any, path: str) -> Misfit | None:
        """The misfit in a value that is not None, or None."""


class ConvertedCoder(ColumnCoder):
    """Values of exactly one class, written as values of another coder."""

    def __init__(self, cls: type, expected: str, inner: ColumnCoder) -> None:
        self._cls = cls
        self.expected = expected
        self._inner = inner

    def to_inner(self, value: Any) -> Any:
        """The stored form of a value. Raises one of MISFITS."""
        raise TypeError(f"{type(self).__name__} lacks to_inner")

    def from_inner(self, value: Any) -> Any:
        """The value of a stored form."""
        raise TypeError(f"{type(self).__name__} lacks from_inner")

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if set(map(type, values)) != {self._cls}:
            raise TypeError(f"not {self.expected}")
        self._inner.pack(list(map(self.to_inner, values)), out)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        values, at = self._inner.unpack(data, at, count)
        return list(map(self.from_inner, values)), at

    def check(self, value: Any, path: str) -> Misfit | None:
        if type(value) is self._cls:
            try:
                self.to_inner(value)
            except MISFITS:
                return Misfit(path, self.expected, value)
            return None
        return Misfit(path, self.expected, value)


def write_column(coder: ColumnCoder, values: Sequence[Any], out: list[bytes]) -> None:
    """Appends a column whose values may be None. Raises one of MISFITS."""
    size = len(out)
    try:
        out.append(NO_NULLS)
        coder.pack(values, out)
    except MISFITS:
        absent = [value is None for value in values]
        if True not in absent:
            raise
        del out[size:]
        if False not in absent:
            out.append(_ALL_NULLS)
            return
        out.append(SOME_NULLS)
        out.append(np.packbits(np.array(absent, dtype=np.bool_)).tobytes())
        coder.pack([value for value in values if value is not None], out)


def write_column_runs(
    coder: ColumnCoder, values: Sequence[Any], runs: Sequence[slice], outs: Sequence[list[bytes]]
) -> None:
    """Appends a column a run, as write_column does for each run alone. Raises one of MISFITS."""
    sizes = list(map(len, outs))
    try:
        for out in outs:
            out.append(NO_NULLS)
        coder.pack_runs(values, runs, outs)
    except MISFITS:
        for run, out, size in zip(runs, outs, sizes, strict=True):
            del out[size:]
            write_column(coder, values[run], out)


def append_runs(data: bytes, size: int, runs: Sequence[slice], outs: Sequence[list[bytes]]) -> None:
    """Appends to the list of each run its part of a column whose values have `size` bytes each."""
    for run, out in zip(runs, outs, strict=True):
        out.append(data[run.start * size : run.stop * size])


def read_column(coder: ColumnCoder, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
    """The inverse of write_column. Raises RowFormatError, or what reading past the end raises."""
    flag = data[at]
    at += 1
    if flag == 0:
        return coder.unpack(data, at, count)
    if flag == 2:
        return [None] * count, at
    if flag != 1:
        raise RowFormatError(
            f"a column begins with the unknown flag {flag}; was it written for another type?"
        )
    size = (count + 7) // 8
    absent = np.unpackbits(np.frombuffer(take(data, at, size), dtype=np.uint8), count=count).tolist()
    values, at = coder.unpack(data, at + size, count - sum(absent))
    present = iter(values)
    return [None if is_absent else next(present) for is_absent in absent], at


def check_value(coder: ColumnCoder, value: Any, path: str, nullable: bool = True) -> Misfit | None:
    """Like `coder.check`, for a value that may be None if `nullable`."""
    if value is None:
        return None if nullable else Misfit(path, coder.expected, None)
    return coder.check(value, path)


def take(data: Buffer, at: int, size: int) -> Buffer:
    """`size` bytes from `at`. Raises RowFormatError when there are fewer."""
    part = data[at : at + size]
    if len(part) != size:
        raise RowFormatError(
            f"{size} bytes were expected at offset {at} of {len(data)}: the data are truncated"
        )
    return part


def pack_lengths(lengths: Sequence[int]) -> bytes:
    """32-bit lengths, one a value."""
    return struct.pack(f"<{len(lengths)}I", *lengths)


def unpack_lengths(data: Buffer, at: int, count: int) -> tuple[tuple[int, ...], int]:
    """The inverse of pack_lengths: for parts of bytes that are there, whatever the lengths say."""
    return struct.unpack_from(f"<{count}I", data, at), at + COUNT_BYTES * count


def pack_counts(counts: Sequence[int]) -> bytes:
    """Like pack_lengths, for numbers of elements.

    Raises ValueError for counts that `unpack_counts` would not read.
    """
    if sum(counts) > MAX_ELEMENTS:
        raise ValueError(
            f"lists or dicts of one column have {sum(counts)} elements, more than {MAX_ELEMENTS}; divide them"
        )
    return pack_lengths(counts)


def unpack_counts(data: Buffer, at: int, count: int) -> tuple[tuple[int, ...], int]:
    """The inverse of pack_counts: memory is taken for each element. Raises RowFormatError for too many."""
    counts, at = unpack_lengths(data, at, count)
    if sum(counts) > MAX_ELEMENTS:
        raise RowFormatError(
            f"the elements of a column number {sum(counts)}, more than {MAX_ELEMENTS}: not our data"
        )
    return counts, at


def cut(whole: Any, lengths: Sequence[int]) -> list[Any]:
    """Consecutive parts of a str, bytes or list."""
    ends = list(accumulate(lengths))
    if ends and ends[-1] != len(whole):
        raise RowFormatError(f"the parts of a column add up to {ends[-1]}, not to the {len(whole)} that came")
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]
