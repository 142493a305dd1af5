"""The plan as DataFrames: one mapInArrow for each stage, one exchange for each shuffle, one action for all of it.

Owner: the thread of a run. Must not read what the rows hold, and starts nothing by itself: `execute` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from yarrow.container.batch.spark.driver_address import DriverAddress
from yarrow.container.batch.spark.sql_frames import aggregated, sql_settings
from yarrow.container.batch.spark.stage_function import ResultsFunction, SqlStageFunction, StageFunction
from yarrow.container.batch.spark.stage_rows import MARKER, ROW_DDL, result_carrier
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch_plan import BatchExchange, BatchPlan, BatchStage, ExchangeKind
from yarrow.runtime.graph.batch_sql import sql_stages


class StageFrames:
    """The DataFrames of one run."""

    def __init__(
        self,
        session: SparkSession,
        plan: BatchPlan,
        driver: DriverAddress,
        run: int,
        scans: Mapping[JobVertexID, Sequence[str]],
    ) -> None:
        """`driver` is that of the run, for its tasks; `scans` are the files of each stage that Spark SQL reads."""
        self._session = session
        self._plan = plan
        self._driver = driver
        self._run = run
        self._scans = scans
        self._frames: dict[JobVertexID, DataFrame] = {}
        #: Stages that several others read: they are kept, so that each task runs once.
        self._kept: list[DataFrame] = []

    def execute(self) -> int:
        """Runs the plan as one Spark job; returns the number of results. Raises what PySpark raises."""
        with sql_settings(self._session, sql_stages(self._plan)):
            return self._execute()

    def _execute(self) -> int:
        for position, stage in enumerate(self._plan.stages):
            self._frames[stage.vertex_id] = self._frame(position, stage)
        ends = [self._frames[stage.vertex_id] for stage in self._plan.stages if not stage.outputs]
        results = reduce(DataFrame.unionAll, ends).repartitionById(1, F.lit(0))
        ordered = results.sortWithinPartitions("stage", "producer", "sequence")
        sent = ordered.mapInArrow(ResultsFunction(self._driver, self._run), "results bigint")
        return sum(row["results"] for row in sent.collect())

    def release(self) -> None:
        """Drops what was kept."""
        for frame in self._kept:
            frame.unpersist()

    def _frame(self, position: int, stage: BatchStage) -> DataFrame:
        if stage.sql is not None:
            computed = aggregated(self._session, stage.sql, self._scans[stage.vertex_id])
            return computed.mapInArrow(SqlStageFunction(self._driver, position), ROW_DDL)
        function = StageFunction(self._driver, position)
        rows = self._input(stage).mapInArrow(function, ROW_DDL)
        if len({exchange.target for exchange in stage.outputs}) > 1:
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
            self._kept.append(rows)
        return rows

    def _input(self, stage: BatchStage) -> DataFrame:
        """The rows that a stage reads, in its partitions."""
        if stage.is_source:
            return self._session.range(0, stage.parallelism, 1, stage.parallelism)
        producers = list(dict.fromkeys(exchange.source for exchange in stage.inputs))
        if len(producers) == 1 and all(each.kind is ExchangeKind.FORWARD for each in stage.inputs):
            return self._rows_for(producers[0], stage)
        rows = reduce(DataFrame.unionAll, [self._rows_for(producer, stage) for producer in producers])
        return rows.repartitionById(stage.parallelism, F.col("partition"))

    def _rows_for(self, producer: JobVertexID, stage: BatchStage) -> DataFrame:
        """A stage's rows for one of its consumers, which takes its results too if they travel with it."""
        source = self._plan.stage(producer)
        rows = self._frames[producer]
        if all(exchange.target == stage.vertex_id for exchange in source.outputs):
            return rows
        edges = [exchange.edge for exchange in source.outputs if exchange.target == stage.vertex_id]
        wanted = F.col("edge").isin(edges + [MARKER - edge for edge in edges])
        if _carries(result_carrier(source), stage):
            wanted = wanted | ((F.col("edge") < 0) & (F.col("edge") > MARKER))
        return rows.where(wanted)


def _carries(carrier: BatchExchange | None, stage: BatchStage) -> bool:
    return carrier is not None and carrier.target == stage.vertex_id
