"""Which scans and aggregates become Spark SQL, and the reason for each of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats.csv import CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.batch.batch_plan import (
    ExchangeKind,
    InputOrder,
    SqlAggregation,
    decode_batch_plan,
    encode_batch_plan,
)
from yarrow.runtime.graph.batch.batch_plan_text import lines_of
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.batch.batch_sql import driver_configuration, sql_stages, with_sql
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.table.expressions import col
from yarrow.table.types import DataTypes

NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("whole", pa.int32()),
        ("real", pa.float64()),
        ("large", pa.uint64()),
        ("exact", pa.decimal128(10, 2)),
        ("nanos", pa.timestamp("ns")),
        ("micros", pa.timestamp("us", "Europe/Berlin")),
        ("coded", pa.dictionary(pa.int32(), pa.string())),
        ("half", pa.float16()),
    ]
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(SCHEMA.empty_table().drop_columns("half"), tmp_path / "one.parquet")
    return str(tmp_path)


def files(env: StreamExecutionEnvironment, folder: str, schema: pa.Schema = SCHEMA) -> DataStream:
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(schema), folder).build()
    return env.from_source(source, NO_WATERMARKS, "files")


def printed(env: StreamExecutionEnvironment, stream: DataStream) -> JobGraph:
    stream.to_rows().print()
    return env.get_job_graph()


def reason(folder: str, key: str, column: str | None, kind: str) -> str:
    env = environment(2)
    graph = printed(env, files(env, folder).key_by(key).aggregate([(column, kind)]))
    source, *_ = plan(graph).stages
    assert bool(source.no_sql) is (source.sql is None)
    return source.no_sql


@pytest.mark.parametrize(
    ("key", "column", "kind"),
    [
        ("key", "whole", "sum"),
        ("key", "whole", "mean"),
        ("key", "real", "min"),
        ("key", "key", "max"),
        ("key", "micros", "max"),
        ("micros", None, "count"),
        ("coded", "coded", "min"),
        ("whole", None, "count"),
    ],
)
def test_exact_aggregates_become_sql(folder: str, key: str, column: str | None, kind: str) -> None:
    assert reason(folder, key, column, kind) == ""


@pytest.mark.parametrize(
    ("key", "column", "kind", "why"),
    [
        ("key", "real", "sum", "sum of 'real': sums of floats depend on the order of rows"),
        ("key", "real", "mean", "mean of 'real': sums of floats depend on the order of rows"),
        ("key", "large", "max", "max of 'large': a column of type uint64 is not the same in Spark"),
        ("key", "exact", "sum", "sum of 'exact': Spark's sum of decimal128(10, 2) has other limits"),
        ("key", "nanos", "min", "min of 'nanos': a column of type timestamp[ns] is not the same in Spark"),
        ("real", None, "count", "keys of type double (column 'real') are not the same in Spark"),
        ("exact", None, "count", "keys of type decimal128(10, 2) (column 'exact') are not the same in Spark"),
        ("key", "half", "min", "min of 'half': a column of type halffloat is not the same in Spark"),
    ],
)
def test_what_spark_computes_otherwise_stays_in_python(
    folder: str, key: str, column: str | None, kind: str, why: str
) -> None:
    assert reason(folder, key, column, kind) == why


def decision(folder: str, build: Any) -> tuple[SqlAggregation | None, str]:
    """What Spark SQL does for a stream of the files, or why it does nothing."""
    env = environment(2)
    graph = printed(env, build(files(env, folder)))
    source, *_ = plan(graph).stages
    return source.sql, source.no_sql


def test_filters_and_selections_before_aggregates_become_sql(folder: str) -> None:
    real, whole = col("real") > 0.5, col("whole").in_(1, 2)
    sql, why = decision(
        folder,
        lambda s: (
            s.filter(real)
            .select("key", "whole")
            .filter(whole)
            .select("key", "whole")
            .key_by("key")
            .sum("whole")
        ),
    )
    assert why == "" and sql is not None
    assert sql.condition == real & whole
    assert sql.columns == ("key", "whole", "real")
    sql, _ = decision(folder, lambda s: s.filter(col("micros").is_null).key_by("key").count())
    assert sql is not None and sql.condition == col("micros").is_null
    sql, _ = decision(folder, lambda s: s.select("key").key_by("key").count())
    assert sql is not None and sql.condition is None and sql.columns == ("key",)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (
            lambda s: s.filter(col("large") > 3).key_by("key").count(),
            "filter by 'large': a column of type uint64 is not the same in Spark",
        ),
        (
            lambda s: s.filter(col("exact").is_null).key_by("key").count(),
            "filter by 'exact': a column of type decimal128(10, 2) is not the same in Spark",
        ),
        (
            lambda s: s.filter(col("whole") > 3).filter_batches(lambda b: b["whole"]).key_by("key").count(),
            "'Filter Batches' takes the rows, which is no built-in operator of columns",
        ),
        (
            lambda s: s.filter(col("whole") > 3).disable_chaining().key_by("key").count(),
            "'Filter' takes the rows, which is no built-in aggregate of columns",
        ),
        (
            lambda s: s.filter(pc.field("whole") > 3).key_by("key").count(),
            "'Filter' has the Arrow expression (whole > 3), which Spark cannot read",
        ),
        (
            lambda s: s.filter(~(col("key").is_null | (pc.field("whole") > 3))).key_by("key").count(),
            "'Filter' has the Arrow expression (whole > 3), which Spark cannot read",
        ),
    ],
)
def test_filters_that_stay_in_python(folder: str, build: Any, why: str) -> None:
    assert decision(folder, build) == (None, why)


def test_a_filter_whose_rows_others_read_too_stays_in_python(folder: str) -> None:
    env = environment(2)
    stream = files(env, folder)
    stream.filter(col("whole") > 3).to_rows().print()
    graph = printed(env, stream.filter(col("whole") < 3).key_by("key").count())
    assert plan(graph).stages[0].sql is None
    env = environment(2)
    stream = files(env, folder)
    stream.filter(col("whole") > 3)
    graph = printed(env, stream.filter(col("whole") < 3).key_by("key").count())
    assert plan(graph).stages[0].no_sql == "several operators read the rows of 'Source: files'"
    env = environment(2)
    kept = files(env, folder).filter(col("whole") > 3)
    kept.filter(col("whole") < 9)
    graph = printed(env, kept.key_by("key").count())
    assert plan(graph).stages[0].no_sql == "several operators read the rows of 'Filter'"


def test_the_tasks_hand_on_what_spark_has_filtered(folder: str) -> None:
    env = environment(2)
    stream = files(env, folder).filter(col("whole") > 3).select("key", "whole")
    graph = printed(env, stream.key_by("key").sum("whole"))
    made = plan(graph)
    assert decode_batch_plan(encode_batch_plan(made)) == made
    source, *_ = with_sql(graph, made).vertices
    assert [each.name for each in source.operators] == ["Source: files", "Filter", "Select"]
    assert all(
        each.spec.condition is None and each.spec.selected_columns is None for each in source.operators
    )
    assert any("filters their rows" in line for line in lines_of(made))


def test_functions_of_the_program_stay_in_python(folder: str) -> None:
    env = environment(2)
    graph = printed(
        env, files(env, folder).map_batches(lambda batch: batch, SCHEMA).key_by("key").sum("whole")
    )
    assert (
        plan(graph).stages[0].no_sql
        == "'Map Batches' takes the rows, which is no built-in operator of columns"
    )
    env = environment(2)
    graph = printed(env, files(env, folder).rebalance())
    assert "no built-in aggregate of columns" in plan(graph).stages[0].no_sql


def test_rows_that_several_stages_read_stay_in_python(folder: str) -> None:
    env = environment(2)
    stream = files(env, folder)
    stream.key_by("key").sum("whole").to_rows().print()
    graph = printed(env, stream.key_by("key").max("whole"))
    assert plan(graph).stages[0].no_sql == "2 stages read the files' rows"
    env = environment(2)
    graph = printed(env, files(env, folder).union(files(env, folder)).key_by("key").sum("whole"))
    assert {stage.no_sql for stage in plan(graph).stages if stage.is_source} == {
        "'Keyed Arrow Aggregation' has rows of other stages too"
    }


def test_csv_stays_in_python_and_other_sources_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,1\n")
    schema = CsvSchema.builder().add_string_column("key").add_number_column("n", DataTypes.BIGINT()).build()
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema, columnar=True), str(tmp_path)
    ).build()
    env = environment(2)
    stream = env.from_source(source, NO_WATERMARKS, "files")
    graph = printed(env, stream.key_by("key").sum("n"))
    assert plan(graph).stages[0].no_sql == "CSV files are parsed by the engine's own rules"
    env = environment(2)
    env.from_collection([1]).print()
    assert {stage.no_sql for stage in plan(env.get_job_graph()).stages} == {""}


def test_a_format_of_the_program_reads_its_files_itself(folder: str) -> None:
    class Own(ParquetColumnarRowInputFormat):
        pass

    env = environment(2)
    source = FileSource.for_bulk_file_format(Own(SCHEMA), folder).build()
    graph = printed(env, env.from_source(source, NO_WATERMARKS, "files").key_by("key").sum("whole"))
    stage, *_ = plan(graph).stages
    assert (stage.sql, stage.no_sql) == (None, "")


def test_the_option_turns_it_off(folder: str) -> None:
    env = environment(2, {"execution.batch.spark.sql": "false"})
    graph = printed(env, files(env, folder).key_by("key").sum("whole"))
    assert plan(graph).stages[0].no_sql == "execution.batch.spark.sql is false"


def test_scans_of_another_parallelism_stay_in_python(folder: str) -> None:
    env = environment(2)
    files(env, folder).key_by("key").sum("whole").to_rows().print()
    narrow = files(env, folder).set_parallelism(1)
    graph = printed(env, narrow.key_by("key").sum("whole"))
    whys = [stage.no_sql for stage in plan(graph).stages if stage.is_source]
    assert whys == ["", "another scan of the job has parallelism 2, this one 1"]


def test_the_tasks_get_a_graph_with_other_heads(folder: str) -> None:
    env = environment(2)
    graph = printed(env, files(env, folder).key_by("key").sum("whole"))
    made = plan(graph)
    assert decode_batch_plan(encode_batch_plan(made)) == made
    (stage,) = sql_stages(made)
    changed = decode_job_graph(encode_job_graph(with_sql(graph, made)))
    source, aggregate, *_ = changed.vertices
    assert not source.is_source and aggregate.head.spec.keyed_aggregates is None
    # Everything else is as it was: names, ids and what stands behind.
    assert [operator.id for vertex in changed.vertices for operator in vertex.operators] == [
        operator.id for vertex in graph.vertices for operator in vertex.operators
    ]
    assert [(edge.source, edge.target) for edge in changed.edges] == [
        (edge.source, edge.target) for edge in graph.edges
    ]
    # Rows stay where Spark has computed them. In Python, they are folded before an exchange instead.
    (exchange,), (edge,) = stage.outputs, changed.edges
    assert stage.is_handed_over and exchange.kind is ExchangeKind.FORWARD and exchange.combining is None
    assert edge.partitioner.kind is PartitionerKind.FORWARD
    assert made.stages[1].order is InputOrder.AS_READ
    back = plan(graph, in_python={stage.vertex_id: "they are gone"})
    assert back.stage(stage.vertex_id).outputs[0].combining is not None
    assert back.stage(stage.vertex_id).outputs[0].kind is ExchangeKind.KEYED
    assert sql_stages(back) == () and back.stage(stage.vertex_id).no_sql == "they are gone"
    assert with_sql(graph, back) is graph


def alone(env: StreamExecutionEnvironment, sums: DataStream) -> None:
    sums.to_rows().print()


def read_by_one(env: StreamExecutionEnvironment, sums: DataStream) -> None:
    sums.key_by("key").count().to_rows().print()
    alone(env, sums)


def read_by_two(env: StreamExecutionEnvironment, sums: DataStream) -> None:
    sums.key_by("key").count().to_rows().print()
    sums.key_by("whole").count().to_rows().print()


def beside_another(env: StreamExecutionEnvironment, sums: DataStream) -> None:
    env.from_collection([1]).print()
    alone(env, sums)


def of_another_width(env: StreamExecutionEnvironment, sums: DataStream) -> None:
    alone(env, sums.set_parallelism(1))


@pytest.mark.parametrize(
    ("build", "is_handed_over"),
    [
        (alone, True),
        (read_by_one, True),
        (read_by_two, False),
        (beside_another, False),
        (of_another_width, False),
    ],
)
def test_results_stay_in_their_partition_where_the_plan_is_a_line(
    folder: str, build: Any, is_handed_over: bool
) -> None:
    env = environment(2)
    build(env, files(env, folder).key_by("key").sum("whole"))
    graph = env.get_job_graph()
    made = plan(graph)
    (stage,) = sql_stages(made)
    assert stage.is_handed_over is is_handed_over
    (exchange,) = stage.outputs
    assert exchange.kind is (ExchangeKind.FORWARD if is_handed_over else ExchangeKind.KEYED)
    (edge,) = (each for each in with_sql(graph, made).edges if each.index == exchange.edge)
    kind = PartitionerKind.FORWARD if is_handed_over else PartitionerKind.KEY_GROUP
    assert edge.partitioner.kind is kind


def sized(graph: JobGraph, size: int) -> JobGraph:
    """The graph as if its files had that size."""
    source, *others = graph.vertices
    scan = source.head.spec.column_scan
    assert scan is not None and scan.size > 0
    spec = msgspec.structs.replace(source.head.spec, scan=msgspec.structs.replace(scan, size=size))
    head = msgspec.structs.replace(source.head, spec=spec)
    changed = msgspec.structs.replace(source, operators=(head, *source.operators[1:]))
    return msgspec.structs.replace(graph, vertices=(changed, *others))


def test_sparks_application_has_the_jobs_name_or_the_programs_own(folder: str) -> None:
    env = environment(2)
    graph = printed(env, files(env, folder))
    assert driver_configuration(graph)["spark.app.name"] == graph.name != ""
    env = environment(2, {"spark.app.name": "mine"})
    assert driver_configuration(printed(env, files(env, folder)))["spark.app.name"] == "mine"


def test_java_compiles_fully_where_spark_sql_reads_much(folder: str) -> None:
    full = "execution.batch.spark.full-compiler"
    env = environment(2)
    graph = printed(env, files(env, folder).key_by("key").sum("whole"))
    assert full not in driver_configuration(graph)
    assert driver_configuration(sized(graph, 64 << 20)) == {
        **driver_configuration(graph),
        full: "true",
    }
    env = environment(2, {full: "false"})
    graph = printed(env, files(env, folder).key_by("key").sum("whole"))
    assert driver_configuration(sized(graph, 1 << 40))[full] == "false"
    env = environment(2)
    graph = printed(
        env, files(env, folder).map_batches(lambda batch: batch, SCHEMA).key_by("key").sum("whole")
    )
    assert full not in driver_configuration(sized(graph, 1 << 40))
