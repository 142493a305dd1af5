"""The specs that calls become, and the columnar side: containers, conversions, aggregates."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream import DataStream, KeyedStream, MapFunction, OutputTag, ProcessFunction
from yarrow.datastream.connectors.base import Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import CoMapFunction, KeySelector, Partitioner, RuntimeContext
from yarrow.datastream.program.arrow_schemas import read_schema, schema_of_type
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.column_spec import (
    ArrowAggregateOperator,
    ArrowToRowsOperator,
    BatchFunctionOperator,
    RowsToArrowOperator,
)
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    AggregateOperator,
    BatchContainer,
    ColumnAggregate,
    PartitionerKind,
    RowFunctionOperator,
    StreamKind,
)
from yarrow.runtime.graph.transformations import PartitionTransformation

if TYPE_CHECKING:
    import decimal

SCHEMA = pa.schema([("word", pa.string()), ("length", pa.int64())])
WORDS = Types.ROW_NAMED(["word", "length"], [Types.STRING(), Types.LONG()])


def spec_of(stream: DataStream) -> Any:
    return operator_of(stream).spec


class Stateful(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        return None

    def map(self, value: Any) -> Any:
        return value


class Plain(MapFunction[Any, Any]):
    blocking = True

    def map(self, value: Any) -> Any:
        return value


class Modulo(KeySelector[int, int]):
    def get_key(self, value: int) -> int:
        return value % 3


class Sides(CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


class First(Partitioner[int]):
    def partition(self, key: int, num_partitions: int) -> int:
        return 0


def test_functions_travel_as_they_are() -> None:
    spec = spec_of(environment().from_sequence(1, 9).map(Stateful()))
    assert isinstance(pickle.loads(spec.function), Stateful)
    spec = spec_of(environment().from_sequence(1, 9).map(lambda x: x + 1))
    assert pickle.loads(spec.function)(1) == 2
    spec = spec_of(environment().from_sequence(1, 9).map(str))
    assert pickle.loads(spec.function) is str


def test_a_rich_function_on_a_keyed_stream_can_reach_its_key() -> None:
    keyed = environment().from_sequence(1, 9).key_by(Modulo())
    assert isinstance(keyed, KeyedStream)
    rich, plain = spec_of(keyed.map(Stateful())), spec_of(keyed.map(lambda x: x))
    assert isinstance(rich, RowFunctionOperator) and rich.key_selector == keyed.key_selector
    assert plain.key_selector is None
    assert spec_of(environment().from_sequence(1, 9).map(Stateful())).key_selector is None


def test_key_and_operator_share_one_selector() -> None:
    keyed = environment().from_sequence(1, 9).key_by(lambda x: x % 3)
    assert isinstance(keyed, KeyedStream) and isinstance(keyed.transformation, PartitionTransformation)
    assert keyed.transformation.partitioner.kind is PartitionerKind.KEY_GROUP
    assert keyed.transformation.partitioner.key_selector == keyed.key_selector
    assert spec_of(keyed.reduce(lambda a, b: a)).key_selector == keyed.key_selector


@pytest.mark.parametrize("method", ["sum", "min", "max", "min_by", "max_by"])
def test_aggregates(method: str) -> None:
    keyed = environment().from_collection([("a", 1)]).key_by(lambda pair: pair[0])
    spec = spec_of(getattr(keyed, method)(1))
    assert isinstance(spec, AggregateOperator)
    assert (spec.kind, spec.position) == (AggregateKind(method), 1)
    numbers = environment().from_sequence(1, 9).key_by(lambda x: x)
    assert spec_of(getattr(numbers, method)()).position is None


def test_custom_partitioner() -> None:
    stream = environment().from_sequence(1, 9).partition_custom(First(), Modulo())
    assert isinstance(stream.transformation, PartitionTransformation)
    spec = stream.transformation.partitioner
    assert spec.kind is PartitionerKind.CUSTOM and spec.function is not None
    assert pickle.loads(spec.function).partition(5, 3) == 0


def test_blocking_is_declared_by_the_function_and_marks_the_vertex() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).rebalance().map(Plain()).print()
    assert [vertex.blocking for vertex in env.get_job_graph().vertices] == [False, True]


class Writer(SinkWriter[Any]):
    def write(self, rows: Any, timestamps: Any) -> None:
        return None


class RowSink(Sink[Any]):
    def create_writer(self, context: SinkWriterContext, restored: Any = ()) -> SinkWriter[Any]:
        return Writer()


class ColumnSink(RowSink):
    accepts_columns = True


def test_sinks_get_what_they_take() -> None:
    env = environment()
    batches = env.from_collection([("a", 1)], WORDS).map_batches(lambda batch: batch)
    batches.sink_to(RowSink())
    batches.sink_to(ColumnSink()).name("Warehouse")
    names = [operator.name for vertex in env.get_job_graph().vertices for operator in vertex.operators]
    assert names[-4:] == ["Map Batches", "Arrow to Rows", "Sink: Writer", "Warehouse: Writer"]


def recordbatch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def table(batch: pa.Table) -> pa.Table:
    return batch


def polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


class Callable_:
    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame


def for_checkers_only(value: decimal.Decimal) -> Any:
    return value


@pytest.mark.parametrize(
    ("fn", "argument", "expected"),
    [
        (recordbatch, None, BatchContainer.PYARROW),
        (table, None, BatchContainer.PYARROW_TABLE),
        (polars, None, BatchContainer.POLARS),
        (pandas, None, BatchContainer.PANDAS),
        (Callable_(), None, BatchContainer.POLARS),
        (lambda batch: batch, None, BatchContainer.PYARROW),
        (lambda batch: batch, "pandas", BatchContainer.PANDAS),
        (polars, BatchContainer.PYARROW, BatchContainer.PYARROW),
    ],
)
def test_container(fn: Callable[[Any], Any], argument: Any, expected: BatchContainer) -> None:
    stream = environment().from_collection([("a", 1)], WORDS).map_batches(fn, SCHEMA, argument)
    spec = spec_of(stream)
    assert isinstance(spec, BatchFunctionOperator)
    assert spec.container is expected
    assert spec.schema is not None and read_schema(spec.schema) == SCHEMA


def test_an_annotation_that_is_no_container_is_refused() -> None:
    stream = environment().from_collection([("a", 1)], WORDS)
    with pytest.raises(
        InvalidProgramError, match=r"annotated with 'decimal\.Decimal', which is no container"
    ):
        stream.map_batches(for_checkers_only)


def test_rows_become_columns_by_their_declared_type() -> None:
    stream = environment().from_collection([("a", 1)], WORDS).to_arrow()
    assert stream.is_columnar
    spec = spec_of(stream)
    assert isinstance(spec, RowsToArrowOperator) and read_schema(spec.schema) == SCHEMA
    assert stream.to_arrow() is stream


def test_consumers_share_a_conversion() -> None:
    env = environment()
    rows = env.from_collection([("a", 1)], WORDS)
    rows.map_batches(lambda batch: batch)
    rows.filter_batches(lambda batch: batch)
    names = [node.name for node in env.get_stream_graph().nodes.values()]
    assert names.count("Rows to Arrow") == 1


def test_a_conversion_behind_a_partition_is_as_wide_as_its_consumer() -> None:
    env = environment()
    env.from_collection([("a", 1)], WORDS).rebalance().map_batches(lambda batch: batch).set_parallelism(5)
    graph = env.get_stream_graph()
    assert {node.name: node.parallelism for node in graph.nodes.values()} == {
        "Source: Collection Source": 1,
        "Rows to Arrow": 5,
        "Map Batches": 5,
    }


def test_a_conversion_behind_an_operator_is_as_wide_as_that() -> None:
    env = environment()
    rows = env.from_sequence(1, 9).map(lambda x: x, WORDS)
    rows.map_batches(lambda batch: batch).set_parallelism(5)
    rows.set_parallelism(3)
    widths = {node.name: node.parallelism for node in env.get_stream_graph().nodes.values()}
    assert (widths["Map"], widths["Rows to Arrow"], widths["Map Batches"]) == (3, 3, 5)


def test_row_functions_on_columns_get_rows() -> None:
    env = environment()
    batches = env.from_collection([("a", 1)], WORDS).map_batches(lambda batch: batch)
    mapped = batches.map(lambda row: row)
    read = operator_of(mapped).reads[0]
    assert read.output_kind is StreamKind.ROW
    assert isinstance(spec_of(batches.to_rows(as_tuple=True)), ArrowToRowsOperator)
    assert not mapped.is_columnar


def test_columnar_aggregates() -> None:
    keyed = environment().from_collection([("a", 1)], WORDS).to_arrow().key_by("word")
    spec = spec_of(keyed.aggregate([("length", "sum"), ("length", "mean", "average"), (None, "count")]))
    assert spec == ArrowAggregateOperator(
        key_column="word",
        aggregates=(
            ColumnAggregate(kind=AggregateKind.SUM, column="length", name="length_sum"),
            ColumnAggregate(kind=AggregateKind.MEAN, column="length", name="average"),
            ColumnAggregate(kind=AggregateKind.COUNT, column=None, name="count"),
        ),
    )
    for kind in ("sum", "min", "max", "mean"):
        assert spec_of(getattr(keyed, kind)("length")).aggregates[0].name == f"length_{kind}"
    assert spec_of(keyed.count()).aggregates[0].column is None


def test_a_key_function_on_columns_keys_rows() -> None:
    keyed = environment().from_collection([("a", 1)], WORDS).to_arrow().key_by(lambda row: row.word)
    assert isinstance(keyed, KeyedStream) and not keyed.is_columnar


@pytest.mark.parametrize(
    ("declared", "schema"),
    [
        (Types.LONG(), pa.schema([("value", pa.int64())])),
        (
            Types.TUPLE([Types.STRING(), Types.DOUBLE()]),
            pa.schema([("f0", pa.string()), ("f1", pa.float64())]),
        ),
        (Types.ROW_NAMED(["d"], [Types.SQL_DATE()]), pa.schema([("d", pa.date32())])),
        (Types.ROW_NAMED(["t"], [Types.SQL_TIMESTAMP()]), pa.schema([("t", pa.timestamp("us"))])),
        (Types.ROW_NAMED(["l"], [Types.LIST(Types.INT())]), pa.schema([("l", pa.list_(pa.int32()))])),
        (Types.ROW_NAMED(["b"], [Types.PRIMITIVE_ARRAY(Types.BYTE())]), pa.schema([("b", pa.binary())])),
        (
            Types.ROW_NAMED(["m"], [Types.MAP(Types.STRING(), Types.BOOLEAN())]),
            pa.schema([("m", pa.map_(pa.string(), pa.bool_()))]),
        ),
    ],
)
def test_schemas_of_types(declared: TypeInformation, schema: pa.Schema) -> None:
    assert schema_of_type(declared, "Map") == schema


class Route(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


def test_a_side_output_is_an_edge_of_its_own_with_its_type() -> None:
    env = environment()
    routed = env.from_sequence(1, 9).process(Route(), Types.LONG())
    late = routed.get_side_output(OutputTag("late", Types.STRING()))
    assert late.get_type() == Types.STRING()
    routed.rebalance().print()
    late.rebalance().print()
    edges = env.get_job_graph().edges
    assert [(edge.side_output, edge.type_spec, edge.source_operator) for edge in edges] == [
        (None, "LONG", 1),
        ("late", "STRING", 1),
    ]


def key_type_of(stream: DataStream) -> TypeInformation | None:
    return operator_of(stream).state_key_type


@pytest.mark.parametrize(
    ("column", "declared", "known"),
    [
        (pa.string(), None, Types.STRING()),
        (pa.dictionary(pa.int32(), pa.string()), None, Types.STRING()),
        (pa.int16(), Types.STRING(), Types.LONG()),
        (pa.uint64(), None, Types.BIG_INT()),
        (pa.float32(), None, Types.DOUBLE()),
        (pa.bool_(), None, Types.BOOLEAN()),
        (pa.date32(), None, Types.SQL_DATE()),
        (pa.timestamp("us"), None, Types.SQL_TIMESTAMP()),
        (pa.timestamp("us", "UTC"), None, None),
        (pa.list_(pa.int64()), None, None),
        (pa.decimal128(10, 2), Types.BIG_DEC(), Types.BIG_DEC()),
    ],
    ids=str,
)
def test_the_type_of_a_key_column_is_that_of_the_schema(
    column: pa.DataType, declared: TypeInformation | None, known: TypeInformation | None
) -> None:
    rows = environment().from_sequence(1, 9).to_arrow(pa.schema([("key", column)]))
    assert key_type_of(rows.key_by("key", declared).count()) == known


_PARTS = pa.schema([("a", pa.string()), ("b", pa.int16()), ("c", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("schema", "columns", "known"),
    [
        (_PARTS, ("a", "b"), Types.TUPLE([Types.STRING(), Types.LONG()])),
        (_PARTS, ("b", "a"), Types.TUPLE([Types.LONG(), Types.STRING()])),
        (_PARTS, ("a", "c"), Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])),
        (
            _PARTS,
            ("a", "c", Types.TUPLE([Types.INT(), Types.INSTANT()])),
            Types.TUPLE([Types.STRING(), Types.INSTANT()]),
        ),
        (None, ("a", "b"), None),
        (None, ("a", "b", Types.TUPLE([Types.INT(), Types.INT()])), Types.TUPLE([Types.INT(), Types.INT()])),
    ],
    ids=str,
)
def test_the_type_of_several_key_columns_is_a_tuple(
    schema: pa.Schema | None, columns: tuple[Any, ...], known: TypeInformation | None
) -> None:
    rows = environment().from_sequence(1, 9).to_arrow(_PARTS)
    stream = rows.map_batches(lambda batch: batch, schema)
    counted = stream.key_by(*columns).count()
    assert key_type_of(counted) == known
    names = tuple(column for column in columns if isinstance(column, str))
    assert spec_of(counted).key_column == names
    assert operator_of(counted).state_key_columns == names
    assert [edge.partitioner.key_column for edge in stream._environment.get_job_graph().edges] == [names]


def test_the_type_of_keys_is_declared_for_what_reads_the_keyed_stream() -> None:
    numbers = environment().from_sequence(1, 9)
    keyed = numbers.key_by(Modulo(), Types.INT())
    for stream in (keyed.sum(0), keyed.reduce(max), keyed.map(Stateful())):
        assert key_type_of(stream) == Types.INT()
        assert key_type_of(stream.map(str)) is None, "behind it the stream is not keyed any more"
    assert key_type_of(numbers.key_by(Modulo()).sum(0)) is None
    undeclared = numbers.key_by(Modulo(), Types.PICKLED_BYTE_ARRAY())
    assert key_type_of(undeclared.sum(0)) is None
    for first, second, known in (
        (Types.INT(), Types.LONG(), Types.INT()),
        (None, Types.LONG(), Types.LONG()),
        (Types.INT(), None, Types.INT()),
    ):
        both = numbers.key_by(Modulo(), first).connect(numbers.key_by(Modulo(), second))
        assert key_type_of(both.map(Sides())) == known
    assert key_type_of(numbers.connect(numbers).map(Sides())) is None
