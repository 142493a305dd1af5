"""The rows of Spark's DataFrames: a chunk, its stage and attempt, and the partition of the stage that reads it.

Owner: the thread of a task. Rows whose edge is below zero are results. They travel with the shuffles, each stage
passes them on, and they leave the plan behind its last stages. So a failed or repeated attempt leaves none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.batch.chunk import CHUNK_SCHEMA, Chunk, columns_of, from_record_batch, numbers_column
from yarrow.runtime.graph.batch.batch_plan import BatchExchange, BatchPlan, BatchStage, ExchangeKind

#: A row with an edge from here on down only tells a task which partition it is: without it, Spark would start the
#: task of an empty partition with nothing. `MARKER - edge` is that of an edge, and its target is the partition.
MARKER: Final = -100

#: The columns beside those of a chunk.
ROW_SCHEMA: Final = pa.schema(
    [
        *CHUNK_SCHEMA,
        pa.field("stage", pa.int32(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
    ]
)
#: The same for Spark.
ROW_DDL: Final = (
    "edge int not null, target int not null, producer int not null, sequence bigint not null, rows int not null,"
    " payload binary not null, stage int not null, attempt int not null, partition int not null"
)


class ArrivedRows(NamedTuple):
    """A batch of rows, divided."""

    #: Rows of the stage's inputs.
    chunks: Iterator[Chunk]
    #: Results of stages before it; None = there are none.
    results: pa.RecordBatch | None


def first_partition(batch: pa.RecordBatch) -> int:
    """The partition to which the rows of a batch, all of one task, were sent."""
    return int(batch.column("partition")[0].as_py())


def divide(batch: pa.RecordBatch) -> ArrivedRows:
    """Separates rows of exchanges from results, and drops markers."""
    edges = numpy.frombuffer(batch.column("edge").buffers()[1], numpy.int32)
    edges = edges[batch.column("edge").offset :][: batch.num_rows]
    if not len(edges) or edges.min() >= 0:
        return ArrivedRows(from_record_batch(batch), None)
    results = _rows_at(batch, (edges < 0) & (edges > MARKER))
    return ArrivedRows(from_record_batch(_rows_at(batch, edges >= 0)), results if results.num_rows else None)


def _rows_at(batch: pa.RecordBatch, wanted: npt.NDArray[numpy.bool_]) -> pa.RecordBatch:
    # Arrow's own comparisons with a number would import pandas: see `columns_of`.
    return batch.take(numbers_column(numpy.flatnonzero(wanted), pa.int64()))


class RowWriter:
    """Makes the rows of one attempt."""

    def __init__(self, plan: BatchPlan, position: int, subtask: int, attempt: int) -> None:
        """`position` is that of the stage in the plan."""
        self._stage = plan.stages[position]
        self._position = position
        self._subtask = subtask
        self._attempt = attempt
        self._targets: dict[int, tuple[BatchStage, BatchExchange]] = {
            exchange.edge: (plan.stage(exchange.target), exchange) for exchange in self._stage.outputs
        }
        self._result_partition = self._partition_of_results()

    def _partition_of_results(self) -> int:
        carrier = result_carrier(self._stage)
        if carrier is None or carrier.kind is ExchangeKind.FORWARD:
            return self._subtask
        return self._subtask % self._targets[carrier.edge][0].parallelism

    def _partition(self, chunk: Chunk) -> int:
        if chunk.edge <= MARKER:
            return chunk.target
        if chunk.edge < 0:
            return self._result_partition
        stage, exchange = self._targets[chunk.edge]
        return stage.partition_of(exchange, chunk.target)

    def markers(self) -> Iterator[Chunk]:
        """Of all producers together, a marker for each partition of each consumer."""
        for edge, (stage, exchange) in self._targets.items():
            if exchange.kind is ExchangeKind.FORWARD:
                yield _marker(edge, self._subtask)
            elif self._subtask == 0:
                yield from (_marker(edge, partition) for partition in range(stage.parallelism))

    def batch(self, chunks: list[Chunk]) -> pa.RecordBatch:
        """Chunks of this attempt as rows."""
        count = len(chunks)
        columns = columns_of(chunks)
        columns += [
            _constant(self._position, count),
            _constant(self._attempt, count),
            numbers_column([self._partition(chunk) for chunk in chunks], pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)

    def passed_on(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Results of other stages on their way through this one."""
        columns = [results.column(field.name) for field in ROW_SCHEMA]
        columns[-1] = _constant(self._result_partition, results.num_rows)
        return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def result_carrier(stage: BatchStage) -> BatchExchange | None:
    """The exchange with which results of a stage travel; None for a stage behind which the plan ends."""
    return stage.outputs[0] if stage.outputs else None


def _marker(edge: int, partition: int) -> Chunk:
    return Chunk(MARKER - edge, partition, 0, -1, 0, b"")


def _constant(value: int, count: int) -> pa.Array:
    return numbers_column([value] * count, pa.int32())
