"""DiscardingOperator: stands for a sink whose rows the program does not want; counts them.

Owner: the task thread. Must not look at rows.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.connector_spec import DiscardOperator

#: The metric of rows that were dropped.
DROPPED_RECORDS = "numRecordsDropped"


@runs(DiscardOperator)
class DiscardingOperator(BulkRowOperator, ColumnarOperator):
    """Drops rows and record batches."""

    def __init__(self, name: str, spec: DiscardOperator) -> None:
        super().__init__(name)
        self._dropped = 0

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        context.metric_group.gauge(DROPPED_RECORDS, lambda: self._dropped)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self._dropped += len(rows)

    def process_batch(self, batch: ArrowBatch) -> tuple[()]:
        self._dropped += len(batch)
        return ()
