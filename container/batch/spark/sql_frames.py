"""Scans and aggregates of a plan as expressions of Spark SQL: their rows never enter Python.

Owner: the thread of a run. The files were checked before (`parquet_scan`), so Spark types columns as said here. Must
not decide what becomes SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from yarrow.container.batch.spark.sql_conditions import Conditions
from yarrow.container.operators.columnar.sql_results import Computed, computed_columns
from yarrow.runtime.graph.batch.batch_plan import BatchStage, SqlAggregation
from yarrow.runtime.graph.operator_spec import AggregateKind

#: Settings of the session while a plan with SQL runs.
_SETTINGS: Final[Mapping[str, str]] = {
    # Expressions gain from compiled code, unlike stages of one opaque function.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.caseSensitive": "true",
    # A condition that is never true would leave a plan without partitions, and a stage without its tasks.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PruneFilters",
    # Readers of files get dates of Java's old calendar to compare with, which has other days before 1582.
    "spark.sql.parquet.filterPushdown.date": "false",
    "spark.sql.parquet.filterPushdown.timestamp": "false",
    # The results of keys are rows of few bytes; batches are bounded by bytes too.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # The files are named one by one: nothing has to be searched by a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: In Spark's words: the file, and each cause behind the name of its class.
_UNREAD: Final = re.compile(r"\[FAILED_READ_FILE[^\]]*\] .*?reading file (\S.*?)\.(?:\s|$)")
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (.*)$", re.MULTILINE)
_BY_ARROW: Final[Mapping[pa.DataType, T.DataType]] = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    # Spark has no unsigned numbers: it reads them as the next wider type.
    pa.uint8(): T.ShortType(),
    pa.uint16(): T.IntegerType(),
    pa.uint32(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.large_string(): T.StringType(),
    pa.date32(): T.DateType(),
    pa.timestamp("us"): T.TimestampNTZType(),
}


def spark_type(kind: pa.DataType) -> T.DataType:
    """Spark's type of a column. Raises KeyError for a type that Spark SQL does not get."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return T.TimestampType()
    return _BY_ARROW[kind]


class ScannedFiles(NamedTuple):
    """Columns of files."""

    frame: DataFrame
    #: The name of each column in `frame`, by its name in the files.
    names: Mapping[str, str]
    #: The conditions over these columns.
    conditions: Conditions


def scanned(session: SparkSession, sql: SqlAggregation, paths: Sequence[str]) -> ScannedFiles:
    """The columns that are aggregated or compared, of all rows."""
    schema = pa.ipc.read_schema(pa.py_buffer(sql.scan.schema))
    columns = sql.columns
    fields = [T.StructField(name, spark_type(schema.field(name).type), True) for name in columns]
    reader = session.read.schema(T.StructType(fields)).option("datetimeRebaseMode", "CORRECTED")
    # Names of the program's columns mean nothing to Spark from here on.
    numbered = {name: f"c{at}" for at, name in enumerate(columns)}
    frame = reader.parquet(*map(_url, paths)).toDF(*numbered.values())
    return ScannedFiles(frame, numbered, Conditions(schema, numbered))


def aggregated(session: SparkSession, sql: SqlAggregation, paths: Sequence[str]) -> DataFrame:
    """One row for each key: the key columns, then `computed_columns`. Keys are sorted in each partition."""
    files = scanned(session, sql, paths)
    kept = files.frame
    if sql.condition is not None:
        kept = kept.where(files.conditions.expression(sql.condition))
    of_keys = [F.col(files.names[name]) for name in sql.aggregates.key_names]
    computed = computed_columns(sql.aggregates)
    results = [_expression(each, files.names).alias(f"r{at}") for at, each in enumerate(computed)]
    # Each attempt of a task gets its rows in the same order.
    return kept.groupBy(*of_keys).agg(*results).sortWithinPartitions(*of_keys)


def _url(path: str) -> str:
    return path if "://" in path else f"file://{path}"


def _expression(computed: Computed, numbered: Mapping[str, str]) -> Column:
    if computed.column is None:
        return F.count(F.lit(1))
    column = F.col(numbered[computed.column])
    match computed.what:
        case AggregateKind.COUNT:
            return F.count(column)
        case AggregateKind.SUM:
            return F.sum(column.cast("bigint"))
        case AggregateKind.MIN:
            return F.min(column)
        case _:
            return F.max(column)


@contextmanager
def sql_settings(session: SparkSession, stages: Sequence[BatchStage]) -> Iterator[None]:
    """Sets the session up for a plan with these stages of SQL, whose parallelism is the same; no effect without any."""
    if not stages:
        yield
        return
    wanted = {**_SETTINGS, _PARTITIONS: str(stages[0].parallelism)}
    before = {key: session.conf.get(key) for key in wanted}
    try:
        for key, value in wanted.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, former in before.items():
            if former is not None:
                session.conf.set(key, former)


def unread_file(said: str) -> str | None:
    """The file that Spark SQL could not read, and why, out of what Spark says; None if that is no such error."""
    found = _UNREAD.search(said)
    if found is None:
        return None
    causes = _CAUSE.findall(said)
    return f"{found.group(1)} ({causes[-1].strip()})" if causes else found.group(1)
