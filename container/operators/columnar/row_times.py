"""RowTimes: the event time of each row of a record batch, from a column or from the batch's timestamps.

Owner: the task thread; no state. A null, a missing or an impossible time is refused with its row. Must not know what
becomes of times.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch

#: The time of each row in epoch ms: int64, shape (rows,).
Times = npt.NDArray[np.int64]

#: Ticks of a unit that make a millisecond.
_TICKS_PER_MS: Final = {"us": 1000, "ns": 1_000_000}
#: Most seconds, before and behind 1970, whose milliseconds fit 64 bits.
_MOST_SECONDS: Final = MAX_TIMESTAMP // 1000


class TimeUse(NamedTuple):
    """What times are read for, in the words of errors."""

    #: Whose times they are.
    what: str
    #: Why a row needs a time.
    needed: str
    #: What is wrong with a time that is too far away.
    too_far: str
    #: Where a program can correct a time.
    before: str
    #: What to do where rows bear no timestamps.
    remedy: str


class RowTimes:
    """Reads the times of the rows that an operator gets."""

    def __init__(self, operator: str, column: str | None, reach_ms: int, use: TimeUse) -> None:
        """`column` holds the times, as epoch ms or timestamps; None = the rows' own timestamps do.

        `reach_ms`: a time has to be further than that from the ends of 64 bits.
        """
        self._use = use
        self._operator = operator
        self._column = column
        self._least, self._most = MIN_TIMESTAMP + reach_ms, MAX_TIMESTAMP - reach_ms

    def of(self, batch: ArrowBatch) -> Times:
        """The times of a batch, int64, shape (rows,).

        Raises OperatorFailure with the first row that has none, or one whose windows leave 64 bits; TimestampError for
        a column that has no times.
        """
        if self._column is not None:
            times = self._of_column(batch)
        elif batch.timestamps is None:
            self._refuse(
                batch,
                0,
                f"has no timestamp, and {self._use.needed}. {self._use.remedy}",
            )
        else:
            times = self._milliseconds(batch, batch.timestamps, "timestamp")
        if not (self._least < times.min() and times.max() < self._most):
            at = int(np.flatnonzero((times <= self._least) | (times >= self._most))[0])
            self._refuse(
                batch, at, f"has the time {times[at]} ms, {self._use.too_far}. Correct the time, or filter the row out"
                f" before {self._use.before}",
            )  # fmt: skip
        return times

    def _of_column(self, batch: ArrowBatch) -> Times:
        name, records = self._column, batch.batch
        indexes = records.schema.get_all_field_indices(name)
        if len(indexes) != 1:
            raise TimestampError(
                f"operator '{self._operator}': the batch has {len(indexes)} columns named '{name}', which holds the"
                f" times of {self._use.what}; its columns are {records.schema.names}"
            )
        return self._milliseconds(batch, records.column(indexes[0]), f"time in column '{name}'")

    def _milliseconds(self, batch: ArrowBatch, column: pa.Array, what: str) -> Times:
        if column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            self._refuse(
                batch, at, f"has no {what}, and {self._use.needed}. Filter such rows out, or give them a time,"
                f" before {self._use.before}",
            )  # fmt: skip
        kind = column.type
        if pa.types.is_timestamp(kind):
            ticks: Times = column.view(pa.int64()).to_numpy()
            if kind.unit in _TICKS_PER_MS:
                return ticks // _TICKS_PER_MS[kind.unit]
            return ticks if kind.unit == "ms" else _from_seconds(ticks)
        if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
            numbers: Times = column.to_numpy().astype(np.int64, copy=False)
            return numbers
        raise TimestampError(
            f"operator '{self._operator}': the {what} is of type {kind}; expected epoch milliseconds as integers of at"
            f" most 64 bits, or timestamps. Cast the column before {self._use.before}"
        )

    def _refuse(self, batch: ArrowBatch, row: int, why: str) -> NoReturn:
        """Raises OperatorFailure for a row."""
        found = batch.batch.slice(row, 1)
        try:
            record = found.to_pylist()[0]
        except (OverflowError, ValueError):  # a time that Python cannot hold
            record = str(found)
        error = TimestampError(f"operator '{self._operator}': a row {why}")
        raise OperatorFailure(self._operator, short_record(record), error)


def _from_seconds(seconds: Times) -> Times:
    """Seconds as milliseconds, both int64, shape (rows,); the greatest and least number for those beyond 64 bits."""
    times = np.clip(seconds, -_MOST_SECONDS, _MOST_SECONDS) * 1000
    times[seconds > _MOST_SECONDS] = MAX_TIMESTAMP
    times[seconds < -_MOST_SECONDS] = MIN_TIMESTAMP
    return times
