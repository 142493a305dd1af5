"""Column coders: how the values of one declared type are written one after another, and read back.

A coder packs values without None; `write_column` adds the bitmap of those that are None. Packing tries the
fast way and raises one of MISFITS when a value does not fit; `check` then finds the value and says what was
expected. All numbers are little-endian. Owner: the calling thread; coders have no state. They must not know
batches, frames or channels.
"""

from __future__ import annotations

import datetime as dt
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from yarrow.common.time import Instant
from yarrow.runtime.data.errors import RowFormatError

Buffer = bytes | memoryview

#: What packing raises when a value does not fit its declared type.
MISFITS: Final = (TypeError, ValueError, OverflowError, AttributeError, struct.error)

#: Values of one column at most, before memory is taken for them on reading.
MAX_VALUES: Final = 1 << 28

_NO_NULLS: Final = b"\x00"
_SOME_NULLS: Final = b"\x01"
_ALL_NULLS: Final = b"\x02"

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICRO: Final = dt.timedelta(microseconds=1)
_BOOLS: Final = (False, True)
_U64 = struct.Struct("<Q")


class Misfit(NamedTuple):
    """A value that does not fit: where it is within its row, what was expected there, and the value."""

    path: str
    expected: str
    value: object


class ColumnCoder(ABC):
    """Writes and reads the values of one declared type."""

    #: What `check` says was expected.
    expected: str

    @abstractmethod
    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Appends the encoding of values none of which is None. Raises one of MISFITS."""

    @abstractmethod
    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        """The `count` values that begin at `at`, and the offset after them."""

    @abstractmethod
    def check(self, value: Any, path: str) -> Misfit | None:
        """What does not fit in a value that is not None, or None."""


def write_column(coder: ColumnCoder, values: Sequence[Any], out: list[bytes]) -> None:
    """Appends a column whose values may be None. Raises one of MISFITS."""
    size = len(out)
    try:
        out.append(_NO_NULLS)
        coder.pack(values, out)
    except MISFITS:
        absent = [value is None for value in values]
        if True not in absent:
            raise
        del out[size:]
        if False not in absent:
            out.append(_ALL_NULLS)
            return
        out.append(_SOME_NULLS)
        out.append(np.packbits(np.array(absent, dtype=np.bool_)).tobytes())
        coder.pack([value for value in values if value is not None], out)


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
    """As `coder.check`, for a value that may be None where `nullable`."""
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
    """The inverse of pack_lengths. Raises RowFormatError when their sum is beyond any column."""
    lengths = struct.unpack_from(f"<{count}I", data, at)
    if sum(lengths) > MAX_VALUES:
        raise RowFormatError(
            f"the elements of a column number {sum(lengths)}, more than {MAX_VALUES}: not our data"
        )
    return lengths, at + 4 * count


class FixedIntCoder(ColumnCoder):
    """Integers of 8, 16, 32 or 64 bits; bool, IntEnum and numpy integers are written as the int they
    equal.
    """

    def __init__(self, code: str) -> None:
        self._code = code
        self._size = struct.calcsize(f"<{code}")
        bits = 8 * self._size
        self._least, self._most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        self.expected = f"an int of {bits} bits ({self._least} to {self._most})"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        out.append(struct.pack(f"<{len(values)}{self._code}", *values))

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        return struct.unpack_from(f"<{count}{self._code}", data, at), at + self._size * count

    def check(self, value: Any, path: str) -> Misfit | None:
        if hasattr(value, "__index__") and self._least <= value <= self._most:
            return None
        return Misfit(path, self.expected, value)


class FloatCoder(ColumnCoder):
    """Floats, always in 64 bits, so that a value does not depend on whether it crossed a process border."""

    expected = "a float"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if set(map(type, values)) != {float}:
            values = [_exact_float(value) for value in values]
        out.append(struct.pack(f"<{len(values)}d", *values))

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        return struct.unpack_from(f"<{count}d", data, at), at + 8 * count

    def check(self, value: Any, path: str) -> Misfit | None:
        try:
            _exact_float(value)
        except MISFITS:
            return Misfit(path, self.expected, value)
        return None


def _exact_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError("not a float")
    number = float(value)
    if number != value and value == value:
        raise ValueError("not exact as a float")
    return number


class BoolCoder(ColumnCoder):
    """bool, a byte each."""

    expected = "a bool"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if not set(map(type, values)) <= {bool, np.bool_}:
            raise TypeError("not a bool")
        out.append(bytes(map(bool, values)))

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        part = take(data, at, count)
        return list(map(_BOOLS.__getitem__, part)), at + count

    def check(self, value: Any, path: str) -> Misfit | None:
        return None if isinstance(value, (bool, np.bool_)) else Misfit(path, self.expected, value)


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
            out.append(_NO_NULLS)
        else:
            text = "".join(values)
            out.append(_SOME_NULLS)
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


def cut(whole: Any, lengths: Sequence[int]) -> list[Any]:
    """Consecutive parts of a str, bytes or list."""
    ends = list(accumulate(lengths))
    if ends and ends[-1] != len(whole):
        raise RowFormatError(f"the parts of a column add up to {ends[-1]}, not to the {len(whole)} that came")
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]


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


class ConvertedCoder(ColumnCoder):
    """Values of exactly one class, written as values of another coder."""

    def __init__(self, cls: type, expected: str, inner: ColumnCoder) -> None:
        self._cls = cls
        self.expected = expected
        self._inner = inner

    def to_inner(self, value: Any) -> Any:
        """What is written for a value. Raises one of MISFITS."""
        raise TypeError(f"{type(self).__name__} lacks to_inner")

    def from_inner(self, value: Any) -> Any:
        """The value of what was written."""
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


class BigIntCoder(ColumnCoder):
    """Integers of any size: 64 bits where all fit, else two's complement with lengths."""

    expected = "an int"

    def __init__(self) -> None:
        self._small = FixedIntCoder("q")
        self._large = BytesCoder()

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        size = len(out)
        try:
            out.append(_NO_NULLS)
            self._small.pack(values, out)
        except struct.error:
            del out[size:]
            out.append(_SOME_NULLS)
            self._large.pack(
                [
                    v.to_bytes((v.bit_length() + 8) // 8, "little", signed=True)
                    for v in map(int.__pos__, values)
                ],
                out,
            )

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        if data[at] == 0:
            return self._small.unpack(data, at + 1, count)
        values, at = self._large.unpack(data, at + 1, count)
        return [int.from_bytes(value, "little", signed=True) for value in values], at

    def check(self, value: Any, path: str) -> Misfit | None:
        return None if isinstance(value, int) else Misfit(path, self.expected, value)


class DecimalCoder(ConvertedCoder):
    """Decimal by its exact text, so that trailing zeros stay."""

    def __init__(self) -> None:
        super().__init__(Decimal, "a Decimal", TextCoder())

    def to_inner(self, value: Any) -> Any:
        return str(value)

    def from_inner(self, value: Any) -> Any:
        try:
            return Decimal(value)
        except InvalidOperation:
            raise RowFormatError(
                f"{value!r} is no number, where a Decimal was to be read: the bytes are damaged"
            ) from None


class DateCoder(ConvertedCoder):
    """date by its days since 1970."""

    def __init__(self) -> None:
        super().__init__(dt.date, "a date (not a datetime)", FixedIntCoder("i"))

    def to_inner(self, value: Any) -> Any:
        return value.toordinal() - _EPOCH_DAY

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        return _moments(np.frombuffer(take(data, at, 4 * count), dtype="<i4"), "M8[D]"), at + 4 * count


class TimeCoder(ConvertedCoder):
    """time of day without zone, in microseconds."""

    def __init__(self) -> None:
        super().__init__(dt.time, "a time without time zone", FixedIntCoder("q"))

    def to_inner(self, value: Any) -> Any:
        if value.tzinfo is not None:
            raise ValueError("aware time")
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond

    def from_inner(self, value: Any) -> Any:
        return (_EPOCH + value * _MICRO).time()


class TimestampCoder(ConvertedCoder):
    """datetime without zone, in microseconds since 1970."""

    def __init__(self) -> None:
        super().__init__(dt.datetime, "a datetime without time zone", FixedIntCoder("q"))

    def to_inner(self, value: Any) -> Any:
        return (value - _EPOCH) // _MICRO

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        return _moments(np.frombuffer(take(data, at, 8 * count), dtype="<i8"), "M8[us]"), at + 8 * count


def _moments(numbers: np.ndarray[Any, Any], unit: str) -> list[Any]:
    """Dates or datetimes of numbers since 1970. numpy gives an int for what Python's types cannot hold."""
    values: list[Any] = numbers.astype("<i8").view(unit).tolist()
    if not set(map(type, values)) <= {dt.date, dt.datetime}:
        raise RowFormatError("a date or time lies outside the years 1 to 9999: not our data")
    return values


class InstantCoder(ColumnCoder):
    """Instant as two columns: seconds and nanoseconds."""

    expected = "an Instant whose seconds fit 64 bits"

    def __init__(self) -> None:
        self._seconds = FixedIntCoder("q")
        self._nanos = FixedIntCoder("i")

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if set(map(type, values)) != {Instant}:
            raise TypeError("not an Instant")
        self._seconds.pack([value.seconds for value in values], out)
        self._nanos.pack([value.nanos for value in values], out)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        seconds, at = self._seconds.unpack(data, at, count)
        nanos, at = self._nanos.unpack(data, at, count)
        return list(map(Instant, seconds, nanos)), at

    def check(self, value: Any, path: str) -> Misfit | None:
        if type(value) is Instant and self._seconds.check(value.seconds, path) is None:
            return None
        return Misfit(path, self.expected, value)


class PickledCoder(ColumnCoder):
    """Anything that pickles: one pickle, protocol 5, of the list of values."""

    expected = "a value that pickles"

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
