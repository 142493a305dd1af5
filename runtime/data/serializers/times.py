"""Column coders of dates, times, timestamps and Instants.

Owner: the calling thread; coders have no state. What they write is a stored form: days or microseconds since 1970, of
an Instant seconds and nanoseconds. They must not know None, rows, frames or time zones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from yarrow.common.time import Instant
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.columns import Buffer, ColumnCoder, ConvertedCoder, Misfit, take
from yarrow.runtime.data.serializers.numbers import FixedIntCoder

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICRO: Final = dt.timedelta(microseconds=1)


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
