"""ColumnarKeyedStream and ColumnarWindowedStream: record batches by key columns, and vectorised aggregates.

Owner: the thread that builds the program. Results are running (for every batch, the updated row of each key in it), or
come once a window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from yarrow.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.fast_windows import SLICED, SlicedWindows
from yarrow.datastream.program.arrow_schemas import check_column, check_time_column, column_type, schema_bytes
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.window import EventTimeSessionWindows, WindowAssigner
from yarrow.datastream.windowed_stream import WindowsWithLateness
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    ColumnAggregate,
    KeyColumns,
    OperatorSpec,
    PartitionerKind,
    PartitionerSpec,
    StreamKind,
)
from yarrow.runtime.graph.transformations import ChainingStrategy, Transformation
from yarrow.runtime.graph.window_spec import ColumnarSessionOperator, ColumnarWindowOperator

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.datastream.functions import WindowGroups
    from yarrow.datastream.keyed_joins import ColumnarAsOfJoin, ColumnarIntervalJoin, ColumnarWindowJoin
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["ColumnAggregate", "ColumnarKeyedStream", "ColumnarWindowedStream"]

#: Aggregates that columns have; the others need a whole row.
_COLUMN_KINDS = (
    AggregateKind.SUM,
    AggregateKind.MIN,
    AggregateKind.MAX,
    AggregateKind.COUNT,
    AggregateKind.MEAN,
)


#: An aggregate as programs write it: (column, kind) or (column, kind, name).
_Wanted = ColumnAggregate | tuple[str | None, str] | tuple[str | None, str, str | None]


class _ColumnAggregates(ABC):
    """The built-in aggregates of columns, running ones or those of windows."""

    @abstractmethod
    def aggregate(self, aggregates: Sequence[_Wanted]) -> DataStream:
        """Return the key columns and several aggregates."""

    def sum(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the sum; the result's column is `<column>_sum` unless named."""
        return self.aggregate([(column, "sum", name)])

    def min(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the minimum; the result's column is `<column>_min` unless named."""
        return self.aggregate([(column, "min", name)])

    def max(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the maximum; the result's column is `<column>_max` unless named."""
        return self.aggregate([(column, "max", name)])

    def mean(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the mean; the result's column is `<column>_mean` unless named."""
        return self.aggregate([(column, "mean", name)])

    def count(self, name: str = "count") -> DataStream:
        """Return the key columns and the number of rows."""
        return self.aggregate([(None, "count", name)])


class ColumnarKeyedStream(DataStream, _ColumnAggregates):
    """Record batches distributed by key, with running aggregates. Made by `DataStream.key_by` with names of columns."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        transformation: Transformation,
        key_column: KeyColumns,
        key_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(environment, transformation)
        #: The column that holds the key, or the columns whose values make the key as a tuple.
        self.key_column = key_column
        #: The declared type, or the type of the columns; None if the schema is unknown before batches arrive.
        self.key_type = key_type

    @classmethod
    def of(
        cls, stream: DataStream, columns: tuple[str, ...], key_type: TypeInformation | None = None
    ) -> ColumnarKeyedStream:
        """Return a columnar `stream` distributed by columns, which must exist where the schema is known.

        Raises InvalidProgramError for a column that is named twice, or a type that no key of these columns has.
        """
        schema = stream.transformation.output_schema
        for column in columns:
            check_column(schema, column, "key_by")
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise InvalidProgramError(f"key_by: the columns {twice} are named twice; name each once")
        key_column = columns[0] if len(columns) == 1 else columns
        environment = stream.get_execution_environment()
        spec = PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_column=key_column)
        partition = environment.graph_builder.partition(stream.transformation, spec)
        return cls(environment, partition, key_column, _type_of_keys(schema, columns, declared(key_type)))

    def get_name(self) -> str:
        """Raise InvalidProgramError, as in PyFlink: a key is no operator, which could have a name."""
        return self.operator("get_name").name

    def window(
        self, window_assigner: WindowAssigner[Any, Any], time_column: str | None = None
    ) -> ColumnarWindowedStream:
        """Return the stream cut into windows of event time: tumbling, sliding, cumulative, or sessions with one gap.

        `time_column` names the column of the times: timestamps, or epoch milliseconds as integers. Without it the rows'
        own timestamps count. Raises InvalidProgramError for other windows, and for a column that does not exist.
        """
        return ColumnarWindowedStream(self, window_assigner, time_column)

    def aggregate(self, aggregates: Sequence[_Wanted]) -> DataStream:
        """Return the key columns and several running aggregates, each `(column, kind)` or `(column, kind, name)`.

        Kinds are sum, min, max, mean and count, whose column is None. Raises InvalidProgramError for an
        unknown kind or column and for two results of one name.
        """
        wanted = _checked(aggregates, self.transformation.output_schema, self.key_columns)
        spec = ArrowAggregateOperator(key_column=self.key_column, aggregates=wanted)
        return self.aggregated("Keyed Arrow Aggregation", spec)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return (self.key_column,) if isinstance(self.key_column, str) else self.key_column

    def aggregated(self, name: str, spec: OperatorSpec, **settings: Any) -> DataStream:
        """Return the record batches of an operator whose state has this stream's keys."""
        made = self._builder.one_input(
            self.transformation,
            name,
            spec,
            output_kind=StreamKind.COLUMNAR,
            state_key_type=self.key_type,
            state_key_columns=() if isinstance(self.key_column, str) else self.key_column,
            **settings,
        )
        return DataStream(self._environment, made)

    def interval_join(self, other: ColumnarKeyedStream) -> ColumnarIntervalJoin[DataStream]:
        """Begin a join with rows of another columnar keyed stream whose times are near: `between` gives the bounds."""
        from yarrow.datastream.keyed_joins import ColumnarIntervalJoin

        self._require_joinable(other, "interval_join")
        return ColumnarIntervalJoin(self, other, self._stream_of)

    def as_of_join(self, other: ColumnarKeyedStream) -> ColumnarAsOfJoin[DataStream]:
        """Begin a join of each row with the row of another columnar keyed stream that holds at its time.

        `backward`, `forward` or `nearest` says which one that is.
        """
        from yarrow.datastream.keyed_joins import ColumnarAsOfJoin

        self._require_joinable(other, "as_of_join")
        return ColumnarAsOfJoin(self, other, self._stream_of)

    def window_join(self, other: ColumnarKeyedStream) -> ColumnarWindowJoin[DataStream]:
        """Begin a join with rows of another columnar keyed stream in the same window: `window` says which those are."""
        from yarrow.datastream.keyed_joins import ColumnarWindowJoin

        self._require_joinable(other, "window_join")
        return ColumnarWindowJoin(self, other, self._stream_of)

    def _require_joinable(self, other: ColumnarKeyedStream, call: str) -> None:
        if not isinstance(other, ColumnarKeyedStream):
            raise TypeError(
                f"{call} takes a ColumnarKeyedStream, not {type(other).__name__}: call key_by with names of"
                " columns before it"
            )
        self._same_program(other, call)

    def _stream_of(self, made: Transformation) -> DataStream:
        return DataStream(self._environment, made)

    def _partition(self, spec: PartitionerSpec, read: Transformation | None = None) -> DataStream:
        raise InvalidProgramError(
            f"A keyed stream is distributed by its key, which {spec.kind.value} would undo. Distribute the"
            " stream before key_by, or the output of an operator on the keyed stream."
        )


class ColumnarWindowedStream(WindowsWithLateness, _ColumnAggregates):
    """Record batches distributed by key and cut into windows. Made by `ColumnarKeyedStream.window`."""

    def __init__(
        self,
        keyed_stream: ColumnarKeyedStream,
        window_assigner: WindowAssigner[Any, Any],
        time_column: str | None,
    ) -> None:
        super().__init__(window_assigner)
        self._keyed_stream = keyed_stream
        self._time_column = time_column
        if time_column is not None:
            check_time_column(keyed_stream.transformation.output_schema, time_column, "window")
        name, cut_of = type(window_assigner).__name__, _CUTS.get(type(window_assigner))
        if cut_of is None:
            listed = ", ".join(sorted(kind.__name__ for kind in _CUTS))
            raise InvalidProgramError(
                f"window({name}): columnar streams have these windows: {listed}. Convert the stream with to_rows() for"
                " all others"
            )
        self._cut: _Cut = cut_of(window_assigner)

    def aggregate(self, aggregates: Sequence[_Wanted]) -> DataStream:
        """Return key columns, `window_start`, `window_end` (epoch ms) and aggregates, a row for each key and window.

        Aggregates are those of `ColumnarKeyedStream.aggregate`. Results bear the last millisecond of their window, and
        a batch has results of one window. Raises InvalidProgramError also for a key column named like a bound.
        """
        wanted = _checked(aggregates, self._keyed_stream.transformation.output_schema, self._columns_in_front)
        return self._windows([item.name for item in wanted], aggregates=wanted)

    def aggregate_batches(
        self,
        function: Callable[[pa.RecordBatch, WindowGroups], pa.RecordBatch | pa.Table | Mapping[str, Any]],
        schema: pa.Schema,
    ) -> DataStream:
        """Return key columns, `window_start`, `window_end` (epoch ms) and what a function makes of each group.

        The function gets the rows of many groups as one batch, and says nothing of rows one by one. A group is a key
        and a window. Its rows stand together in order of time, and those of one time as they came. `WindowGroups` says
        where each group begins. The function returns the columns of `schema` with one row a group: a RecordBatch, a
        Table, or a dict of columns. An object with a method `aggregate_batches`, and perhaps open and close, will do.

        Raises InvalidProgramError for two columns of one name, and TypeError for what cannot be called.
        """
        if not callable(getattr(function, "aggregate_batches", function)):
            raise TypeError(f"aggregate_batches takes a function of a batch and its groups, not {function!r}")
        names = list(getattr(schema, "names", ()))
        if not names:
            raise InvalidProgramError(
                "aggregate_batches needs the schema of its results, a pyarrow.Schema of one column at least"
            )
        all_names = [*self._columns_in_front, *names]
        twice = sorted({name for name in all_names if all_names.count(name) > 1})
        if twice:
            raise InvalidProgramError(
                f"aggregate_batches: two columns of the result are named {twice}; name them apart"
            )
        made = self._keyed_stream.get_execution_environment().graph_builder.pickle(
            function, type(self._assigner).__name__
        )
        settings = {"aggregates": (), "function": made, "result_schema": schema_bytes(schema)}
        return self._windows(names, **settings)

    @property
    def _columns_in_front(self) -> tuple[str, ...]:
        """The columns of a result before those of aggregates."""
        return (*self._keyed_stream.key_columns, "window_start", "window_end")

    def _windows(self, names: Sequence[str], **aggregation: Any) -> DataStream:
        """The results of windows; `names` are those of the aggregated columns, `aggregation` fields of the spec."""
        keyed, environment = self._keyed_stream, self._keyed_stream.get_execution_environment()
        if self._time_column is None:
            self._require_time(keyed.transformation, environment)
        assigner = type(self._assigner).__name__
        spec = self._cut.spec(
            key_column=keyed.key_column,
            time_column=self._time_column,
            allowed_lateness_ms=self._lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            **self._cut.milliseconds,
            **aggregation,
        )
        return keyed.aggregated(
            assigner,
            spec,
            chaining=ChainingStrategy.HEAD,
            description=f"Window({assigner}, {', '.join(names)}) of columns",
        )


class _Cut(NamedTuple):
    """How an assigner cuts windows: the spec, and its settings in milliseconds."""

    spec: type[ColumnarWindowOperator | ColumnarSessionOperator]
    milliseconds: Mapping[str, Any]


def _sliced(slices: Callable[[Any], SlicedWindows], assigner: Any) -> _Cut:
    return _Cut(ColumnarWindowOperator, slices(assigner))


#: How the windows of an assigner are cut; other assigners have no columnar form.
_CUTS: Mapping[type, Callable[[Any], _Cut]] = {
    **{assigner: partial(_sliced, slices) for assigner, slices in SLICED.items()},
    EventTimeSessionWindows: lambda windows: _Cut(ColumnarSessionOperator, {"gap_ms": windows.session_gap}),
}


def _checked(
    aggregates: Sequence[_Wanted], schema: bytes | None, others: Sequence[str]
) -> tuple[ColumnAggregate, ...]:
    """The aggregates of a program. Raises InvalidProgramError; `others` are the other columns of the result."""
    if not aggregates:
        raise InvalidProgramError("aggregate takes at least one (column, kind)")
    wanted = tuple(_column_aggregate(item, schema) for item in aggregates)
    names = [*others, *(item.name for item in wanted)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidProgramError(f"aggregate: two columns of the result are named {twice}; name them apart")
    return wanted


def _column_aggregate(item: _Wanted, schema: bytes | None) -> ColumnAggregate:
    if isinstance(item, ColumnAggregate):
        item = item.column, item.kind.value, item.name
    column, kind_name = item[0], item[1]
    name = item[2] if len(item) == 3 else None
    kinds = {kind.value: kind for kind in _COLUMN_KINDS}
    if kind_name not in kinds:
        raise InvalidProgramError(f"aggregate: there is no kind {kind_name!r}; use one of {sorted(kinds)}")
    kind = kinds[kind_name]
    if kind is AggregateKind.COUNT:
        return ColumnAggregate(kind=kind, column=None, name=name or "count")
    if column is None:
        raise InvalidProgramError(f"aggregate: {kind_name} needs a column")
    check_column(schema, column, kind_name)
    return ColumnAggregate(kind=kind, column=column, name=name or f"{column}_{kind_name}")


def _type_of_keys(
    schema: bytes | None, columns: tuple[str, ...], wanted: TypeInformation | None
) -> TypeInformation | None:
    """The type of the key columns, as far as the schema tells it; else the declared one."""
    if len(columns) == 1:
        return column_type(schema, columns[0]) or wanted
    fields: list[TypeInformation | None] = [None] * len(columns)
    if wanted is not None:
        if not isinstance(wanted, TupleTypeInfo) or len(wanted.get_field_types()) != len(columns):
            raise InvalidProgramError(
                f"key_by: the keys of the columns {list(columns)} are tuples of {len(columns)} values, not {wanted};"
                " declare Types.TUPLE with a type for each column"
            )
        fields = list(wanted.get_field_types())
    known = [column_type(schema, column) or field for column, field in zip(columns, fields, strict=True)]
    if not any(known):
        return None
    # PICKLED_BYTE_ARRAY says nothing of a value: it stands for a column of unknown type.
    return Types.TUPLE([field or Types.PICKLED_BYTE_ARRAY() for field in known])
