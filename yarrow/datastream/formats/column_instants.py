"""Instants of columns: refuses timestamps for which a format of files has too few bits.

Owner: the task's thread; no state. Arrow reads each timestamp of ORC as nanoseconds in 64 bits, which reach from 1677
to 2262. Parquet has no seconds, so that Arrow writes them as milliseconds. Must not know files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.columns import parts_of

#: The greatest number of nanoseconds, in both directions: the least number of 64 bits stands for no time.
_NANOSECONDS = (1 << 63) - 1
#: Unit -> the greatest number of it that ORC can hold, in both directions.
_MOST_IN_ORC = {
    unit: _NANOSECONDS // each for unit, each in (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
}
#: The same for Parquet, which holds all of the other units.
_MOST_IN_PARQUET = {"s": ((1 << 63) - 1) // 1000}


def require_instants(batch: pa.RecordBatch) -> None:
    """Raise FileFormatError for the first timestamp of a batch that no reader of ORC has, with column and row."""
    _require(
        batch,
        _MOST_IN_ORC,
        "Readers of ORC have instants from 1677-09-21 00:12:43.145225 to 2262-04-11 23:47:16.854775 alone",
    )


def require_milliseconds(batch: pa.RecordBatch) -> None:
    """Raise FileFormatError for the first timestamp in seconds that Parquet cannot have, with column and row."""
    if any(map(_has_seconds, batch.schema.types)):
        _require(batch, _MOST_IN_PARQUET, "Parquet has seconds as milliseconds of 64 bits")


def _has_seconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_seconds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.unit == "s")


def _require(batch: pa.RecordBatch, most: Mapping[str, int], reason: str) -> None:
    """`most`: unit -> the greatest number of it, in both directions; others are not looked at."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _first_outside(column, most) is None:
            continue
        for row in range(len(column)):
            outside = _first_outside(column.slice(row, 1), most)
            if outside is not None:
                raise FileFormatError(
                    f"row {row} of the batch: {outside} does not fit column {field.name!r} of type {field.type}."
                    f" {reason}. Write an instant out of this range as a text or an integer"
                )


def _first_outside(column: pa.Array, most: Mapping[str, int]) -> str | None:
    """Return the first instant outside of the range; None = there is none."""
    for instants in _instants_in(column):
        bound = most.get(instants.type.unit)
        if bound is None:
            continue
        numbers = instants.cast(pa.int64())
        outside = pc.or_(pc.less(numbers, -bound), pc.greater(numbers, bound))
        if pc.any(outside).as_py():
            # The text needs no database of zones.
            return str(instants.cast(pa.timestamp(instants.type.unit)).filter(outside)[0].cast(pa.string()))
    return None


def _instants_in(column: pa.Array) -> Iterator[pa.Array]:
    """All timestamps of a column, also inside of other values."""
    kind, types = column.type, pa.types
    if types.is_timestamp(kind):
        yield column
    elif types.is_date64(kind):
        yield column.cast(pa.timestamp("ms"))
    else:
        for part, _ in parts_of(column):
            yield from _instants_in(part)
