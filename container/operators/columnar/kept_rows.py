"""The rows of a record batch that a mask keeps, with their timestamps and kinds.

Owner: the task thread. Must not know who has made the mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.column_rows import rows_where
from yarrow.runtime.data.elements import ArrowBatch


def kept_rows(batch: ArrowBatch, mask: pa.BooleanArray) -> Sequence[ArrowBatch]:
    """The rows for which `mask`, as long as the batch, is true; a null drops a row, as in SQL. No rows are no batch."""
    kept = mask.true_count
    if kept == len(batch):
        return (batch,)
    if not kept:
        return ()
    stamps, kinds = batch.timestamps, batch.kinds
    return (
        ArrowBatch(
            rows_where(batch.batch, mask),
            None if stamps is None else stamps.filter(mask),
            None if kinds is None else _kept_kinds(kinds, mask),
        ),
    )


def _kept_kinds(kinds: bytes, mask: pa.BooleanArray) -> bytes:
    kept: npt.NDArray[np.bool_] = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return np.frombuffer(kinds, np.uint8)[kept].tobytes()
