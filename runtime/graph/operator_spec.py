"""What an operator is, as data: the API names operators by these structs, only `container` runs them.

Owner: none (frozen values). Must not import operators or call user functions: `function` fields hold
cloudpickle bytes that the control plane passes on unread.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

#: `TypeInformation.to_spec()`; None = no declared type (rows travel as pickle, any value that pickles works).
TypeSpec = Any


class StreamKind(StrEnum):
    """What an edge carries: Python rows or Arrow record batches; fixed when the JobGraph is built."""

    ROW = "row"
    COLUMNAR = "columnar"


class BatchContainer(StrEnum):
    """What a columnar user function receives and returns; PYARROW is a RecordBatch."""

    PYARROW = "pyarrow"
    PYARROW_TABLE = "pyarrow_table"
    POLARS = "polars"
    PANDAS = "pandas"


class RowShape(StrEnum):
    """Shapes of stateless one-input row functions, which the chain compiler fuses."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"


class CoShape(StrEnum):
    """Shapes of stateless two-input row functions."""

    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"


class AggregateKind(StrEnum):
    """Built-in running aggregates."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MIN_BY = "min_by"
    MAX_BY = "max_by"
    COUNT = "count"
    MEAN = "mean"


class OperatorSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="operator"):
    """Base of all operator specs."""


class SourceOperator(OperatorSpec, frozen=True, kw_only=True, tag="source"):
    """A `Source` (connectors.base) with its enumerator and readers.

    `watermark_strategy` is given where timestamps or watermarks are made inside the source.
    """

    source: bytes
    watermark_strategy: bytes | None = None


class SourceFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="source_function"):
    """A legacy SourceFunction whose run() blocks: it gets a thread of its own."""

    function: bytes


class RowFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="row_function"):
    """map, flat_map or filter.

    `key_selector` is given where a rich function on a keyed stream may ask for keyed state in open().
    """

    shape: RowShape
    function: bytes
    key_selector: bytes | None = None


class ProjectOperator(OperatorSpec, frozen=True, kw_only=True, tag="project"):
    """Keeps the fields at `indexes` of a tuple or Row, as a tuple."""

    indexes: tuple[int, ...]


class TimestampsAndWatermarksOperator(OperatorSpec, frozen=True, kw_only=True, tag="timestamps_watermarks"):
    """Assigns timestamps to rows and makes watermarks of them by a WatermarkStrategy."""

    strategy: bytes


class ProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="process"):
    """ProcessFunction, or KeyedProcessFunction where `key_selector` is given."""

    function: bytes
    key_selector: bytes | None = None


class ReduceOperator(OperatorSpec, frozen=True, kw_only=True, tag="reduce"):
    """Running keyed reduce: emits the new value of the key for each record."""

    function: bytes
    key_selector: bytes


class AggregateOperator(OperatorSpec, frozen=True, kw_only=True, tag="aggregate"):
    """Running keyed built-in aggregate on a field of tuples, lists or Rows; None = the record itself."""

    kind: AggregateKind
    position: int | str | None
    key_selector: bytes


class CoFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="co_function"):
    """CoMapFunction or CoFlatMapFunction; key selectors are given where both inputs are keyed."""

    shape: CoShape
    function: bytes
    key_selectors: tuple[bytes, bytes] | None = None


class CoProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="co_process"):
    """CoProcessFunction, or KeyedCoProcessFunction where key selectors are given."""

    function: bytes
    key_selectors: tuple[bytes, bytes] | None = None


class BroadcastProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="broadcast_process"):
    """BroadcastProcessFunction, or KeyedBroadcastProcessFunction where `key_selector` is given.

    Input 0 is the stream that is not broadcast; `states` is a tuple of the MapStateDescriptors of broadcast state.
    """

    function: bytes
    states: bytes
    key_selector: bytes | None = None


class BatchShape(StrEnum):
    """Shapes of columnar user functions: a batch to a batch, or a batch to a boolean column."""

    MAP_BATCHES = "map_batches"
    FILTER_BATCHES = "filter_batches"


class BatchFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="batch_function"):
    """map_batches or filter_batches; `schema` is the declared Arrow output schema (IPC bytes) or None."""

    shape: BatchShape
    function: bytes
    container: BatchContainer
    schema: bytes | None = None


class ColumnAggregate(msgspec.Struct, frozen=True):
    """One vectorised keyed aggregate: `name` is the output column, `column` None for COUNT."""

    kind: AggregateKind
    column: str | None
    name: str


class ArrowAggregateOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_aggregate"):
    """Running vectorised aggregates by key column: emits the row of every key touched, once a slice."""

    key_column: str
    aggregates: tuple[ColumnAggregate, ...]


class RowsToArrowOperator(OperatorSpec, frozen=True, kw_only=True, tag="rows_to_arrow"):
    """Conversion of declared rows to record batches of `schema` (IPC bytes); shown in the plan."""

    schema: bytes


class ArrowToRowsOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_to_rows"):
    """Conversion of record batches to Rows (or the tuple type declared)."""

    as_tuple: bool = False


class SinkFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="sink_function"):
    """A legacy SinkFunction: invoke(value, context) a record."""

    function: bytes


class SinkWriterOperator(OperatorSpec, frozen=True, kw_only=True, tag="sink_writer"):
    """A `Sink` (connectors.base) with its writer and, where it has one, its committer."""

    sink: bytes


class PrintOperator(OperatorSpec, frozen=True, kw_only=True, tag="print"):
    """Writes each record as a line to the TaskExecutor's .out file (and the embedded client's stdout)."""

    identifier: str = ""


class CollectOperator(OperatorSpec, frozen=True, kw_only=True, tag="collect"):
    """Hands records to the client of execute_and_collect through the JobMaster; flow-controlled."""

    collect_id: str
    max_buffered_rows: int = 10_000


AnyOperatorSpec = (
    SourceOperator
    | SourceFunctionOperator
    | RowFunctionOperator
    | ProjectOperator
    | TimestampsAndWatermarksOperator
    | ProcessOperator
    | ReduceOperator
    | AggregateOperator
    | CoFunctionOperator
    | CoProcessOperator
    | BroadcastProcessOperator
    | BatchFunctionOperator
    | ArrowAggregateOperator
    | RowsToArrowOperator
    | ArrowToRowsOperator
    | SinkFunctionOperator
    | SinkWriterOperator
    | PrintOperator
    | CollectOperator
)


class PartitionerKind(StrEnum):
    """Flink's eight partitioners."""

    FORWARD = "FORWARD"
    SHUFFLE = "SHUFFLE"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    KEY_GROUP = "HASH"
    CUSTOM = "CUSTOM"

    @property
    def is_pointwise(self) -> bool:
        """True when a producer subtask reaches only some of the consumer's subtasks."""
        return self in (PartitionerKind.FORWARD, PartitionerKind.RESCALE)


class PartitionerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How an edge chooses the channel of a record."""

    kind: PartitionerKind
    #: KEY_GROUP and CUSTOM on rows: cloudpickle of a callable value -> key.
    key_selector: bytes | None = None
    #: KEY_GROUP on columns: name of the key column.
    key_column: str | None = None
    #: CUSTOM: cloudpickle of a callable (key, number of partitions) -> index.
    function: bytes | None = None
