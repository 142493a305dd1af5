"""DataFrameTransformation: keyed state of a new operator, made of a DataFrame of PySpark.

Each task of Spark writes the file of its key groups, and the calling process only `_metadata`. Owner: the calling
thread; nothing runs before `SavepointWriter.write`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.batch.spark.requirements import check_packages
from yarrow.datastream.program.arrow_schemas import type_of_values
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.state import StateDescriptor
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.functions import KeyedStateBootstrapFunction
from yarrow.state_processor.keyed_tables import ACCESS_TIME, KEY, VALUE
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.spark.bucketing import SLICES_DDL, slices
from yarrow.state_processor.spark.column_fit import check_key_column, check_value_column
from yarrow.state_processor.spark.function_writing import FunctionRows
from yarrow.state_processor.spark.key_buckets import KeyBuckets
from yarrow.state_processor.spark.keyed_columns import KeyedColumns, KeyedRows
from yarrow.state_processor.spark.partition_writing import RESULT_DDL, PartitionWriting, state_of_results
from yarrow.state_processor.spark.spark_failures import told_in_short
from yarrow.state_processor.spark.spark_session import check_python, tasks_at_a_time
from yarrow.state_processor.spark.spark_types import arrow_schema
from yarrow.state_processor.transformations import NewOperator, StateBootstrapTransformation

_SLICE_ORDER: Final = ("bucket", "source", "sequence")


class DataFrameTransformation:
    """The beginning of transformations of a DataFrame."""

    @staticmethod
    def bootstrap_with(dataframe: DataFrame) -> DataFrameRows:
        """Begin state made of a DataFrame, which is computed by `SavepointWriter.write`.

        Raises SparkRequirementError, and StateProcessorError for a session whose tasks run another Python.
        """
        if not isinstance(dataframe, DataFrame):
            raise TypeError(
                f"bootstrap_with takes a DataFrame of PySpark, not {type(dataframe).__name__}. For a table of pyarrow"
                " call OperatorTransformation.bootstrap_with"
            )
        check_packages()
        check_python(dataframe.sparkSession)
        return DataFrameRows(dataframe)


@dataclass(frozen=True, slots=True)
class DataFrameRows:
    """A DataFrame, and the ways to make state of it."""

    dataframe: DataFrame

    def key_by(self, key: str, key_type: TypeInformation | None = None) -> KeyedDataFrame:
        """Make keyed state, by a column. `key_type` is what the job declares; without it, that of the column counts."""
        return KeyedDataFrame(self.dataframe, key, key_type)


@dataclass(frozen=True, slots=True)
class KeyedDataFrame:
    """A DataFrame with keys."""

    dataframe: DataFrame
    key: str
    key_type: TypeInformation | None

    def to_state(
        self,
        descriptor: StateDescriptor,
        value: str = "value",
        access_time: str | None = None,
        *,
        partitions: int | None = None,
        native: bool = False,
    ) -> StateBootstrapTransformation:
        """Make one state by its descriptor, from a column. The columns are those of read_keyed_state.

        `partitions`: tasks that write, each a file; without it as many as Spark runs at a time. Restores are fastest
        where a job has as many subtasks. `native`: as a database, which only jobs on RocksDB restore, at once where
        its subtask has no other state. Raises StateProcessorError for columns that are missing or do not fit.
        """
        target = KeyedTarget.of(descriptor)
        names = {KEY: self.key, VALUE: value}
        if access_time is not None and target.ttl:
            names[ACCESS_TIME] = access_time
        what = f"state '{target.name}'"
        selected = _selected(self.dataframe, names, what)
        schema = arrow_schema(selected.schema)
        kinds = dict(zip(schema.names, schema.types, strict=True))
        check_key_column(kinds[KEY], declared(self.key_type), f"{what}, key '{self.key}'")
        check_value_column(kinds[VALUE], target, f"{what}, column '{value}'")
        key_type = declared(self.key_type) or type_of_values(kinds[KEY])
        checked = _checked_partitions(partitions, what)
        return _KeyedColumnState(selected, schema, target, key_type, checked, native)

    def transform(
        self, function: KeyedStateBootstrapFunction[Any, Any], *, partitions: int | None = None
    ) -> StateBootstrapTransformation:
        """Keyed state and timers, by a function that the operator of a job runs, in each task for its key groups.

        It sees the rows of a key in the order of the DataFrame. `partitions` as in `to_state`.
        Raises StateProcessorError for a missing column of keys, and one that cannot be keys.
        """
        what = f"key '{self.key}'"
        _selected(self.dataframe, {KEY: self.key}, what)
        schema = arrow_schema(self.dataframe.schema)
        if self.key not in schema.names:
            raise StateProcessorError(f"{what}: is a part of a column; select it as a column of its own")
        kind = schema.field(self.key).type
        check_key_column(kind, declared(self.key_type), what)
        key_type = declared(self.key_type) or type_of_values(kind)
        checked = _checked_partitions(partitions, what)
        return _KeyedFunctionState(self.dataframe, schema, self.key, key_type, function, checked)


def _checked_partitions(partitions: int | None, what: str) -> int | None:
    if partitions is not None and partitions < 1:
        raise StateProcessorError(f"{what}: expected at least one partition, not {partitions}")
    return partitions


def _check_names(dataframe: DataFrame, names: dict[str, str], what: str) -> None:
    """Refuse names that cannot be columns before Spark does, which writes Java's trace to the standard error."""
    columns = {column.lower() for column in dataframe.columns}
    for role, name in names.items():
        if not isinstance(name, str):
            raise StateProcessorError(
                f"{what}: the {role} is named by the text of one column, not by {name!r}. Join several columns to one"
                " with pyspark.sql.functions.struct"
            )
        # Others are parts of columns, or quoted.
        if name.lower() not in columns and not {".", "`"} & set(name):
            raise StateProcessorError(
                f"{what}: the DataFrame has no column '{name}', only {dataframe.columns}"
            )


def _selected(dataframe: DataFrame, names: dict[str, str], what: str) -> DataFrame:
    _check_names(dataframe, names, what)
    try:
        selected = dataframe.select(*[F.col(name).alias(alias) for alias, name in names.items()])
        selected.schema  # noqa: B018 - where a column is missing, Spark says so here
    except AnalysisException as error:
        missing = next((name for name in names.values() if name not in dataframe.columns), "")
        problem = f"no column '{missing}'" if missing else f"no such columns ({told_in_short(error)})"
        raise StateProcessorError(f"{what}: the DataFrame has {problem}, only {dataframe.columns}") from None
    return selected


@dataclass(frozen=True, slots=True)
class _KeyedColumnState(StateBootstrapTransformation):
    """One state of the columns `key`, `value` and perhaps `access_time`."""

    dataframe: DataFrame
    schema: pa.Schema
    target: KeyedTarget
    key_type: TypeInformation | None
    partitions: int | None
    native: bool

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        partitions = self.partitions or tasks_at_a_time(self.dataframe.sparkSession)
        columns = KeyedColumns(
            operator=operator.name,
            target=self.target,
            key_type=self.key_type,
            schema=self.schema,
            buckets=KeyBuckets.of(operator.max_parallelism, partitions),
            native=self.native,
            configuration=dict(operator.configuration),
        )
        return _written(self.dataframe, columns, operator)


@dataclass(frozen=True, slots=True)
class _KeyedFunctionState(StateBootstrapTransformation):
    """All states and timers that a function makes of the rows."""

    dataframe: DataFrame
    schema: pa.Schema
    key: str
    key_type: TypeInformation | None
    function: KeyedStateBootstrapFunction[Any, Any]
    partitions: int | None

    def write(self, operator: NewOperator) -> OperatorSubtaskState:
        partitions = self.partitions or tasks_at_a_time(self.dataframe.sparkSession)
        rows = FunctionRows(
            operator=operator.name,
            key=self.key,
            key_type=self.key_type,
            schema=self.schema,
            buckets=KeyBuckets.of(operator.max_parallelism, partitions),
            configuration=dict(operator.configuration),
            function=self.function,
            operator_id=operator.operator_id,
            job_id=operator.job_id,
        )
        return _written(self.dataframe, rows, operator)


def _written(
    dataframe: DataFrame, rows: KeyedColumns | FunctionRows, operator: NewOperator
) -> OperatorSubtaskState:
    """The state that the tasks write. Raises StateProcessorError."""
    try:
        results = _results(dataframe, PartitionWriting(rows, operator.foreign_files())).collect()
    except Exception as error:
        # Without its cause: the first thing that a user reads would be a trace of Java.
        raise StateProcessorError(f"{rows.what}: not written: {told_in_short(error)}") from None
    return state_of_results((*result,) for result in results)


@dataclass(frozen=True, slots=True)
class _Slicing:
    """The task before the shuffle, for mapInArrow."""

    rows: KeyedRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The slices of one partition of the DataFrame."""
        context = TaskContext.get()
        return slices(batches, self.rows, 0 if context is None else context.partitionId())


def _results(dataframe: DataFrame, writing: PartitionWriting) -> DataFrame:
    """One row for each partition that was written."""
    cut_up = dataframe.mapInArrow(_Slicing(writing.rows), SLICES_DDL)
    ordered = cut_up.repartitionById(writing.rows.buckets.partitions, F.col("partition"))
    return ordered.sortWithinPartitions(*_SLICE_ORDER).mapInArrow(writing, RESULT_DDL)
