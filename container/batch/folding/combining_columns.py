"""CombiningColumns: an output of a task that aggregates the columns of each key before they leave.

Owner: the task thread. The aggregation is that of the operator behind the exchange, which takes its partial results.
It holds a bounded number of keys. Where it makes no fewer rows, batches leave as they come for a while. Must not know
kinds of aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from yarrow.container.batch.folding.folding_worth import FoldingWorth
from yarrow.container.network.columnar_partition import COALESCE_ROWS, ColumnarResultPartition
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.operators.columnar.aggregate_columns import AggregationError
from yarrow.container.operators.columnar.columnar_aggregation import VectorizedAggregation
from yarrow.container.task.task_environment import BatchBounds
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph

#: Most keys, and estimated bytes of one.
MOST_KEYS: Final = 1 << 18
_KEY_BYTES: Final = 200


class CombiningColumns(ColumnarResultPartition):
    """The record batches for a keyed vertex that begins with a columnar aggregate."""

    def __init__(
        self,
        graph: JobGraph,
        edge: JobEdge,
        channels: Sequence[OutputChannel],
        bounds: BatchBounds,
        budget: int,
    ) -> None:
        """`budget`: estimated bytes of aggregates in memory."""
        target = graph.vertex(edge.target)
        super().__init__(edge, channels, target.max_parallelism, bounds.columns or COALESCE_ROWS)
        aggregates = target.head.spec.keyed_aggregates
        assert aggregates is not None, "the plan combines aggregates of columns"
        self._aggregation = VectorizedAggregation.of_partials(target.head.name, aggregates)
        self._most_keys = max(1, min(MOST_KEYS, budget // _KEY_BYTES))
        #: Rows in the aggregation since it was last empty.
        self._aggregated = 0
        self._saved = 0
        self._worth = FoldingWorth()
        #: The aggregation refuses the stream: the operator itself will tell.
        self._is_refused = False

    @property
    def records_saved(self) -> int:
        return self._saved + self._aggregated

    def emit_batch(self, batch: ArrowBatch) -> None:
        if not len(batch):
            return
        if self._is_refused or self._worth.rests(self._records_taken) or not self._takes(batch):
            super().emit_batch(batch)
            return
        self._records_taken += len(batch)
        self._aggregated += len(batch)
        self._aggregation.process_batch(batch)
        keys, most = self._aggregation.keys, self._most_keys
        is_full = keys >= most
        gives_up = self._worth.gives_up_early(keys, self._aggregated, most) or (
            is_full and self._worth.gives_up(keys, self._aggregated)
        )
        if is_full or gives_up:
            self._send_partials()
        if gives_up:
            self._worth.rest(self._records_taken, most)

    def _takes(self, batch: ArrowBatch) -> bool:
        """Whether the aggregation can take a batch; if not, it is empty now."""
        try:
            fits = self._aggregation.has_room_for(batch)
            if not fits:
                # The sum of several producers may fit where that of one does not.
                self._send_partials()
                fits = self._aggregation.has_room_for(batch)
        except AggregationError:
            self._is_refused = True
            fits = False
        if not fits:
            self._send_partials()
        return fits

    def flush_all(self) -> None:
        self._send_partials()
        super().flush_all()

    def _send_partials(self) -> None:
        """Sends partial results behind the rows that came before; batches with rows and partial results never mix."""
        partials = self._aggregation.take_partials()
        if partials is None:
            return
        super().flush_all()
        taken = self._records_taken
        super().emit_batch(partials)
        self._records_taken = taken
        super().flush_all()
        self._saved += self._aggregated - len(partials)
        self._aggregated = 0
