"""Scans and aggregates that Spark SQL computes: rows and types are those of the engine's own operators."""

from __future__ import annotations

import datetime as dt
import operator
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.test_pipelines import PlayedPipeline, pipeline_in
from tests.support.batch_runner import collecting_graph, run_batch
from tests.support.spark_driver import DriverUnderTest
from tests.unit.runtime.graph.programs import environment
from yarrow.batch import StageTable
from yarrow.common import WatermarkStrategy
from yarrow.common.values.conditions import AllOf
from yarrow.container.batch.spark.sql_frames import scanned, sql_settings
from yarrow.container.operators.columnar.column_selection import truth_of
from yarrow.datastream import DataStream
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.table.expressions import col

pytestmark = pytest.mark.spark

NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()
NAN = float("nan")
_EPOCH = dt.datetime(1970, 1, 1)
#: Values of each type, at its ends and where Spark and Python might differ.
VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): (True, False),
    pa.int8(): (-128, 127, 0),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1, 5),
    pa.int64(): (-(2**50), 2**50, 3),
    pa.uint8(): (0, 255),
    pa.uint16(): (0, 65_535),
    pa.uint32(): (0, 2**32 - 1),
    pa.float32(): (0.5, -0.0, 0.0, NAN, float("inf"), -1.5),
    pa.float64(): (0.1, -0.0, 0.0, NAN, float("-inf"), 1e300),
    pa.string(): ("", "a", "é", "\U0001f600", "\uffff", "Z"),
    pa.large_string(): ("ab", "b", ""),
    pa.dictionary(pa.int32(), pa.string()): ("x", "y", ""),
    pa.date32(): (dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1970, 1, 1), dt.date(9999, 12, 31)),
    pa.timestamp("us"): (_EPOCH, dt.datetime(1500, 1, 1, 1, 1, 1, 7), dt.datetime(2026, 3, 29, 2, 30)),
    pa.timestamp("us", "Europe/Berlin"): (_EPOCH, dt.datetime(1890, 5, 5), dt.datetime(2026, 3, 29, 2, 30)),
}
NAMES = {kind: f"{kind} `col.umn`".replace(".", "") for kind in VALUES}


def write(folder: Path, rows: int = 600, files: int = 3) -> None:
    chance = random.Random(7)
    for number in range(files):
        columns = {"group": pa.array([chance.choice(("a", "b", "c", None)) for _ in range(rows)])}
        for kind, values in VALUES.items():
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            column = pa.array([chance.choice((*values, None)) for _ in range(rows)], plain)
            columns[NAMES[kind]] = column.dictionary_encode().cast(kind) if plain != kind else column
        columns["nothing"] = pa.nulls(rows, pa.int64())
        pq.write_table(pa.table(columns), folder / f"{number} part.parquet", row_group_size=250)


def program(folder: Path, build: Any, *, sql: bool = True, parallelism: int = 2) -> JobGraph:
    env = environment(parallelism, {} if sql else {"execution.batch.spark.sql": "false"})
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(folder)).build()
    stream: DataStream = build(env.from_source(source, NO_WATERMARKS, "files"))
    return collecting_graph(env, stream)


def in_words(rows: Sequence[Any]) -> list[str]:
    """Rows as text: NaN is NaN there, -0.0 is not 0.0, and True is not 1."""
    return sorted(repr(row) for row in rows)


def typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the types of their columns."""
    types = str(batch.schema.remove_metadata())
    return pa.record_batch({"types": [types] * len(batch), "rows": [repr(row) for row in batch.to_pylist()]})


def check(
    driver: DriverUnderTest, folder: Path, build: Any, *, keys: int | None = None, **options: Any
) -> JobGraph:
    """Runs the program on Spark and by the engine's own operators.

    `keys`: the number of keys; None = each row that is collected is that of a key.
    """
    graph = program(folder, build, **options)
    source, *_ = plan(graph).stages
    assert source.sql is not None, source.no_sql
    outcome = driver.run(graph)
    assert outcome.failure is None, outcome.failure
    expected = run_batch(program(folder, build, **options | {"sql": False}))
    assert in_words(outcome.collected()) == in_words(expected.rows())
    # No row of the files has entered Python: its tasks saw one row of each key.
    assert outcome.stages[source.vertex_id].records_in == (keys or len(expected.rows()))
    assert all(stage.tasks_done == stage.tasks_total for stage in outcome.stages.values())
    return graph


def test_each_aggregate_of_each_type(driver: DriverUnderTest, tmp_path: Path) -> None:
    write(tmp_path)
    wanted: list[Any] = [(None, "count"), ("nothing", "sum"), ("nothing", "min"), ("nothing", "mean")]
    for kind, name in NAMES.items():
        wanted += [(name, "min"), (name, "max")]
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            wanted += [(name, "sum"), (name, "mean")]
    check(driver, tmp_path, lambda s: s.key_by("group").aggregate(wanted).map_batches(typed).to_rows())


def test_keys_of_many_types_and_a_stage_behind(driver: DriverUnderTest, tmp_path: Path) -> None:
    write(tmp_path, rows=50, files=1)
    keys = [name for kind, name in NAMES.items() if not pa.types.is_floating(kind)]
    number = NAMES[pa.int64()]

    def build(stream: DataStream) -> DataStream:
        sums = stream.key_by(*keys).aggregate([(number, "sum", "total"), (None, "count", "n")])
        return sums.map_batches(typed).to_rows()

    check(driver, tmp_path, build)
    check(
        driver,
        tmp_path,
        lambda s: s.key_by("nothing").max(number).key_by("nothing").count().to_rows(),
        parallelism=3,
    )


def test_results_that_two_stages_read(driver: DriverUnderTest, tmp_path: Path) -> None:
    """Behind a union Spark's partitions have other numbers than the tasks."""
    write(tmp_path, rows=80, files=2)

    def build(stream: DataStream) -> DataStream:
        sums = stream.key_by("group").aggregate([(NAMES[pa.int64()], "sum", "total"), (None, "count", "n")])
        counts = (sums.key_by(key).count().map_batches(typed).to_rows() for key in ("group", "n"))
        return next(counts).union(*counts)

    check(driver, tmp_path, build, keys=4, parallelism=3)


def leave(row: Any) -> Any:
    os._exit(3)


def test_a_process_that_dies_behind_the_aggregates_names_operator_and_record(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": ["a", "a"], "v": pa.array([1, 2], pa.int64())}), tmp_path / "1.parquet")
    graph = program(
        tmp_path, lambda s: s.key_by("k").sum("v").to_rows(as_tuple=True).map(leave).name("leaving")
    )
    cause = driver.run(graph).failure
    assert cause is not None
    assert cause.exception_name.endswith("TaskLostError")
    assert (cause.operator_name, cause.record) == ("leaving", "('a', 3)")


#: What columns are compared with, besides their own values: beyond them, between them, and before 1582.
FURTHER: dict[pa.DataType, Sequence[Any]] = {
    pa.int8(): (1000,),
    pa.uint32(): (-1,),
    pa.float32(): (0.1,),
    pa.float64(): (3,),
    pa.date32(): (dt.date(1582, 10, 4),),
    pa.timestamp("us"): (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)),
}
COMPARISONS: Sequence[Callable[[Any, Any], Any]] = (operator.eq, operator.ne, operator.lt, operator.ge)


def values_to_compare(kind: pa.DataType) -> list[Any]:
    """Two values of the column, and all that lie elsewhere."""
    values = [each for each in (*VALUES[kind][:2], *FURTHER.get(kind, ())) if each == each]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return [each.replace(tzinfo=dt.UTC) for each in values]
    return values


def conditions() -> Iterator[Any]:
    for kind, name in NAMES.items():
        column = col(name)
        for at, value in enumerate(values_to_compare(kind)):
            # Each comparison of each type is made, but not with each value.
            yield COMPARISONS[at % 4](column, value)
            yield ~COMPARISONS[(at + 1) % 4](column, value)
            yield COMPARISONS[(at + 2) % 4](column, value) | column.is_null
            yield COMPARISONS[(at + 3) % 4](column, value) & col(NAMES[pa.bool_()]).in_(True)


def test_each_comparison_of_each_type_has_the_same_truth(driver: DriverUnderTest, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write(files, rows=120, files=1)
    table = pq.read_table(files)
    table = table.append_column("place", pa.array(range(len(table)), pa.int64()))
    pq.write_table(table, files / "0 part.parquet", row_group_size=50)
    wanted = list(conditions())
    stage, *_ = plan(program(files, lambda s: s.filter(AllOf(tuple(wanted))).key_by("place").count())).stages
    assert stage.sql is not None, stage.no_sql
    # What readers of files are told to leave out shows here: where() may ask them, select() does not.
    filtered = wanted[::4]

    def compute(spark: Any, *, folder: str) -> Any:
        assert stage.sql is not None
        with sql_settings(spark, [stage]):
            found = scanned(spark, stage.sql, [f"{folder}/files/0 part.parquet"])
            place, truth = F.col(found.names["place"]).alias("place"), found.conditions.expression
            truths = [truth(each).alias(str(at)) for at, each in enumerate(wanted)]
            found.frame.select(place, *truths).write.parquet(f"{folder}/truths")
            kept = [
                found.frame.where(truth(each)).select(F.lit(at).alias("at"), place)
                for at, each in enumerate(filtered)
            ]
            reduce(DataFrame.unionAll, kept).write.parquet(f"{folder}/kept")
        return spark.range(1)

    pipeline = pipeline_in(tmp_path)
    output = StageTable("done", "id bigint", str(tmp_path / "done"))
    pipeline.stage("compute", compute, outputs=output, parameters={"folder": str(tmp_path)})
    played = PlayedPipeline(driver, pipeline)
    played.all()
    played.end()
    (batch,) = table.combine_chunks().to_batches()
    expected = [truth_of(each, batch).to_pylist() for each in wanted]
    found = pq.read_table(tmp_path / "truths").sort_by("place")
    for at, condition in enumerate(wanted):
        assert found.column(str(at)).to_pylist() == expected[at], condition
    kept = pq.read_table(tmp_path / "kept")
    for at, condition in enumerate(filtered):
        places = sorted(kept.filter(pc.equal(kept["at"], at))["place"].to_pylist())
        assert places == [place for place, holds in enumerate(expected[at * 4]) if holds], condition


def test_a_condition_that_is_never_true_keeps_no_row(driver: DriverUnderTest, tmp_path: Path) -> None:
    write(tmp_path, rows=20, files=1)
    small, real = col(NAMES[pa.int8()]), col(NAMES[pa.float64()])
    never = (small > 1000) | ((small > 5) & (small < 5)) | (real.is_null & (real > 0))

    def build(stream: DataStream) -> DataStream:
        return stream.filter(small > 1000).key_by("group").count().to_rows()

    check(driver, tmp_path, build)
    check(driver, tmp_path, lambda s: s.filter(never).key_by("group").count().to_rows())


def test_filters_and_selections_before_aggregates(driver: DriverUnderTest, tmp_path: Path) -> None:
    write(tmp_path, rows=200, files=2)
    number, real, text = NAMES[pa.int64()], NAMES[pa.float64()], NAMES[pa.string()]

    def build(stream: DataStream) -> DataStream:
        kept = stream.filter((col(real) > 0) | col(real).is_null).select("group", number, text)
        groups = kept.filter(col(text) < "a").key_by("group")
        return groups.aggregate([(number, "sum"), (number, "mean"), (None, "count")]).to_rows()

    check(driver, tmp_path, build)


def test_files_that_differ_run_in_python_which_names_the_column(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    rows = pa.table({"k": ["a"], "v": pa.array([1], pa.int64())})
    pq.write_table(rows, tmp_path / "1.parquet")
    pq.write_table(rows.set_column(1, "v", pa.array([1.5])), tmp_path / "2.parquet")
    graph = program(tmp_path, lambda s: s.key_by("k").sum("v").to_rows(), parallelism=1)
    cause = driver.run(graph).failure
    assert cause is not None and cause.exception_name.endswith("AggregationError")
    assert "column 'v' is of type double, in earlier batches it was int64" in cause.message
    log = (driver.folder / "logs" / "driver-1.log").read_text()
    assert (
        f"are read in Python: {tmp_path}/2.parquet: column 'v' is of type double, and int64 is declared"
        in log
    )


def test_a_sum_beyond_64_bits_is_named_with_its_key(driver: DriverUnderTest, tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b", "b"], "v": pa.array([1, 2**62, 2**62], pa.int64())})
    pq.write_table(table, tmp_path / "1.parquet")
    cause = driver.run(program(tmp_path, lambda s: s.key_by("k").sum("v").to_rows())).failure
    assert cause is not None
    assert f"the sum of column 'v' for the key 'b' is {2**63}, which does not fit int64" in cause.message


def test_a_damaged_file_is_named(driver: DriverUnderTest, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"] * 1000, "v": pa.array(range(1000), pa.int64())})
    path = tmp_path / "1.parquet"
    pq.write_table(rows, path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    # The end of the file is as it was, the pages are not.
    data[4:200] = bytes(255 for _ in range(196))
    path.write_bytes(data)
    cause = driver.run(program(tmp_path, lambda s: s.key_by("k").sum("v").to_rows())).failure
    assert cause is not None
    assert cause.message.startswith(f"Spark SQL could not read file://{path} (")
    assert "or set execution.batch.spark.sql to false" in cause.message
    assert "\n" not in cause.message and "java." not in cause.message
