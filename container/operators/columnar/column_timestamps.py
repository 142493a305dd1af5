"""ColumnTimestamps: takes the timestamps of rows from a column, and makes watermarks of them, a batch at a time.

Owner: the task thread. Batches stay as they are, and no Python object is made of a row. The generator hears of the
greatest timestamp of a batch when the batch has gone on. Must not know windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.row_times import RowTimes, TimeUse
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.timestamps_and_watermarks import AssignedTime
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import ColumnTimestampsOperator

_STRATEGY: Final = TimeUse(
    what="rows",
    needed="its watermark strategy takes times from there",
    too_far="which is no event time",
    before="assign_timestamps_and_watermarks",
    remedy="Name the column of the times: with_timestamp_column(...)",
)


@runs(ColumnTimestampsOperator)
class ColumnTimestamps(AssignedTime, ColumnarOperator):
    """Stamps the rows of record batches and makes watermarks, by one strategy."""

    one_to_one = True

    def __init__(self, name: str, spec: ColumnTimestampsOperator) -> None:
        super().__init__(name, spec.strategy)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        # The least and the greatest number are no times.
        self._times = RowTimes(self.name, self._strategy.timestamp_column, 0, _STRATEGY)

    def process_batch(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        if not len(batch):
            return
        times = self._times.of(batch)
        yield ArrowBatch(batch.batch, pa.array(times), batch.kinds)
        if self._strategy.makes_watermarks:
            late = int(np.count_nonzero(times <= self._tracker.watermark))
            self._tracker.on_batch(int(times.max()), late, times.tolist)
            self._rows_came = True
