"""DataStream: a stream of records, and the operators that can be put behind it.

Owner: the thread that builds the program. Each method adds a transformation and returns a stream; nothing
runs before `execute`. A stream carries rows (Python objects) or columns (Arrow record batches). An operator
that needs the other kind gets a conversion before it, which the plan shows. What this version does not do is
refused here, at the line that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import msgspec

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from yarrow.common.values.conditions import AnyCondition, condition_of
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.data_stream_sink import DataStreamSink
from yarrow.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.state import MapStateDescriptor
from yarrow.datastream.stream_columns import StreamColumns
from yarrow.datastream.stream_distribution import KeyFunction, StreamDistribution
from yarrow.datastream.stream_ends import StreamEnds
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.common.public_names import loading
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.operator_spec import (
    PartitionerKind,
    PartitionerSpec,
    ProcessOperator,
    ProjectOperator,
    RowFunctionOperator,
    RowShape,
    TimestampsAndWatermarksOperator,
)
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation, has_no_time
from yarrow.runtime.graph.window_spec import EventTimeOrderOperator

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from yarrow.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream
    from yarrow.datastream.connected_streams import ConnectedStreams, IterativeStream
    from yarrow.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from yarrow.datastream.keyed_stream import KeyedStream
    from yarrow.datastream.program.closeable_iterator import CloseableIterator
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
    from yarrow.datastream.window import WindowAssigner
    from yarrow.datastream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ColumnarKeyedStream",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "OrderedStream",
    "WindowedStream",
]


#: Streams that have modules of their own can be imported from here too, and they import this module. So can the
#: iterator, which most programs do not load.
__getattr__ = loading(
    __name__,
    {
        "AllWindowedStream": "windowed_stream",
        "BroadcastConnectedStream": "broadcast_stream",
        "BroadcastStream": "broadcast_stream",
        "CloseableIterator": "program.closeable_iterator",
        "ColumnarKeyedStream": "columnar_keyed_stream",
        "ConnectedStreams": "connected_streams",
        "KeyedStream": "keyed_stream",
        "WindowedStream": "windowed_stream",
    },
    "yarrow.datastream",
)


class DataStream(StreamDistribution["DataStream"], StreamColumns["DataStream"], StreamEnds["DataStream"]):
    """The records that an operator, a partition or a union puts out.

    Settings such as `name`, `uid` or `set_parallelism` concern the operator that the stream comes from.
    """

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        super().__init__(environment, transformation)
        self._environment = environment

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._environment

    def _stream(self, transformation: Transformation) -> DataStream:
        return DataStream(self._environment, transformation)

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

    def filter(
        self, func: Callable[[Any], bool] | FilterFunction[Any] | AnyCondition | pc.Expression
    ) -> DataStream:
        """Return the stream of the records for which `func` is true.

        A condition over columns (`yarrow.table.expressions.col`, or a `pyarrow.compute.Expression`) keeps record
        batches. It makes batches of rows with a declared type. Raises InvalidProgramError for columns that a known
        schema does not have, or cannot compare so, and for an Arrow expression that gives no boolean.
        """
        try:
            condition = condition_of(func)
        except ValueError as error:
            raise InvalidProgramError(f"filter: {error}") from None
        if condition is not None:
            return self._filter_columns(condition)
        require_function(func, FilterFunction, "filter")
        return self._row_function("Filter", RowShape.FILTER, func, self.transformation.output_type)

    def process(
        self,
        func: ProcessFunction[Any, Any] | KeyedProcessFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of the results of a ProcessFunction; `get_side_output` gives its side outputs."""
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
        return self._stream(self._builder.union(reads))

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

    def join(self, other: DataStream) -> JoinedStreams[DataStream]:
        """Begin a join by windows: `where` and `equal_to` give the keys, `window` the windows."""
        return self._joined(other, JoinKind.INNER)

    def left_outer_join(self, other: DataStream) -> JoinedStreams[DataStream]:
        """Begin a join by windows that keeps records of this stream without a partner, paired with None."""
        return self._joined(other, JoinKind.LEFT_OUTER)

    def right_outer_join(self, other: DataStream) -> JoinedStreams[DataStream]:
        """Begin a join by windows that keeps records of the other stream without a partner, paired with None."""
        return self._joined(other, JoinKind.RIGHT_OUTER)

    def full_outer_join(self, other: DataStream) -> JoinedStreams[DataStream]:
        """Begin a join by windows that keeps records of both streams without a partner, paired with None."""
        return self._joined(other, JoinKind.FULL_OUTER)

    def co_group(self, other: DataStream) -> CoGroupedStreams[DataStream]:
        """Begin to group two streams by windows: a function gets the records of both for a key and window."""
        from yarrow.datastream.joined_streams import CoGroupedStreams

        self._same_program(other, "co_group")
        return CoGroupedStreams(self, other)

    def dead_letters(self) -> DataStream:
        """Return the stream of DeadLetter of the records that the operator before has left out.

        Raises InvalidProgramError if the operator leaves out none: call `on_error("dead_letter")` first. A source has
        `on_error` of its builder or format instead.
        """
        return self._letters_of(self.operator_with_letters("dead_letters"))

    # Distribution

    @overload
    def key_by(
        self,
        key_selector: str,
        key_type: str | TypeInformation | None = None,
        *columns: str | TypeInformation | None,
    ) -> ColumnarKeyedStream: ...
    @overload
    def key_by(self, key_selector: KeyFunction, key_type: TypeInformation | None = None) -> KeyedStream: ...
    def key_by(
        self,
        key_selector: KeyFunction | str,
        key_type: TypeInformation | str | None = None,
        *columns: str | TypeInformation | None,
    ) -> KeyedStream | ColumnarKeyedStream:
        """Return the stream distributed by key: equal keys reach the same subtask.

        The key is what a function or KeySelector returns for a record. A columnar stream is also keyed by columns:
        `key_by("a")` by the values of one, `key_by("a", "b")` by the tuples of several. The type of the keys may stand
        last. Numbers, texts, bytes, dates, None, tuples, Rows, enums and frozen dataclasses of these can be keys.
        A key of another type fails the job at its first record.
        """
        if isinstance(key_selector, str):
            names, keys_of = _columns_and_type(key_selector, key_type, *columns)
            if not self.is_columnar:
                raise InvalidProgramError(
                    f"key_by({', '.join(map(repr, names))}): only a columnar stream has columns to name."
                    " Convert with to_arrow() first, or pass a function, such as lambda row:"
                    f" {_as_expression(names)}."
                )
            from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream

            return ColumnarKeyedStream.of(self, names, keys_of)
        if columns or isinstance(key_type, str):
            raise InvalidProgramError(
                "key_by takes a function and the type of its keys, or names of columns. Let the function"
                " return a tuple of all parts of the key."
            )
        from yarrow.datastream.keyed_stream import KeyedStream

        return KeyedStream.of(self, key_selector, key_type)

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

        With descriptors it is a BroadcastStream, for `connect`: functions keep its records in the states
        described.
        """
        stream = self._partition(PartitionerSpec(kind=PartitionerKind.BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        from yarrow.datastream.broadcast_stream import BroadcastStream

        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    # Time

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Return the stream with the strategy's timestamps, and its watermarks in place of those so far.

        A record without timestamp fails the job where the strategy needs one and has no timestamp assigner. Columns
        stay columns if the strategy names the column of their timestamps (`with_timestamp_column`).
        """
        check_strategy(watermark_strategy, "assign_timestamps_and_watermarks")
        if watermark_strategy.alignment is not None:
            raise InvalidProgramError(
                "assign_timestamps_and_watermarks cannot align watermarks (group"
                f" {watermark_strategy.alignment.watermark_group!r}), since only a source can be made to wait. Give"
                " the strategy with with_watermark_alignment to from_source instead"
            )
        if watermark_strategy.timestamp_column is not None:
            return self._timestamps_from_column(watermark_strategy)
        name = "Timestamps/Watermarks"
        spec = TimestampsAndWatermarksOperator(
            strategy=self._builder.pickle(watermark_strategy, name, "watermark strategy")
        )
        made = self._one_input(name, spec, self.transformation.output_type)
        made.operator(name).assigns_no_time = watermark_strategy.timestamp_assigner is None
        return made

    def in_event_time_order(self) -> OrderedStream:
        """Return the stream with the records of each subtask in order of event time.

        Each record waits until the watermark has passed it. Records of one time go on as they came. A late record, at
        or below the watermark, is dropped and counted, or goes to `side_output_late_data`.
        Raises InvalidProgramError if nothing gives records a timestamp.
        """
        return OrderedStream.of(self, EventTimeOrderOperator()).start_new_chain()

    # Loops

    def iterate(self, max_wait_time_ms: int = 0) -> IterativeStream:
        """Begin a loop: `close_with` names the stream whose records come back here.

        0: the loop ends when the input has ended and no record is in the loop. With a wait the loop also goes on until
        no record has come back for so many milliseconds. Raises InvalidProgramError for a wait below 0, and for
        columns.
        """
        from yarrow.datastream.connected_streams import IterativeStream
        from yarrow.datastream.program.loop_ends import begin_loop

        return IterativeStream(
            self._environment, begin_loop(self._builder, self.transformation, max_wait_time_ms)
        )

    # Windows

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Return the stream cut into windows that hold the records of all keys; one subtask has them all."""
        from yarrow.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Return the stream cut into windows of `size` records, one starting every `slide` records.

        A slide of 0 is the size. Each window fires once, when it is full.
        """
        from yarrow.datastream.windowed_stream import count_windows

        return self.window_all(count_windows(size, slide))

    # What this version refuses

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

    def _joined(self, other: DataStream, kind: JoinKind) -> JoinedStreams[DataStream]:
        from yarrow.datastream.joined_streams import JoinedStreams

        self._same_program(other, "join")
        return JoinedStreams(self, other, kind)

    def _key_selector_for(self, func: Any) -> bytes | None:
        """Return the key selector by which a rich function reaches keyed state; None for a stream without keys."""
        return None

    def _same_program(self, stream: object, method: str) -> Transformation:
        if not isinstance(stream, DataStream):
            raise TypeError(f"{method} takes DataStreams, not {type(stream).__name__}")
        if stream._environment is not self._environment:
            raise InvalidProgramError(
                f"{method}: the streams belong to two execution environments, that is, to two jobs."
            )
        return stream.transformation


class OrderedStream(DataStream):
    """The records of a stream in order of event time. Made by `in_event_time_order`."""

    @classmethod
    def of(cls, stream: DataStream, spec: EventTimeOrderOperator) -> Self:
        """Return the stream of an operator that orders the records of `stream`."""
        environment = stream.get_execution_environment()
        stamped = environment.get_stream_time_characteristic() is TimeCharacteristic.INGESTION_TIME
        if not stamped and has_no_time(stream.transformation):
            raise InvalidProgramError(
                "in_event_time_order: nothing before it gives records a timestamp. Call"
                " assign_timestamps_and_watermarks before, with a strategy that has a timestamp assigner"
            )
        made = stream._one_input("Event Time Order", spec, stream.transformation.output_type)
        return cls(environment, made.transformation)

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records to a side output, which `get_side_output` of this stream gives."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"side_output_late_data takes an OutputTag, not {output_tag!r}")
        operator = self.operator("side_output_late_data")
        operator.spec = msgspec.structs.replace(operator.spec, late_tag=output_tag.tag_id)
        return self


class CachedDataStream(DataStream):
    """A stream whose records are kept for later jobs; cannot be made in this version."""

    def __init__(self, *arguments: object) -> None:
        refuse("CachedDataStream", "cached intermediate results")

    def invalidate(self) -> NoReturn:
        """Refused: gives up the records that are kept."""
        refuse("CachedDataStream.invalidate", "cached intermediate results")


def check_strategy(watermark_strategy: WatermarkStrategy, method: str) -> None:
    """Raise TypeError for a value that is no strategy, InvalidProgramError for one that contradicts itself."""
    if not isinstance(watermark_strategy, WatermarkStrategy):
        raise TypeError(
            f"{method} takes a WatermarkStrategy, such as WatermarkStrategy.for_monotonous_timestamps(), not"
            f" {watermark_strategy!r}"
        )
    if method == "from_source" and watermark_strategy.timestamp_column is not None:
        raise InvalidProgramError(
            "from_source takes no strategy with a timestamp column"
            f" ({watermark_strategy.timestamp_column!r}): pass WatermarkStrategy.no_watermarks(), and call"
            " assign_timestamps_and_watermarks behind the source"
        )
    if watermark_strategy.alignment is not None and not watermark_strategy.has_generator:
        raise InvalidProgramError(
            f"{method} with watermark alignment (group {watermark_strategy.alignment.watermark_group!r}) needs a"
            " strategy that makes watermarks, such as WatermarkStrategy.for_bounded_out_of_orderness(...)"
        )


def refuse(what: str, missing: str) -> NoReturn:
    """Raise UnsupportedFeatureError naming the requested feature and the missing one."""
    raise UnsupportedFeatureError(f"{what} is refused: this version has no {missing}.")


def _columns_and_type(*arguments: Any) -> tuple[tuple[str, ...], TypeInformation | None]:
    """Return the names of key columns, and the type of the keys if it stands last."""
    last = arguments[-1]
    given = arguments if isinstance(last, str) else arguments[:-1]
    if not all(isinstance(name, str) for name in given):
        wrong = next(name for name in given if not isinstance(name, str))
        raise InvalidProgramError(
            f"key_by: {wrong!r} is no name of a column; give names of columns, and behind them the type of the keys"
        )
    return tuple(given), None if isinstance(last, str) else last


def _as_expression(names: tuple[str, ...]) -> str:
    fields = [f"row[{name!r}]" for name in names]
    return fields[0] if len(fields) == 1 else f"({', '.join(fields)})"


def operator_of(stream: DataStream) -> SpecTransformation:
    """The operator that a stream comes from; for tools and tests that look at a program."""
    return stream.operator("operator_of")
