"""Late rows of record batches: they are noted together, and leave by a side output as batches.

Owner: the task thread. Windows and joins of columns say which rows are late. Must not know windows or sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar.kept_rows import kept_rows
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.runtime.common.late_records import MOST_NAMED, LatePlace
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch, SideBatch


class LateRows(NamedTuple):
    """The late rows of a batch; arrays have shape (rows,)."""

    #: The times of rows, int64.
    times: npt.NDArray[np.int64]
    #: The watermark from which on each row is too late without any lateness, int64.
    late_from: npt.NDArray[np.int64]
    #: True for late rows, bool.
    late: npt.NDArray[np.bool_]
    watermark: int


def lose_rows(
    ledger: LateLedger, tag: str | None, key: BatchKey, batch: ArrowBatch, rows: LateRows
) -> Iterator[SideBatch]:
    """Notes late rows with their keys, and sends them to the side output `tag`; None = there is none."""
    times, late_from, late, watermark = rows
    places = np.flatnonzero(late)
    # A delay has 64 bits, also behind the greatest watermark.
    least = watermark - MAX_TIMESTAMP + 1 if watermark > 0 else None
    delays = watermark - (late_from if least is None else np.maximum(late_from, least)) + 1
    found, counts = np.unique(delays[places], return_counts=True)
    ledger.late_together(
        LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT,
        dict(zip(found.tolist(), counts.tolist(), strict=True)),
    )
    columns = [batch.batch.column(name) for name in key.names]
    named = []
    for at in places[-MOST_NAMED:].tolist():
        values = tuple(column[at].as_py() for column in columns)
        time = LateTime(int(times[at]), watermark, int(delays[at]))
        named.append((values if key.is_tuple else values[0], time))
    ledger.name_last(named)
    if tag is not None:
        for lost in kept_rows(batch, pa.array(late)):
            yield SideBatch(tag, lost)
