"""Operator specs: operators as data. The API names operators by these structs, and only `container` runs them.

Class variables and properties of a spec tell an operator's abilities. The master, workers and clients ask for
these, never for the class. Owner: none (frozen values). Must not import operators or call user functions:
`function` fields hold cloudpickle bytes that the control plane passes on unread.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Self

import msgspec

from yarrow.common.pipelines.stage import Stage
from yarrow.common.values.conditions import AnyCondition, WantedColumns
from yarrow.common.values.delivery import DeliveryGuarantee, Replay, SinkDelivery
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
    #: `function` is a process function, called with each record of each input, and with timers.
    calls_process_function: ClassVar[bool] = False
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
    #: The kind of the operator, in words. A restore refuses the state of another kind under the same uid, which nobody
    #: would read. Part of the format of savepoints. Empty = unknown, and not compared.
    keeps_state_as: ClassVar[str] = "a function"
    #: Pairs of rows that the operator has not joined may come again, at the input PAIR_OF_INPUTS.
    takes_pairs: ClassVar[bool] = False
    #: The package of operators that runs the spec and is imported for it alone; empty = the registry looks.
    operator_package: ClassVar[str] = ""

    @property
    def is_bounded(self) -> bool:
        """True for a source that ends by itself."""
        return False

    @property
    def state_kind(self) -> str:
        """`keeps_state_as`, or what the operator's settings say."""
        return self.keeps_state_as

    @property
    def leaves_out(self) -> tuple[int, ...]:
        """`on_error_inputs`, or what the operator's object says."""
        return self.on_error_inputs

    @property
    def why_none_left_out(self) -> str:
        """Why `leaves_out` has no input: `on_error_refusal`, or what the operator's settings say."""
        return self.on_error_refusal

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """The spec that runs in its place where `on_error` leaves out records."""
        return self

    @property
    def takes_rows_of_windows(self) -> bool:
        """Whether the rows of windows whose function has failed may come again, at the first input."""
        return False

    def for_matches_of_letters(self, uid: str, row_type: TypeSpec) -> OperatorSpec | None:
        """Return the spec that runs the function of this pattern for matches in letters of `uid`; None = no pattern.

        `row_type`: of the pattern's input.
        """
        return None

    @property
    def letters_uid(self) -> str:
        """The uid of the operator that letters name; empty = this operator's own."""
        return ""

    @property
    def rows_enter_before(self) -> bool:
        """Whether the operator before makes what this one takes, so that rows that come again must go there."""
        return False

    @property
    def pair_type(self) -> TypeSpec:
        """The type of the pairs in letters of a join; None = undeclared."""
        return None

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
    def scan_note(self) -> str:
        """What a source leaves out of its input because no operator behind it reads that; "" = nothing."""
        return ""

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

    def narrowed(self, wanted: WantedColumns) -> Self:
        """A source that may leave out what nobody wants of its columns and rows; itself if it gives all of them."""
        return self

    @property
    def spark_stage(self) -> Stage | None:
        """The stage that the operator is, if its job is a pipeline of Spark stages; None = anything else."""
        return None


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


class ProcessOperator(OperatorSpec, frozen=True, kw_only=True, tag="process"):
    """ProcessFunction, or KeyedProcessFunction if `key_selector` is set."""

    calls_process_function = True
    on_error_inputs = (0,)

    function: bytes
    key_selector: bytes | None = None

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        return (self.key_selector,)


class ReduceOperator(OperatorSpec, frozen=True, kw_only=True, tag="reduce"):
    """Running keyed reduce: emits the new value of the key for each record."""

    is_rolling = True
    keeps_state_as = "a running aggregate"
    keeps_time = True
    folds_by_function = True
    on_error_inputs = (0,)

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
    keeps_state_as = "a running aggregate"
    keeps_time = True
    on_error_inputs = (0,)

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

    calls_process_function = True
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

    calls_process_function = True
    # A broadcast record that one subtask leaves out would give it other broadcast state than the others have.
    on_error_inputs = (0,)

    function: bytes
    states: bytes
    key_selector: bytes | None = None

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        return (self.key_selector, None)


class ShippedOperator(OperatorSpec, frozen=True, kw_only=True, tag="shipped"):
    """An operator outside of the engine; only workers import its modules and decode its own spec.

    The modules are shipped with the job (`add_python_file`), or installed where workers run.
    """

    is_shipped = True
    keeps_state_as = ""

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
