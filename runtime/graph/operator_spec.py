"""Operator specs: operators as data. The API names operators by these structs, and only `container` runs them.

Class variables and properties of a spec tell an operator's abilities. The master, workers and clients ask for
these, never for the class. Owner: none (frozen values). Must not import operators or call user functions:
`function` fields hold cloudpickle bytes that the control plane passes on unread.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from yarrow.common.pipelines.stage import Stage
from yarrow.common.values.conditions import AnyCondition
from yarrow.common.values.delivery import DeliveryGuarantee, KeptBy, Replay, SinkDelivery
from yarrow.common.values.error_handling import NO_SINGLE_RECORDS
from yarrow.common.values.operator_shapes import AggregateKind as AggregateKind
from yarrow.common.values.operator_shapes import BatchContainer as BatchContainer
from yarrow.common.values.operator_shapes import CoShape as CoShape
from yarrow.common.values.operator_shapes import RowShape as RowShape
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit

#: `TypeInformation.to_spec()`; None = no declared type (rows are pickled, and any value that pickles works).
TypeSpec = Any

#: Where columns hold a key: the name of one column, or the names of several, whose values are a tuple.
KeyColumns = str | tuple[str, ...]


class StreamKind(StrEnum):
    """The content of an edge: Python rows or Arrow record batches; fixed when the JobGraph is built."""

    ROW = "row"
    COLUMNAR = "columnar"


class ColumnAggregate(msgspec.Struct, frozen=True):
    """One vectorised keyed aggregate: `name` is the output column, `column` None for COUNT."""

    kind: AggregateKind
    column: str | None
    name: str


class KeyedAggregates(msgspec.Struct, frozen=True):
    """Vectorised aggregates by key."""

    key_column: KeyColumns
    aggregates: tuple[ColumnAggregate, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns in their order."""
        return (self.key_column,) if isinstance(self.key_column, str) else self.key_column


class RollingFold(msgspec.Struct, frozen=True, kw_only=True):
    """How a rolling aggregate folds the rows of a key: by a user's function, or a built-in aggregate of a field."""

    #: The pickled function of reduce; None = `kind` says how.
    function: bytes | None = None
    #: As of ReduceOperator.
    commutes: bool = False
    is_rich: bool = False
    kind: AggregateKind | None = None
    #: The field, as of AggregateOperator.
    position: int | str | None = None


class ColumnScan(msgspec.Struct, frozen=True):
    """Files whose columns a source emits as they are: an engine of bounded jobs may read them itself."""

    #: "parquet" or "csv".
    file_format: str
    #: The Arrow schema of the source's batches (IPC bytes).
    schema: bytes
    #: Bytes of the files when the graph was built.
    size: int = 0


class IterationRole(StrEnum):
    """What an operator is to an iteration, besides a part of its body."""

    #: Rows of a superstep enter here.
    INPUT = "INPUT"
    #: Rows for the next superstep leave here.
    OUTPUT = "OUTPUT"
    #: A superstep is the last one if no row comes here.
    CRITERION = "CRITERION"
    #: Rows of the last superstep continue here.
    RESULT = "RESULT"


class IterationControl(msgspec.Struct, frozen=True, kw_only=True):
    """When an iteration ends, and what its functions aggregate."""

    #: For people.
    name: str
    max_iterations: int
    #: It ends when no row is left for the next superstep of the first data set that goes round.
    ends_when_empty: bool = False
    #: Names and pickled aggregators.
    aggregators: tuple[tuple[str, bytes], ...] = ()
    #: Name of an aggregator, and the pickled criterion that its value may fulfil.
    convergence: tuple[str, bytes] | None = None


class IterationPlace(msgspec.Struct, frozen=True):
    """An operator's place in an iteration."""

    iteration: str
    role: IterationRole
    #: Which of the data sets that go round.
    variable: int = 0
    #: At the first input.
    control: IterationControl | None = None


class OperatorSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="operator"):
    """Base of all operator specs; its class variables and properties tell an operator's abilities."""

    #: The operator heads a chain and reads from outside instead of from an edge.
    is_source: ClassVar[bool] = False
    #: A split enumerator lives beside subtask 0 of the operator.
    has_enumerator: ClassVar[bool] = False
    #: The operator ends a branch of the plan.
    is_sink: ClassVar[bool] = False
    #: The operator is the writer of a `Sink`: plans show it as `name: Writer`.
    writes_for_sink: ClassVar[bool] = False
    #: A running aggregate: `last_only` makes it emit the last value of each key alone.
    is_rolling: ClassVar[bool] = False
    #: A running aggregate whose `function` is a user's reduce.
    folds_by_function: ClassVar[bool] = False
    #: Of bounded input, the rows of the first input come before those of the second one, whatever their times.
    #: With keys this is so in each key group.
    takes_inputs_in_turn: ClassVar[bool] = False
    #: False: an operator of parallelism 1 keeps it when the whole job is rescaled.
    rescalable: ClassVar[bool] = True
    #: The operator is not the engine's own: the spec is a ShippedOperator.
    is_shipped: ClassVar[bool] = False
    #: The operator converts between rows and columns, with the parallelism of the operator that it serves.
    is_conversion: ClassVar[bool] = False
    #: Ended subtasks leave no elements of union lists that a restore would lack.
    ended_subtasks_leave_no_unions: ClassVar[bool] = False
    #: Emitted rows bear the times of received ones, and none of their own.
    keeps_time: ClassVar[bool] = False
    #: Opening the user function connects to another system: a check of a savepoint registers its states alone.
    opens_outside: ClassVar[bool] = False
    #: The operator can have a rate limit: it is a LimitedOperator.
    takes_rate_limit: ClassVar[bool] = False
    #: The union list of the operators behind that the operator reads at a restore; empty = none.
    reads_list_behind: ClassVar[str] = ""
    #: The inputs of which the operator can leave out a record at which it fails; () = none, for this reason.
    on_error_inputs: ClassVar[tuple[int, ...]] = ()
    on_error_refusal: ClassVar[str] = NO_SINGLE_RECORDS
    #: The package of operators that runs the spec and is imported for it alone; empty = the registry looks.
    operator_package: ClassVar[str] = ""

    @property
    def is_bounded(self) -> bool:
        """True for a source that ends by itself."""
        return False

    @property
    def leaves_out(self) -> tuple[int, ...]:
        """`on_error_inputs`, or what the operator's object says."""
        return self.on_error_inputs

    @property
    def replay(self) -> Replay | None:
        """What a source gives again after a failure; None = the operator reads nothing from outside."""
        return None

    @property
    def delivery(self) -> SinkDelivery | None:
        """What a sink declares about its rows; None = the operator sends nothing outside, or nobody wants its rows."""
        return None

    @property
    def settled_guarantee(self) -> DeliveryGuarantee | None:
        """The guarantee that the writer of a sink keeps; None = not settled, or the operator has no such writer."""
        return None

    def with_guarantee(self, guarantee: DeliveryGuarantee) -> OperatorSpec:
        """Return the spec of a sink that keeps this guarantee; the spec itself where the sink knows one way alone."""
        return self

    @property
    def rate_limit(self) -> RateLimit:
        """The limit of a source or sink, for all its subtasks together."""
        limit: RateLimit = getattr(self, "limit", UNLIMITED)
        return limit

    @property
    def counts_bytes(self) -> bool:
        """Whether a rate limit in bytes is possible."""
        return bool(getattr(self, "knows_bytes", False))

    @property
    def as_history(self) -> OperatorSpec | None:
        """The source that reads the history of this source's stream; None = it says no positions, or is no source."""
        return None

    @property
    def reads_by(self) -> tuple[bytes, bytes | None] | None:
        """The pickled Source and WatermarkStrategy of an operator that reads by a Source; None = any other."""
        return None

    @property
    def emitted_schema(self) -> bytes | None:
        """The enforced Arrow schema (IPC bytes) of all emitted batches; None = it enforces none, or emits rows."""
        return None

    @property
    def keeps_schema(self) -> bool:
        """True if emitted batches have the schema of the received ones."""
        return False

    @property
    def columnar_side_outputs(self) -> tuple[str, ...]:
        """Ids of the side outputs that take record batches, of the schema that the operator reads."""
        return ()

    @property
    def keeps_rows(self) -> bool:
        """True if each emitted row is a received one, perhaps converted between rows and columns."""
        return self.is_conversion

    @property
    def for_bounded_input(self) -> OperatorSpec:
        """The spec that runs in its place where keys of bounded input come one after the other."""
        return self

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        """The key selector of each input of a process function, None for one without keys; () for other operators."""
        return ()

    @property
    def iteration_place(self) -> IterationPlace | None:
        """Where the operator stands at the border of an iteration; None = it is no border."""
        return None

    @property
    def opens_loop(self) -> int | None:
        """The number of the loop whose feedback the operator emits; None = it is no head of a loop."""
        return None

    @property
    def closes_loop(self) -> int | None:
        """The number of the loop to whose head the operator sends rows; None = it is no tail of a loop."""
        return None

    @property
    def collects_for(self) -> str | None:
        """Id of the client's iterator for the operator's rows; None = no client collects them."""
        return None

    @property
    def column_scan(self) -> ColumnScan | None:
        """The files that the operator reads, without any change of their rows; None = only it can read its input."""
        return None

    @property
    def row_fold(self) -> RollingFold | None:
        """How the operator folds the rows of a key, if it is a rolling aggregate of rows; None = anything else."""
        return None

    @property
    def keyed_aggregates(self) -> KeyedAggregates | None:
        """What the operator computes, if that is built-in aggregates of columns; None = anything else."""
        return None

    @property
    def condition(self) -> AnyCondition | None:
        """The condition by which the operator keeps rows of columns, if it does nothing else; None = anything else."""
        return None

    @property
    def selected_columns(self) -> tuple[str, ...] | None:
        """The columns that the operator keeps, if it does nothing else; None = anything else."""
        return None

    @property
    def spark_stage(self) -> Stage | None:
        """The stage that the operator is, if its job is a pipeline of Spark stages; None = anything else."""
        return None


class LimitedOperator(OperatorSpec, frozen=True, kw_only=True):
    """A source or sink whose subtasks share a rate limit."""

    takes_rate_limit = True

    limit: RateLimit = UNLIMITED
    knows_bytes: bool = False


class SourceOperator(LimitedOperator, frozen=True, kw_only=True, tag="source"):
    """A `Source` (connectors.base) with its enumerator and readers."""

    is_source = True
    has_enumerator = True
    # Readers keep their progress in one, and an ended reader has none.
    ended_subtasks_leave_no_unions = True
    on_error_refusal = "its format treats errors: call on_error of the source's builder or of its format"

    source: bytes
    #: Set if timestamps or watermarks are made inside the source.
    watermark_strategy: bytes | None = None
    #: The boundedness of the source is BOUNDED.
    bounded: bool = False
    #: The bounded source of what there is now, behind which an unbounded source goes on; None = there is none.
    history: bytes | None = None
    #: The files of a source that emits their columns.
    scan: ColumnScan | None = None
    #: The source's `replay`.
    declared_replay: Replay = Replay.EXACT_POSITIONS

    @property
    def replay(self) -> Replay:
        return self.declared_replay

    @property
    def reads_by(self) -> tuple[bytes, bytes | None]:
        return self.source, self.watermark_strategy

    @property
    def is_bounded(self) -> bool:
        return self.bounded

    @property
    def as_history(self) -> SourceOperator | None:
        if self.bounded:
            return self
        if self.history is None:
            return None
        return msgspec.structs.replace(self, source=self.history, bounded=True, scan=None)

    @property
    def column_scan(self) -> ColumnScan | None:
        return self.scan


class SourceFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="source_function"):
    """A legacy SourceFunction whose run() blocks, in a thread of its own."""

    is_source = True
    # A non-parallel one would emit everything once for each subtask.
    rescalable = False
    opens_outside = True
    on_error_refusal = "a SourceFunction has no record when it fails: catch the error in its run()"

    function: bytes
    #: The function keeps its position in a checkpoint.
    keeps_position: bool = False

    @property
    def replay(self) -> Replay:
        return Replay.EXACT_POSITIONS if self.keeps_position else Replay.NONE


class RowFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="row_function"):
    """map, flat_map or filter; `key_selector` is set if a rich function on a keyed stream may use keyed state."""

    keeps_time = True
    on_error_inputs = (0,)

    shape: RowShape
    function: bytes
    key_selector: bytes | None = None

    @property
    def keeps_rows(self) -> bool:
        return self.shape is RowShape.FILTER


class ProjectOperator(OperatorSpec, frozen=True, kw_only=True, tag="project"):
    """Keeps the fields at `indexes` of a tuple or Row, as a tuple."""

    keeps_time = True
    on_error_inputs = (0,)

    indexes: tuple[int, ...]


class TimestampsAndWatermarksOperator(OperatorSpec, frozen=True, kw_only=True, tag="timestamps_watermarks"):
    """Assigns timestamps to rows and makes watermarks, by a WatermarkStrategy."""

    keeps_rows = True

    strategy: bytes


class ColumnTimestampsOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_timestamps"):
    """Takes timestamps from a column of record batches and makes watermarks, by a WatermarkStrategy."""

    strategy: bytes

    @property
    def keeps_schema(self) -> bool:
        return True


class ProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="process"):
    """ProcessFunction, or KeyedProcessFunction if `key_selector` is set."""

    on_error_inputs = (0,)

    function: bytes
    key_selector: bytes | None = None

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        return (self.key_selector,)


class ResultOrder(StrEnum):
    """The order in which results of an asynchronous function leave."""

    #: As the records came.
    ORDERED = "ordered"
    #: As the results come, but never past a watermark.
    UNORDERED = "unordered"
    #: As the records of each key came, and never past a watermark.
    BY_KEY = "by_key"


class AsyncBatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows an asynchronous function gets at once."""

    max_rows: int
    #: Milliseconds that a row waits for others.
    max_wait_ms: int
    #: Milliseconds that a call should take at most: batches shrink behind longer ones.
    latency_ms: int


class AsyncWaitOperator(OperatorSpec, frozen=True, kw_only=True, tag="async_wait"):
    """An asynchronous function that waits for the answers of many records at a time."""

    opens_outside = True
    operator_package = "asynchronous"

    function: bytes
    #: The pickled AsyncRetryStrategy.
    strategy: bytes
    #: Milliseconds from the first attempt to the end of all attempts of a call.
    timeout_ms: int
    #: Most rows whose results have not been emitted.
    capacity: int
    order: ResultOrder
    #: Number of threads that call the function; 0 = it is a coroutine function.
    threads: int = 0
    #: Set for an AsyncBatchFunction.
    batch: AsyncBatchLimits | None = None
    #: Set behind key_by.
    key_selector: bytes | None = None


class AsyncByKeyOperator(AsyncWaitOperator, frozen=True, kw_only=True, tag="async_by_key"):
    """An asynchronous function whose results leave in the order of each key: records in flight belong to their key."""

    # The list has records in flight, and an ended subtask has none.
    ended_subtasks_leave_no_unions = True


class AsyncColumnsOperator(AsyncWaitOperator, frozen=True, kw_only=True, tag="async_columns"):
    """An asynchronous function of record batches."""

    #: The Arrow schema of its results (IPC bytes); None = not declared.
    schema: bytes | None = None

    @property
    def emitted_schema(self) -> bytes | None:
        return self.schema


class ReduceOperator(OperatorSpec, frozen=True, kw_only=True, tag="reduce"):
    """Running keyed reduce: emits the new value of the key for each record."""

    is_rolling = True
    keeps_time = True
    folds_by_function = True

    function: bytes
    key_selector: bytes
    #: A stream, too, emits the last value of each key alone, when the input ends.
    last_only: bool = False
    #: The program says that the function gives the same for its arguments in any order.
    commutes: bool = False
    #: The function opens itself, and may ask for state.
    is_rich: bool = False

    @property
    def row_fold(self) -> RollingFold:
        return RollingFold(function=self.function, commutes=self.commutes, is_rich=self.is_rich)


class AggregateOperator(OperatorSpec, frozen=True, kw_only=True, tag="aggregate"):
    """Running keyed built-in aggregate on a field of tuples, lists or Rows; None = the record itself."""

    is_rolling = True
    keeps_time = True

    kind: AggregateKind
    position: int | str | None
    key_selector: bytes
    #: As of ReduceOperator.
    last_only: bool = False

    @property
    def row_fold(self) -> RollingFold:
        return RollingFold(kind=self.kind, position=self.position)


class CoFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="co_function"):
    """CoMapFunction or CoFlatMapFunction; key selectors are set if both inputs are keyed."""

    on_error_inputs = (0, 1)

    shape: CoShape
    function: bytes
    key_selectors: tuple[bytes, bytes] | None = None


class CoProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="co_process"):
    """CoProcessFunction, or KeyedCoProcessFunction if key selectors are set."""

    on_error_inputs = (0, 1)

    function: bytes
    key_selectors: tuple[bytes, bytes] | None = None

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        return self.key_selectors or (None, None)


class BroadcastProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="broadcast_process"):
    """BroadcastProcessFunction, or KeyedBroadcastProcessFunction if `key_selector` is set.

    Input 0 is the main stream; `states` is a tuple of the MapStateDescriptors of broadcast state.
    """

    # A broadcast record that one subtask leaves out would give it other broadcast state than the others have.
    on_error_inputs = (0,)

    function: bytes
    states: bytes
    key_selector: bytes | None = None

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        return (self.key_selector, None)


class BatchShape(StrEnum):
    """Forms of columnar user functions: a batch to a batch, or a batch to a boolean column."""

    MAP_BATCHES = "map_batches"
    FILTER_BATCHES = "filter_batches"


class BatchFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="batch_function"):
    """map_batches or filter_batches; `schema` is the declared Arrow output schema (IPC bytes) or None."""

    on_error_inputs = (0,)
    shape: BatchShape
    function: bytes
    container: BatchContainer
    schema: bytes | None = None

    @property
    def emitted_schema(self) -> bytes | None:
        return None if self.keeps_schema else self.schema

    @property
    def keeps_schema(self) -> bool:
        return self.shape is BatchShape.FILTER_BATCHES

    @property
    def keeps_rows(self) -> bool:
        return self.shape is BatchShape.FILTER_BATCHES


class ColumnFilterOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_filter"):
    """Keeps the rows for which a condition is true."""

    keeps_schema = True
    keeps_rows = True

    row_condition: AnyCondition

    @property
    def condition(self) -> AnyCondition:
        return self.row_condition


class ColumnSelectionOperator(OperatorSpec, frozen=True, kw_only=True, tag="column_selection"):
    """Keeps some columns, in the order given."""

    columns: tuple[str, ...]

    @property
    def selected_columns(self) -> tuple[str, ...]:
        return self.columns


class ArrowAggregateOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_aggregate"):
    """Running vectorised aggregates by key: emits the row of every key touched, once a batch."""

    is_rolling = True

    key_column: KeyColumns
    aggregates: tuple[ColumnAggregate, ...]
    #: As of ReduceOperator.
    last_only: bool = False

    @property
    def keyed_aggregates(self) -> KeyedAggregates:
        return KeyedAggregates(self.key_column, self.aggregates)


class SqlResultsOperator(OperatorSpec, frozen=True, kw_only=True, tag="sql_results"):
    """In the place of a source of a bounded job: takes the aggregates that Spark SQL has computed over its files."""

    #: The Arrow schema of the source's batches (IPC bytes).
    schema: bytes
    aggregates: KeyedAggregates


class AggregatedColumnsOperator(OperatorSpec, frozen=True, kw_only=True, tag="aggregated_columns"):
    """In the place of aggregates, filters and selections of columns in a bounded job: hands on what was computed."""


class RowsToArrowOperator(OperatorSpec, frozen=True, kw_only=True, tag="rows_to_arrow"):
    """Conversion of declared rows to record batches of `schema` (IPC bytes); shown in the plan."""

    is_conversion = True
    keeps_time = True

    schema: bytes

    @property
    def emitted_schema(self) -> bytes:
        return self.schema


class ArrowToRowsOperator(OperatorSpec, frozen=True, kw_only=True, tag="arrow_to_rows"):
    """Conversion of record batches to Rows (or the declared tuple type)."""

    is_conversion = True
    keeps_time = True

    as_tuple: bool = False


class SinkFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="sink_function"):
    """A legacy SinkFunction: invoke(value, context) for each record."""

    is_sink = True
    on_error_inputs = (0,)
    opens_outside = True

    function: bytes

    @property
    def delivery(self) -> SinkDelivery:
        return SinkDelivery(connector="SinkFunction", kept_by={DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH})


class SinkWriterOperator(LimitedOperator, frozen=True, kw_only=True, tag="sink_writer"):
    """A `Sink` (connectors.base) with its writer and, if it has one, its committer."""

    is_sink = True
    writes_for_sink = True
    on_error_refusal = (
        "the sink does not tell which row it refuses: encode rows by a map with on_error before it"
    )

    sink: bytes
    #: A bounded job commits this sink behind its others.
    commits_last: bool = False
    #: The sink's declaration; None in a graph of an older client, which sends none.
    declared: SinkDelivery | None = None
    #: The guarantee that the writer keeps; None = what the sink asks for, or the strongest that the sink keeps.
    guarantee: DeliveryGuarantee | None = None
    #: The sink's `tells_refused_rows`.
    tells_rows: bool = False

    @property
    def leaves_out(self) -> tuple[int, ...]:
        return (0,) if self.tells_rows else ()

    @property
    def delivery(self) -> SinkDelivery | None:
        return self.declared

    @property
    def settled_guarantee(self) -> DeliveryGuarantee | None:
        return self.guarantee

    def with_guarantee(self, guarantee: DeliveryGuarantee) -> SinkWriterOperator:
        return msgspec.structs.replace(self, guarantee=guarantee)


class PrintOperator(OperatorSpec, frozen=True, kw_only=True, tag="print"):
    """Writes each record as a line to the TaskExecutor's .out file (and the embedded client's stdout)."""

    is_sink = True

    identifier: str = ""

    @property
    def delivery(self) -> SinkDelivery:
        return SinkDelivery(connector="print", kept_by={DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH})


class DiscardOperator(OperatorSpec, frozen=True, kw_only=True, tag="discard"):
    """Stands for a sink whose rows nobody wants: it counts them and drops them."""

    is_sink = True


class CollectOperator(OperatorSpec, frozen=True, kw_only=True, tag="collect"):
    """Sends records to the client of execute_and_collect through the JobMaster, with flow control."""

    is_sink = True

    collect_id: str
    max_buffered_rows: int = 10_000

    @property
    def delivery(self) -> SinkDelivery:
        # The client keeps rows back until a checkpoint covers them.
        kept_by = {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.STAGED_ROWS}
        return SinkDelivery(connector="execute_and_collect", kept_by=kept_by)

    @property
    def collects_for(self) -> str:
        return self.collect_id


class ShippedOperator(OperatorSpec, frozen=True, kw_only=True, tag="shipped"):
    """An operator outside of the engine; only workers import its modules and decode its own spec.

    The modules are shipped with the job (`add_python_file`), or installed where workers run.
    """

    is_shipped = True

    #: The package with the modules of spec and operator.
    package: str
    #: Module and name of the spec's class, and its fields as msgpack.
    module: str
    name: str
    fields: bytes
    #: `emitted_schema` of the spec.
    schema: bytes | None = None

    @property
    def emitted_schema(self) -> bytes | None:
        return self.schema


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
    #: KEY_GROUP on columns.
    key_column: KeyColumns | None = None
    #: CUSTOM: cloudpickle of a callable (key, number of partitions) -> index. KEY_GROUP, in batch jobs alone: the same.
    #: The rows then belong to the first key group of the subtask with that index.
    function: bytes | None = None
