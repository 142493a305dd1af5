"""The 64-bit payloads and tags that encode the values of an Arrow key column, for hashing by numpy.

Owner: the calling thread; no state. Keys of one column and tuples of several are hashed from the same payloads. It must
not differ from the encoding of row keys for any value, and must not know hashes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.column_numbers import (
    PER_US,
    days_of,
    durations_of,
    floats_of,
    micros_of,
    numbers_of,
    times_of_day,
)
from yarrow.runtime.data.key_encoding import DATE, DATETIME, DURATION, FLOAT, INSTANT, INT, NAN_BITS, TIME

_TWO_63: Final = 2.0**63


class ColumnPayloads(NamedTuple):
    """The values of a column, one 64-bit payload each. A null has a payload without a meaning."""

    #: Shape (rows,).
    payloads: npt.NDArray[np.uint64]
    #: One tag for all rows, or the tag of each row, shape (rows,).
    tags: int | npt.NDArray[np.uint8]
    #: True if a value needs more than 64 bits, shape (rows,); None if no value does.
    longer: npt.NDArray[np.bool_] | None = None


def payloads_of(column: pa.Array) -> ColumnPayloads | None:
    """The payloads of a column of a type of 64 bits, uint64, shape (rows,); None for any other type.

    Raises ColumnKeyError.
    """
    kind = column.type
    if pa.types.is_uint64(kind):
        numbers = numbers_of(column)  # beyond int64 they wrap to negative numbers
        return ColumnPayloads(numbers.view(np.uint64), INT, _any_of(numbers < 0))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return ColumnPayloads(numbers_of(column.cast(pa.int64())).view(np.uint64), INT)
    if pa.types.is_floating(kind):
        return _payloads_of_floats(column)
    if pa.types.is_date(kind):
        return ColumnPayloads(days_of(column).view(np.uint64), DATE)
    if pa.types.is_time(kind):
        return ColumnPayloads(times_of_day(column).view(np.uint64), TIME)
    if pa.types.is_timestamp(kind):
        return ColumnPayloads(micros_of(column).view(np.uint64), DATETIME if kind.tz is None else INSTANT)
    if pa.types.is_duration(kind):
        lengths = durations_of(column)
        numbers, factor = numbers_of(lengths.view(pa.int64())), PER_US[lengths.type.unit]
        limit = np.iinfo(np.int64).max // factor
        longer = (numbers > limit) | (numbers < -limit)
        return ColumnPayloads((numbers * factor).view(np.uint64), DURATION, _any_of(longer))
    return None


def _payloads_of_floats(column: pa.Array) -> ColumnPayloads:
    """Whole numbers of 64 bits are integers, as in row keys; larger numbers have longer encodings."""
    values = floats_of(column)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(values) & (np.trunc(values) == values)
        small = whole & (values >= -_TWO_63) & (values < _TWO_63)
        payloads = values.view(np.uint64).copy()
        payloads[np.isnan(values)] = NAN_BITS
        payloads[small] = values[small].astype(np.int64).view(np.uint64)
    tags = np.where(small, np.uint8(INT), np.uint8(FLOAT))
    return ColumnPayloads(payloads, tags, _any_of(whole & ~small))


def _any_of(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return rows if rows.any() else None
