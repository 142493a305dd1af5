"""ColumnarKeyedStream: record batches distributed by key columns, and vectorised aggregates.

Owner: the thread that builds the program. Results are running: for every batch, the updated row of each key
in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.program.arrow_schemas import check_column, column_type
from yarrow.datastream.program.graph_builder import declared
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    ArrowAggregateOperator,
    ColumnAggregate,
    KeyColumns,
    PartitionerKind,
    PartitionerSpec,
    StreamKind,
)
from yarrow.runtime.graph.transformations import Transformation

if TYPE_CHECKING:
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["ColumnAggregate", "ColumnarKeyedStream"]

#: Aggregates that columns have; the others need a whole row.
_COLUMN_KINDS = (
    AggregateKind.SUM,
    AggregateKind.MIN,
    AggregateKind.MAX,
    AggregateKind.COUNT,
    AggregateKind.MEAN,
)


class ColumnarKeyedStream(DataStream):
    """Record batches distributed by key. Made by `DataStream.key_by` with names of columns."""

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

    def sum(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the running sum; the result's column is `<column>_sum` unless named."""
        return self.aggregate([(column, "sum", name)])

    def min(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the running minimum; the result's column is `<column>_min` unless named."""
        return self.aggregate([(column, "min", name)])

    def max(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the running maximum; the result's column is `<column>_max` unless named."""
        return self.aggregate([(column, "max", name)])

    def mean(self, column: str, name: str | None = None) -> DataStream:
        """Return the key columns and the running mean; the result's column is `<column>_mean` unless named."""
        return self.aggregate([(column, "mean", name)])

    def count(self, name: str = "count") -> DataStream:
        """Return the key columns and the running number of rows."""
        return self.aggregate([(None, "count", name)])

    def aggregate(
        self,
        aggregates: Sequence[ColumnAggregate | tuple[str | None, str] | tuple[str | None, str, str | None]],
    ) -> DataStream:
        """Return the key columns and several running aggregates, each `(column, kind)` or `(column, kind, name)`.

        Kinds are sum, min, max, mean and count, whose column is None. Raises InvalidProgramError for an
        unknown kind or column and for two results of one name.
        """
        if not aggregates:
            raise InvalidProgramError("aggregate takes at least one (column, kind)")
        wanted = tuple(self._column_aggregate(item) for item in aggregates)
        keys = (self.key_column,) if isinstance(self.key_column, str) else self.key_column
        names = [*keys, *(item.name for item in wanted)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidProgramError(
                f"aggregate: two columns of the result are named {twice}; name them apart"
            )
        spec = ArrowAggregateOperator(key_column=self.key_column, aggregates=wanted)
        made = self._builder.one_input(
            self.transformation,
            "Keyed Arrow Aggregation",
            spec,
            output_kind=StreamKind.COLUMNAR,
            state_key_type=self.key_type,
            state_key_columns=() if isinstance(self.key_column, str) else self.key_column,
        )
        return DataStream(self._environment, made)

    def _column_aggregate(
        self, item: ColumnAggregate | tuple[str | None, str] | tuple[str | None, str, str | None]
    ) -> ColumnAggregate:
        if isinstance(item, ColumnAggregate):
            item = item.column, item.kind.value, item.name
        column, kind_name = item[0], item[1]
        name = item[2] if len(item) == 3 else None
        kinds = {kind.value: kind for kind in _COLUMN_KINDS}
        if kind_name not in kinds:
            raise InvalidProgramError(
                f"aggregate: there is no kind {kind_name!r}; use one of {sorted(kinds)}"
            )
        kind = kinds[kind_name]
        if kind is AggregateKind.COUNT:
            return ColumnAggregate(kind=kind, column=None, name=name or "count")
        if column is None:
            raise InvalidProgramError(f"aggregate: {kind_name} needs a column")
        check_column(self.transformation.output_schema, column, kind_name)
        return ColumnAggregate(kind=kind, column=column, name=name or f"{column}_{kind_name}")

    def _partition(self, spec: PartitionerSpec, read: Transformation | None = None) -> DataStream:
        raise InvalidProgramError(
            f"A keyed stream is distributed by its key, which {spec.kind.value} would undo. Distribute the"
            " stream before key_by, or the output of an operator on the keyed stream."
        )


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
