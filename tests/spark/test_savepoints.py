"""Savepoints as DataFrames of a real Spark, both ways."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.programs import savepoint_frames
from tests.format.golden_snapshots import native_checkpoint, savepoint
from tests.support.spark_session import spark_session
from tests.unit.state_processor.bootstrapped import (
    BY_DAY,
    COUNT,
    EXPIRING,
    NAMES,
    BootstrapOfColumns,
    Job,
)
from yarrow.common import Types
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.snapshot.errors import SavepointMismatchError, SnapshotNotFoundError
from yarrow.state_processor import SavepointEnvironment, SavepointReader, SavepointWriter, StateProcessorError
from yarrow.state_processor.spark import FORMAT, DataFrameTransformation, SavepointDataFrames, register

pytestmark = pytest.mark.spark

bootstrap_with = DataFrameTransformation.bootstrap_with


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.session.timeZone": "America/New_York"}
    with spark_session(tmp_path_factory.mktemp("spark"), "savepoints", settings) as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


def job(rows: Any) -> Any:
    return rows.key_by(lambda row: row[0]).process(Job()).uid("op")


def test_a_savepoint_of_dataframes_is_restored_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    accounts = spark.range(0, 20_000, 1, 3).selectExpr("concat('k', id) as account", "id + 1 as visits")
    named = accounts.selectExpr("account", "array(account, 'x') as seen")
    path = (
        SavepointWriter.new_savepoint(64)
        .with_operator(
            "op",
            bootstrap_with(accounts).key_by("account").to_state(COUNT, "visits"),
            bootstrap_with(named).key_by("account").to_state(NAMES, "seen", partitions=3),
        )
        .write(f"{tmp_path}/made")
    )
    files = os.listdir(path)
    assert len(files) == 1 + 2 + 3, f"one file for each partition: {files}"
    for backend in ("hashmap", "rocksdb"):
        with SavepointEnvironment(job, path, configuration={"state.backend.type": backend}) as environment:
            environment.push([("k17", "w"), ("new", "v")])
            assert environment.take() == [("k17", 19, ["k17", "x", "w"], 1), ("new", 1, ["v"], 1)]
    state = bootstrap_with(accounts).key_by("account").to_state(COUNT, "visits", native=True)
    native = SavepointWriter.new_savepoint(64).with_operator("op", state).write(f"{tmp_path}/native")
    with SavepointEnvironment(job, native, configuration={"state.backend.type": "rocksdb"}) as environment:
        environment.push([("k17", "w")])
        assert environment.take() == [("k17", 19, ["w"], 1)]
    frames = SavepointDataFrames.read(spark, path)
    counts = frames.read_keyed_state("op", "count", partitions=4)
    assert counts.rdd.getNumPartitions() == 4
    assert counts.agg(F.sum("value"), F.count("key")).collect() == [(20_000 * 20_001 // 2, 20_000)]
    seen = frames.read_keyed_state("op", "names").where("key = 'k17'").collect()
    assert [(row["key"], row["value"]) for row in seen] == [("k17", ["k17", "x"])]
    assert frames.read_keyed_state("op", "names", columns=["key"]).columns == ["key"]
    assert frames.read_keyed_state("op", "names", columns=["value"]).count() == 20_000


@pytest.mark.parametrize("snapshot", [savepoint, native_checkpoint])
def test_the_states_of_a_job_are_those_of_savepoint_reader(
    spark: SparkSession, tmp_path: Path, snapshot: Any
) -> None:
    path = snapshot(tmp_path)
    frames = SavepointDataFrames.read(spark, path, trust_pickle=True)
    with SavepointReader.read(path, trust_pickle=True) as reader:
        for name in ("count", "recent", "recent by split"):
            expected = reader.read_keyed_state("kinds", name)
            found = frames.read_keyed_state("kinds", name).toArrow()
            assert found.column_names == expected.column_names
            if name != "recent":  # whose times of access Spark shows in the session's zone
                assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
        timers = frames.read_timers("kinds").toArrow().to_pylist()
        assert sorted(map(repr, timers)) == sorted(map(repr, reader.read_timers("kinds").to_pylist()))


def test_the_format_reads_what_the_options_name(spark: SparkSession, tmp_path: Path) -> None:
    path = savepoint(tmp_path)
    register(spark)
    register(spark)
    read = spark.read.format(FORMAT).option("operator", "kinds").option("trustPickle", "true")
    counts = read.option("state", "count").schema("key string").load(path)
    with SavepointReader.read(path) as reader:
        keys = reader.read_keyed_state("kinds", "count").column("key").to_pylist()
    assert sorted(row["key"] for row in counts.collect()) == sorted(keys)
    with pytest.raises(Exception, match=r"its options are path, operator, state or timers"):
        spark.read.format(FORMAT).option("operator", "kinds").load(path)


def refused(spark: SparkSession, folder: Path, rows: str, descriptor: Any = COUNT) -> str:
    """Why a table of SQL is refused; nothing is left of it."""
    with pytest.raises(StateProcessorError) as raised:
        state = bootstrap_with(spark.sql(f"select * from values {rows} as t(key, value)")).key_by("key")
        SavepointWriter.new_savepoint(16).with_operator("op", state.to_state(descriptor)).write(
            f"{folder}/made"
        )
    assert not (folder / "made").exists()
    assert raised.value.__cause__ is None and "py4j" not in str(raised.value)
    return str(raised.value)


def test_rows_that_cannot_be_state_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    assert "the key 'a' comes twice" in refused(spark, tmp_path, "('a', 1L), ('b', 2L), ('a', 3L)")
    assert "have no key (null)" in refused(spark, tmp_path, "('a', 1L), (null, 2L)")
    assert "the state holds int64, and a column of string does not fit it" in refused(
        spark, tmp_path, "('a', 'x')"
    )
    assert "cannot be a key" in refused(spark, tmp_path, "(array(1), 1L)")
    assert "a map state takes a column of maps, not of int64" in refused(spark, tmp_path, "('a', 1L)", BY_DAY)
    frame = bootstrap_with(spark.range(3))
    with pytest.raises(
        StateProcessorError, match=r"state 'count': the DataFrame has no column 'value', only \['id'\]"
    ):
        frame.key_by("id").to_state(COUNT)
    with pytest.raises(StateProcessorError, match=r"one column, not by \['id', 'id'\].*functions.struct"):
        frame.key_by(["id", "id"]).to_state(COUNT, "id")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a DataFrame of PySpark, not list"):
        bootstrap_with([1])
    with pytest.raises(
        StateProcessorError, match=r"the keys are declared String, and no value of a column of int64"
    ):
        frame.key_by("id", Types.STRING()).to_state(COUNT, "id")


def test_a_function_makes_state_and_timers_of_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    words = spark.range(0, 300, 1, 2).selectExpr(
        "concat('k', id % 50) as name", "substr('xxx', 1, int(id % 3) + 1) as word"
    )
    made = bootstrap_with(words).key_by("name").transform(BootstrapOfColumns())
    path = SavepointWriter.new_savepoint(64).with_operator("op", made).write(f"{tmp_path}/made")
    with SavepointEnvironment(job, path) as environment:
        environment.push([("k7", "w")])
        assert environment.take() == [("k7", 7, ["xx", "x", "xxx", "xx", "x", "xxx", "w"], 13)]
    frames = SavepointDataFrames.read(spark, path)
    timers = frames.read_timers("op").where("domain = 'EVENT_TIME'")
    assert timers.count() == 150 and timers.agg(F.max("timestamp")).collect() == [(3000,)]


def test_a_broken_function_of_the_dataframe_is_told_without_java(spark: SparkSession, tmp_path: Path) -> None:
    def broken(batches: Any) -> Any:
        raise LookupError(f"no rate for {next(batches).column(0)[0]}")

    rows = spark.range(0, 1, 1, 1).mapInArrow(broken, "key bigint, value bigint")
    state = bootstrap_with(rows).key_by("key").to_state(COUNT)
    with pytest.raises(StateProcessorError) as raised:
        SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{tmp_path}/made")
    assert str(raised.value) == "operator 'op', state 'count': not written: no rate for 0"
    assert not (tmp_path / "made").exists()


def test_a_savepoint_that_is_there_is_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    state = bootstrap_with(spark.range(10)).key_by("id").to_state(COUNT, "id")
    writer = SavepointWriter.new_savepoint(16).with_operator("op", state)
    path = writer.write(f"{tmp_path}/made")
    before = sorted(os.listdir(path))
    with pytest.raises(StateProcessorError, match=r"holds a savepoint or checkpoint already"):
        writer.write(path)
    assert sorted(os.listdir(path)) == before
    with pytest.raises(SnapshotNotFoundError, match=re.escape(f"{tmp_path}/else")):
        SavepointDataFrames.read(spark, f"{tmp_path}/else")
    with pytest.raises(SavepointMismatchError, match=r"max parallelism"):
        SavepointEnvironment(job, path, max_parallelism=32)


def test_values_with_a_time_to_live_keep_their_times(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 'a' as key, 5L as value, timestamp '2030-01-01 00:00:00' as at")
    state = bootstrap_with(rows).key_by("key").to_state(EXPIRING, access_time="at")
    path = SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{tmp_path}/made")
    back = SavepointDataFrames.read(spark, path).read_keyed_state("op", "expiring")
    assert back.selectExpr("key", "value", "unix_seconds(access_time)").collect() == [("a", 5, 1_893_474_000)]


def test_the_example_of_the_documentation(spark: SparkSession, tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "state_as_dataframe.py"))
    history = spark.createDataFrame(example["HISTORY"], "account string, amount bigint")
    balances = SavepointDataFrames.read(spark, example["write"](history, f"{tmp_path}/made"))
    found = balances.read_keyed_state("totals", "balance").collect()
    assert sorted(tuple(row) for row in found) == [("ann", 1025), ("bob", -30), ("cid", 5)]


def test_structs_are_tuples_or_rows_as_in_tables(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(50).selectExpr(
        "struct(id as f0, string(id) as f1) as key",
        "named_struct('n', id, 'at', timestamp_ntz '2024-05-06 07:08:09') as value",
    )
    kind = Types.ROW_NAMED(["n", "at"], [Types.LONG(), Types.SQL_TIMESTAMP()])
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("s", kind)
    key = Types.TUPLE([Types.LONG(), Types.STRING()])
    state = bootstrap_with(rows).key_by("key", key).to_state(descriptor)
    path = SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{tmp_path}/made")
    back = SavepointDataFrames.read(spark, path).read_keyed_state("op", "s")
    assert sorted(back.selectExpr("key.f0", "key.f1", "value.n").collect()) == [
        (n, str(n), n) for n in range(50)
    ]


def test_the_benchmark_runs_what_it_names(spark: SparkSession, tmp_path: Path) -> None:
    for job in savepoint_frames.JOBS:
        folder = tmp_path / job
        savepoint_frames.run_of(job, spark, 500, folder)()
        kept = folder / "savepoint" / ("_SUCCESS" if job == "parquet" else "_metadata")
        assert kept.exists(), f"{job} leaves what --keep copies"
