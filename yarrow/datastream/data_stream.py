"""DataStream: a stream of records, and the operators that can be put behind it.

Owner: the thread that builds the program. Each method adds a transformation and returns a stream; nothing
runs before `execute`. A stream carries rows (Python objects) or columns (Arrow record batches); an operator
that needs the other kind gets a conversion before it, which the plan shows. What this version does not do is
refused here, at the line that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, overload

from yarrow.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.arrow_schemas import schema_bytes
from yarrow.datastream.batch_functions import container_of
from yarrow.datastream.closeable_iterator import CloseableIterator
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.data_stream_sink import DataStreamSink
from yarrow.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from yarrow.datastream.graph_builder import declared
from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.state import MapStateDescriptor
from yarrow.datastream.user_functions import declares_blocking, require_function
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.operator_spec import (
    BatchContainer,
    BatchFunctionOperator,
    BatchShape,
    CollectOperator,
    PartitionerKind,
    PartitionerSpec,
    PrintOperator,
    ProcessOperator,
    ProjectOperator,
    RowFunctionOperator,
    RowShape,
    SinkFunctionOperator,
    SinkWriterOperator,
    StreamKind,
    TimestampsAndWatermarksOperator,
)
from yarrow.runtime.graph.transformations import OperatorTransformation, Transformation

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.execution_config import ExecutionConfig
    from yarrow.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream
    from yarrow.datastream.connected_streams import ConnectedStreams
    from yarrow.datastream.keyed_stream import KeyedStream
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ColumnarKeyedStream",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
]

#: Types of key selectors: a function of the record, or an object with get_key.
KeyFunction = Callable[[Any], Any] | KeySelector[Any, Any]


def __getattr__(name: str) -> Any:
    """The streams that have modules of their own can be imported from here too; they import this module."""
    if name == "KeyedStream":
        from yarrow.datastream.keyed_stream import KeyedStream

        return KeyedStream
    if name == "ConnectedStreams":
        from yarrow.datastream.connected_streams import ConnectedStreams

        return ConnectedStreams
    if name == "ColumnarKeyedStream":
        from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream

        return ColumnarKeyedStream
    if name in ("BroadcastStream", "BroadcastConnectedStream"):
        from yarrow.datastream import broadcast_stream

        return getattr(broadcast_stream, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DataStream(OperatorSettings):
    """The records that an operator, a partition or a union puts out.

    Settings such as `name`, `uid` or `set_parallelism` concern the operator that the stream comes from.
    """

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        super().__init__(transformation)
        self._environment = environment
        self._builder = environment.graph_builder

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the settings of the program's execution."""
        return self._environment.get_config()

    def get_type(self) -> TypeInformation:
        """Return the declared type; PICKLED_BYTE_ARRAY when none was declared."""
        return self.transformation.output_type or Types.PICKLED_BYTE_ARRAY()

    @property
    def is_columnar(self) -> bool:
        """Whether the stream carries record batches instead of rows."""
        return self.transformation.output_kind is StreamKind.COLUMNAR

    # Functions of one record

    def map(
        self, func: Callable[[Any], Any] | MapFunction[Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Return the stream of `func`'s result for each record."""
        require_function(func, MapFunction, "map")
        return self._row_function("Map", RowShape.MAP, func, declared(output_type))

    def flat_map(
        self,
        func: Callable[[Any], Iterable[Any] | None] | FlatMapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of all results of `func`, an iterable or None for each record."""
        require_function(func, FlatMapFunction, "flat_map")
        return self._row_function("Flat Map", RowShape.FLAT_MAP, func, declared(output_type))

    def filter(self, func: Callable[[Any], bool] | FilterFunction[Any]) -> DataStream:
        """Return the stream of the records for which `func` is true."""
        require_function(func, FilterFunction, "filter")
        return self._row_function("Filter", RowShape.FILTER, func, self.transformation.output_type)

    def process(
        self,
        func: ProcessFunction[Any, Any] | KeyedProcessFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of what a ProcessFunction emits; its side outputs by `get_side_output`."""
        if isinstance(func, KeyedProcessFunction):
            raise TypeError(
                "process takes a KeyedProcessFunction on a keyed stream only: call key_by before it"
            )
        require_function(func, ProcessFunction, "process", callables=False)
        spec = ProcessOperator(function=self._builder.pickle(func, "Process"))
        return self._one_input("Process", spec, declared(output_type), declares_blocking(func))

    def project(self, *field_indexes: int) -> DataStream:
        """Return the stream of tuples of these fields of tuples or Rows, in the order given.

        Raises InvalidProgramError for an index that the declared type does not have.
        """
        indexes = field_indexes
        if not indexes or not all(isinstance(index, int) and index >= 0 for index in indexes):
            raise InvalidProgramError(f"project takes field positions from 0 on, not {field_indexes!r}")
        record_type = self.transformation.output_type
        output_type: TypeInformation | None = None
        if isinstance(record_type, TupleTypeInfo | RowTypeInfo):
            fields = record_type.get_field_types()
            if max(indexes) >= len(fields):
                raise InvalidProgramError(
                    f"project: there is no field {max(indexes)}; the records have {len(fields)} fields,"
                    f" 0 to {len(fields) - 1}"
                )
            output_type = Types.TUPLE([fields[index] for index in indexes])
        return self._one_input("Projection", ProjectOperator(indexes=indexes), output_type)

    # Several streams

    def union(self, *streams: DataStream) -> DataStream:
        """Return the stream of the records of this stream and the others, which must be of one type."""
        if not streams:
            return self
        reads = [self.transformation, *(self._same_program(stream, "union") for stream in streams)]
        first = reads[0].output_type
        for read in reads[1:]:
            if None not in (first, read.output_type) and read.output_type != first:
                raise InvalidProgramError(
                    f"Cannot union streams of different types: {first} and {read.output_type}."
                    " Map them to one type first."
                )
            if read.output_kind is not reads[0].output_kind:
                raise InvalidProgramError(
                    "Cannot union rows and columns: convert one of the streams with to_arrow() or to_rows()."
                )
        return DataStream(self._environment, self._builder.union(reads))

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...
    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Return this stream and another, of any type, for functions that take records of both."""
        from yarrow.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from yarrow.datastream.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            self._same_program(ds.input_stream, "connect")
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        self._same_program(ds, "connect")
        return ConnectedStreams(self, ds)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return what the operator before emits under a tag."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"get_side_output takes an OutputTag, not {output_tag!r}")
        made = self._builder.side_output(
            self.operator("get_side_output"), output_tag.tag_id, declared(output_tag.type_info)
        )
        return DataStream(self._environment, made)

    # Distribution

    @overload
    def key_by(self, key_selector: str, key_type: TypeInformation | None = None) -> ColumnarKeyedStream: ...
    @overload
    def key_by(self, key_selector: KeyFunction, key_type: TypeInformation | None = None) -> KeyedStream: ...
    def key_by(
        self, key_selector: KeyFunction | str, key_type: TypeInformation | None = None
    ) -> KeyedStream | ColumnarKeyedStream:
        """Return the stream distributed by key: equal keys reach the same subtask.

        The key is what a function or KeySelector returns for a record or, on a columnar stream, a column.
        Numbers, texts, bytes, dates, None, tuples, Rows, enums and frozen dataclasses of these can be keys;
        a key of another type fails the job at its first record.
        """
        if isinstance(key_selector, str):
            from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream

            if not self.is_columnar:
                raise InvalidProgramError(
                    f"key_by({key_selector!r}): only a columnar stream has columns to name."
                    " Convert with to_arrow() first, or pass a function, such as lambda row:"
                    f" row[{key_selector!r}]."
                )
            return ColumnarKeyedStream.of(self, key_selector)
        from yarrow.datastream.keyed_stream import KeyedStream

        return KeyedStream.of(self, key_selector, key_type)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner[Any],
        key_selector: KeyFunction,
    ) -> DataStream:
        """Return the stream whose records go to the subtask that `partitioner(key, number)` names."""
        require_function(partitioner, Partitioner, "partition_custom")
        require_function(key_selector, KeySelector, "partition_custom")
        spec = PartitionerSpec(
            kind=PartitionerKind.CUSTOM,
            key_selector=self._builder.pickle(key_selector, "partition_custom", "key selector"),
            function=self._builder.pickle(partitioner, "partition_custom", "partitioner"),
        )
        return self._partition(spec, self._builder.as_rows(self.transformation))

    def forward(self) -> DataStream:
        """Return the stream whose records stay in their subtask; needs equal parallelism behind it."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.FORWARD))

    def shuffle(self) -> DataStream:
        """Return the stream whose records go to subtasks chosen at random."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.SHUFFLE))

    def rebalance(self) -> DataStream:
        """Return the stream whose records go to all subtasks in turn."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.REBALANCE))

    def rescale(self) -> DataStream:
        """Return the stream whose records go in turn to some of the subtasks, near their producer."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.RESCALE))

    def global_(self) -> DataStream:
        """Return the stream whose records all go to the first subtask."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.GLOBAL))

    @overload
    def broadcast(self) -> DataStream: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor[Any, Any],
        *other_broadcast_state_descriptors: MapStateDescriptor[Any, Any],
    ) -> BroadcastStream: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor[Any, Any] | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor[Any, Any],
    ) -> DataStream | BroadcastStream:
        """Return the stream whose records go to every subtask.

        With descriptors it is a BroadcastStream, for `connect`: functions there keep what they need of it in the
        states described.
        """
        stream = self._partition(PartitionerSpec(kind=PartitionerKind.BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        from yarrow.datastream.broadcast_stream import BroadcastStream

        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    # Time

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Return the stream with the strategy's timestamps, and its watermarks in place of those so far.

        A record without timestamp fails the job where the strategy needs one and has no timestamp assigner.
        """
        check_strategy(watermark_strategy, "assign_timestamps_and_watermarks")
        name = "Timestamps/Watermarks"
        spec = TimestampsAndWatermarksOperator(
            strategy=self._builder.pickle(watermark_strategy, name, "watermark strategy")
        )
        return self._one_input(name, spec, self.transformation.output_type)

    # Columns

    def to_arrow(self, schema: pa.Schema | None = None) -> DataStream:
        """Return the stream as Arrow record batches of `schema`, or of the declared type of the rows.

        Raises InvalidProgramError when neither is there.
        """
        if self.is_columnar:
            return self
        wanted = None if schema is None else schema_bytes(schema)
        return DataStream(
            self._environment, self._builder.as_columns(self.transformation, "to_arrow()", wanted)
        )

    def to_rows(self, as_tuple: bool = False) -> DataStream:
        """Return a columnar stream as Rows named like its columns, or as tuples."""
        return DataStream(self._environment, self._builder.as_rows(self.transformation, as_tuple))

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None = None,
        container: BatchContainer | str | None = None,
    ) -> DataStream:
        """Return the stream of `fn`'s result for each batch.

        `fn` takes and returns a pyarrow RecordBatch or Table, or a polars or pandas DataFrame: what its first
        parameter is annotated with, else `container` ("pyarrow", "polars", "pandas"), else a RecordBatch.
        With a schema, each result must have it.
        """
        return self._batch_function("Map Batches", BatchShape.MAP_BATCHES, fn, schema, container)

    def filter_batches(
        self, fn: Callable[[Any], Any], container: BatchContainer | str | None = None
    ) -> DataStream:
        """Return the stream of the rows for which `fn` gives true, a boolean column for each batch."""
        return self._batch_function("Filter Batches", BatchShape.FILTER_BATCHES, fn, None, container)

    # Ends

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record as a line to the TaskExecutor's output, embedded to the client's stdout."""
        spec = PrintOperator(identifier=sink_identifier or "")
        return self._sink("Print to Std. Out", spec, self._builder.as_rows(self.transformation), False)

    def add_sink(self, sink_func: SinkFunction[Any]) -> DataStreamSink:
        """Hand each record to a SinkFunction."""
        require_function(sink_func, SinkFunction, "add_sink", callables=False)
        spec = SinkFunctionOperator(function=self._builder.pickle(sink_func, "add_sink", "sink"))
        read = self._builder.as_rows(self.transformation)
        return self._sink("Unnamed", spec, read, declares_blocking(sink_func))

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Hand the records to a Sink; one that does not take columns gets rows."""
        if not isinstance(sink, Sink):
            raise TypeError(
                f"sink_to takes a Sink, not {type(sink).__name__}; a SinkFunction goes to add_sink"
            )
        sink.validate()
        spec = SinkWriterOperator(sink=self._builder.pickle(sink, "sink_to", "sink"))
        read = self.transformation if sink.accepts_columns else self._builder.as_rows(self.transformation)
        return self._sink("Sink: Writer", spec, read, declares_blocking(sink))

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator:
        """Execute the program and return its records as an iterator; closing it cancels the job.

        With a limit the iterator ends, and the job is cancelled, after so many records.
        With exactly-once checkpoints a record is returned once a checkpoint that covers it is complete, or the job has
        finished; without, it is returned at once, and perhaps again after a restart.
        Raises the job's error from `next`.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative: {limit}")
        collect_id = self._environment.new_collect_id()
        spec = CollectOperator(collect_id=collect_id)
        sink = self._sink("Collect", spec, self._builder.as_rows(self.transformation), False)
        sink.set_parallelism(1)
        client = self._environment.execute_async(job_execution_name or "Collect")
        return CloseableIterator(client, collect_id, limit)

    # What this version refuses

    def window_all(self, window_assigner: Any) -> NoReturn:
        """Refused: this version has no windows."""
        refuse("window_all", "windows")

    def cache(self) -> NoReturn:
        """Refused: this version keeps no intermediate results."""
        refuse("cache", "cached intermediate results")

    # Shared by the methods above and by the streams that derive from this one

    def _row_function(
        self, name: str, shape: RowShape, func: Any, output_type: TypeInformation | None
    ) -> DataStream:
        spec = RowFunctionOperator(
            shape=shape,
            function=self._builder.pickle(func, name),
            key_selector=self._key_selector_for(func),
        )
        return self._one_input(name, spec, output_type, declares_blocking(func))

    def _key_selector_for(self, func: Any) -> bytes | None:
        """What a rich function needs to reach keyed state; nothing unless the stream is keyed."""
        return None

    def _one_input(
        self, name: str, spec: Any, output_type: TypeInformation | None, blocking: bool = False
    ) -> DataStream:
        read = self._builder.as_rows(self.transformation)
        made = self._builder.one_input(read, name, spec, output_type=output_type, blocking=blocking)
        return DataStream(self._environment, made)

    def _batch_function(
        self,
        name: str,
        shape: BatchShape,
        fn: Callable[[Any], Any],
        schema: pa.Schema | None,
        container: BatchContainer | str | None,
    ) -> DataStream:
        chosen = container_of(fn, container, shape.value)
        read = self._builder.as_columns(self.transformation, f"{shape.value}()")
        output = schema_bytes(schema) if schema is not None else None
        spec = BatchFunctionOperator(
            shape=shape, function=self._builder.pickle(fn, name), container=chosen, schema=output
        )
        made = self._builder.one_input(
            read,
            name,
            spec,
            output_kind=StreamKind.COLUMNAR,
            output_schema=read.output_schema if shape is BatchShape.FILTER_BATCHES else output,
            blocking=declares_blocking(fn),
        )
        return DataStream(self._environment, made)

    def _sink(self, name: str, spec: Any, read: Transformation, blocking: bool) -> DataStreamSink:
        return DataStreamSink(self._builder.sink(read, name, spec, blocking=blocking))

    def _partition(self, spec: PartitionerSpec, read: Transformation | None = None) -> DataStream:
        return DataStream(self._environment, self._builder.partition(read or self.transformation, spec))

    def _same_program(self, stream: object, method: str) -> Transformation:
        if not isinstance(stream, DataStream):
            raise TypeError(f"{method} takes DataStreams, not {type(stream).__name__}")
        if stream._environment is not self._environment:
            raise InvalidProgramError(
                f"{method}: the streams belong to two execution environments, that is, to two jobs."
            )
        return stream.transformation

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is part of the program that is being built and cannot be used inside a"
            " function"
        )


def check_strategy(watermark_strategy: WatermarkStrategy, method: str) -> None:
    """Raises TypeError for anything else than a strategy, UnsupportedFeatureError for what no source can do yet."""
    if not isinstance(watermark_strategy, WatermarkStrategy):
        raise TypeError(
            f"{method} takes a WatermarkStrategy, such as WatermarkStrategy.for_monotonous_timestamps(), not"
            f" {watermark_strategy!r}"
        )
    if watermark_strategy.alignment is not None:
        refuse(
            f"{method} with watermark alignment (group {watermark_strategy.alignment.watermark_group!r})",
            "alignment of sources: leave with_watermark_alignment out, and bound state by time to live",
        )


def refuse(what: str, missing: str) -> NoReturn:
    """Raises UnsupportedFeatureError naming what was asked for and what is missing."""
    raise UnsupportedFeatureError(f"{what} is refused: this version has no {missing}.")


def operator_of(stream: DataStream) -> OperatorTransformation:
    """The operator that a stream comes from; for tools and tests that look at a program."""
    return stream.operator("operator_of")
