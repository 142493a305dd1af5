"""The numbers behind the values of an Arrow key column, as numpy arrays, checked as row keys are.

Owner: the calling thread; no state. A value that no Python key equals is refused with its row and type. It must not
know hashes or encodings.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.errors import ColumnKeyError

#: The number of each row: int64, shape (rows,).
Numbers = npt.NDArray[np.int64]

_DAY_MS: Final = 86_400_000
_DAY_US: Final = 86_400_000_000
_MICRO: Final = dt.timedelta(microseconds=1)
_MIN_DURATION_US: Final = dt.timedelta.min // _MICRO
_MAX_DURATION_US: Final = dt.timedelta.max // _MICRO
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MIN_US: Final = (dt.datetime.min - _EPOCH) // _MICRO
_MAX_US: Final = (dt.datetime.max - _EPOCH) // _MICRO
_MIN_DAY: Final = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal()
_MAX_DAY: Final = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal()
#: Microseconds of the units that are no shorter.
PER_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def nulls_of(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """A mask, bool, shape (rows,), True for a null; None if the column has no nulls."""
    if not column.null_count:
        return None
    absent: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return absent


def numbers_of(column: pa.Array) -> Numbers:
    """An integer column as int64, shape (rows,), nulls as 0."""
    if column.null_count:
        column = column.fill_null(0)
    numbers: Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def floats_of(column: pa.Array) -> npt.NDArray[np.float64]:
    """A column of floats of any width as float64, shape (rows,), nulls as NaN."""
    if column.null_count:
        column = pa.array(column.to_numpy(zero_copy_only=False))
    values: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return values


def days_of(column: pa.Array) -> Numbers:
    """Days since 1970 of a column of dates: int64, shape (rows,). Raises ColumnKeyError."""
    if pa.types.is_date64(column.type):
        days = numbers_of(column.view(pa.int64())) // _DAY_MS
    else:
        days = numbers_of(column.view(pa.int32()))
    _refuse(column, (days < _MIN_DAY) | (days > _MAX_DAY), "lies outside the years 1 to 9999")
    return days


def times_of_day(column: pa.Array) -> Numbers:
    """Microseconds since midnight of a column of times: int64, shape (rows,). Raises ColumnKeyError."""
    micros = _in_micros(column, column.type.bit_width)
    _refuse(column, (micros < 0) | (micros >= _DAY_US), "is no time of day")
    return micros


def micros_of(column: pa.Array) -> Numbers:
    """Microseconds since 1970 of a column of timestamps: int64, shape (rows,). Raises ColumnKeyError."""
    micros = _in_micros(column, 64)
    _refuse(column, (micros < _MIN_US) | (micros > _MAX_US), "lies outside the years 1 to 9999")
    return micros


def durations_of(column: pa.Array) -> pa.Array:
    """The column in a unit of Python's timedelta, each value within its range. Raises ColumnKeyError."""
    numbers = numbers_of(column.view(pa.int64()))
    if column.type.unit == "ns":
        _refuse(column, numbers % 1000 != 0, "has a fraction of a microsecond, which no timedelta has")
        return pa.array(numbers // 1000, pa.int64(), mask=nulls_of(column)).view(pa.duration("us"))
    factor = PER_US[column.type.unit]
    if factor > 1:  # 64 bits of microseconds are within the range
        least, most = -(-_MIN_DURATION_US // factor), _MAX_DURATION_US // factor
        _refuse(column, (numbers > most) | (numbers < least), "is longer than a timedelta can be")
    return column


def _in_micros(column: pa.Array, width: int) -> Numbers:
    numbers = numbers_of(column.view(pa.int32() if width == 32 else pa.int64()))
    if column.type.unit == "ns":
        _refuse(column, numbers % 1000 != 0, "has a fraction of a microsecond, which no Python time has")
        return numbers // 1000
    factor = PER_US[column.type.unit]
    if factor != 1:
        limit = np.iinfo(np.int64).max // factor
        _refuse(column, (numbers > limit) | (numbers < -limit), "lies outside the years 1 to 9999")
        return numbers * factor
    return numbers


def _refuse(column: pa.Array, bad: npt.NDArray[Any], why: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ColumnKeyError(
            f"row {row} of a key column of type {column.type} {why}; filter such rows, or key by the number "
            f"itself"
        )
