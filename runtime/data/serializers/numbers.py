"""Column coders of numbers: integers of fixed width and of any size, floats, bools, Decimals.

Owner: the calling thread; coders have no state. What they write is a stored form. They must not know None, rows or
frames.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.columns import (
    MISFITS,
    NO_NULLS,
    SOME_NULLS,
    Buffer,
    ColumnCoder,
    ConvertedCoder,
    Misfit,
    append_runs,
    take,
)
from yarrow.runtime.data.serializers.texts import BytesCoder, TextCoder

_BOOLS: Final = (False, True)


class FixedIntCoder(ColumnCoder):
    """Integers of 8, 16, 32 or 64 bits.

    Values of bool, IntEnum and numpy integers are written as the int they equal.
    """

    def __init__(self, code: str) -> None:
        self._code = code
        self._size = struct.calcsize(f"<{code}")
        bits = 8 * self._size
        self._least, self._most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        self.expected = f"an int of {bits} bits ({self._least} to {self._most})"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        column: object = values
        if isinstance(column, np.ndarray) and self._code == "q":
            out.append(column.astype("<i8", casting="equiv", copy=False).tobytes())
            return
        out.append(struct.pack(f"<{len(values)}{self._code}", *values))

    def pack_runs(self, values: Sequence[Any], runs: Sequence[slice], outs: Sequence[list[bytes]]) -> None:
        append_runs(struct.pack(f"<{len(values)}{self._code}", *values), self._size, runs, outs)

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
        column: object = values
        if isinstance(column, np.ndarray) and column.dtype == np.bool_:
            out.append(column.tobytes())
            return
        if not set(map(type, values)) <= {bool, np.bool_}:
            raise TypeError("not a bool")
        out.append(bytes(map(bool, values)))

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        part = take(data, at, count)
        return list(map(_BOOLS.__getitem__, part)), at + count

    def check(self, value: Any, path: str) -> Misfit | None:
        return None if isinstance(value, (bool, np.bool_)) else Misfit(path, self.expected, value)


class BigIntCoder(ColumnCoder):
    """Integers of any size: 64 bits where all fit, else two's complement with lengths."""

    expected = "an int"

    def __init__(self) -> None:
        self._small = FixedIntCoder("q")
        self._large = BytesCoder()

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        size = len(out)
        try:
            out.append(NO_NULLS)
            self._small.pack(values, out)
        except struct.error:
            del out[size:]
            out.append(SOME_NULLS)
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
