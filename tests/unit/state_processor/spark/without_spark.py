"""The tasks that write and read a savepoint, run one after the other in this process as Spark would run them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.program.arrow_schemas import type_of_values
from yarrow.datastream.state import StateDescriptor
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.state_processor.functions import KeyedStateBootstrapFunction
from yarrow.state_processor.keyed_tables import KEY
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.spark.bucketing import slices
from yarrow.state_processor.spark.function_writing import FunctionRows
from yarrow.state_processor.spark.key_buckets import KeyBuckets
from yarrow.state_processor.spark.keyed_columns import KeyedColumns, KeyedRows
from yarrow.state_processor.spark.partition_reading import observe_partition, read_partition
from yarrow.state_processor.spark.partition_writing import PartitionWriting, state_of_results
from yarrow.state_processor.spark.spark_types import arrow_schema, spark_schema
from yarrow.state_processor.spark.state_tables import MAP_KEY, StateTable, TableKind, TablePartition
from yarrow.state_processor.transformations import NewOperator, StateBootstrapTransformation

#: Tables of every kind, as SavepointReader's methods are called for them.
READS: dict[TableKind, str] = {
    TableKind.KEYED: "read_keyed_state",
    TableKind.TIMERS: "read_timers",
    TableKind.LIST: "read_list_state",
    TableKind.UNION: "read_union_state",
    TableKind.BROADCAST: "read_broadcast_state",
}
Results = list[tuple[int, bytes | None, str | None]]


@dataclass(frozen=True)
class WithoutSpark(StateBootstrapTransformation):
    """State of tables with the columns `key`, `value` and perhaps `access_time`, each a partition of a DataFrame."""

    sources: Sequence[pa.Table]
    descriptor: StateDescriptor
    partitions: int = 2
    key_type: TypeInformation | None = None
    batch_rows: int = 7
    native: bool = False
    #: Called for each partition with its writing and slices: other attempts at it.
    attempts: list[Callable[[PartitionWriting, list[pa.RecordBatch]], None]] = field(default_factory=list)

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        schema = self.sources[0].schema
        columns = KeyedColumns(
            operator=operator.name,
            target=KeyedTarget.of(self.descriptor),
            key_type=self.key_type or type_of_values(schema.field(KEY).type),
            schema=schema,
            buckets=KeyBuckets.of(operator.max_parallelism, self.partitions),
            native=self.native,
        )
        writing = PartitionWriting(columns, operator.foreign_files())
        results: Results = []
        for arriving in exchanged(columns, self.sources, self.batch_rows):
            for attempt in self.attempts:
                attempt(writing, arriving)
            results += results_of(writing, arriving)
        return state_of_results(results)


@dataclass(frozen=True)
class FunctionWithoutSpark(StateBootstrapTransformation):
    """State that a function makes of tables, each a partition of a DataFrame."""

    sources: Sequence[pa.Table]
    key: str
    function: KeyedStateBootstrapFunction[Any, Any]
    partitions: int = 2

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        schema = self.sources[0].schema
        rows = FunctionRows(
            operator=operator.name,
            key=self.key,
            key_type=type_of_values(schema.field(self.key).type),
            schema=schema,
            buckets=KeyBuckets.of(operator.max_parallelism, self.partitions),
            configuration=operator.configuration,
            function=pickle.loads(pickle.dumps(self.function)),
            operator_id=operator.operator_id,
            job_id=operator.job_id,
        )
        writing = PartitionWriting(rows, operator.foreign_files())
        return state_of_results(
            [
                result
                for arriving in exchanged(rows, self.sources, 7)
                for result in results_of(writing, arriving)
            ]
        )


def exchanged(
    columns: KeyedRows, sources: Sequence[pa.Table], batch_rows: int
) -> Iterator[list[pa.RecordBatch]]:
    """The slices of each partition, in order of bucket, source and sequence."""
    cut = [
        batch
        for number, source in enumerate(sources)
        for batch in slices(source.to_batches(batch_rows), columns, number)
    ]
    if not cut:
        return
    rows = pa.Table.from_batches(cut)
    ordered = rows.sort_by([(name, "ascending") for name in ("partition", "bucket", "source", "sequence")])
    numbers = ordered.column("partition").to_pylist()
    for partition in sorted(set(numbers)):
        first = numbers.index(partition)
        yield ordered.slice(first, numbers.count(partition)).to_batches(3)


def results_of(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> Results:
    """What one attempt gives to the driver."""
    rows: list[Any] = [row for batch in writing(arriving) for row in batch.to_pylist()]
    return [(row["partition"], row["state"], row["refusal"]) for row in rows]


def table_of(
    path: str, operator: str, kind: TableKind, name: str = "", *, trusted: bool = False
) -> StateTable:
    return StateTable.find(open_snapshot(path), operator, name, {kind}, trusted=trusted)


def schema_of(table: StateTable, partitions: Sequence[TablePartition]) -> pa.Schema:
    """The columns as Spark has them; types that the metadata do not say are found by a look at all values."""
    parts = table.parts()
    unknown = [part for part, shape in parts.items() if shape is None]
    seen = {part: ObservedTypes() for part in unknown}
    for partition in partitions:
        for part, found in pickle.loads(pickle.dumps(observe_partition(partition, unknown))).items():
            seen[part].merge(found)
    shapes = {
        part: shape or (seen[part].map_key_shape() if part == MAP_KEY else seen[part].shape())
        for part, shape in parts.items()
    }
    return arrow_schema(spark_schema(table.schema(shapes)))


def read_as_tasks(table: StateTable, wanted: int, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows, partition by partition."""
    partitions = pickle.loads(pickle.dumps(table.partitions(wanted)))
    schema = schema_of(table, partitions)
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    batches = [batch for partition in partitions for batch in read_partition(partition, schema)]
    return pa.Table.from_batches(batches, schema)
