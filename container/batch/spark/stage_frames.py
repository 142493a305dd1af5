"""The plan as DataFrames: one mapInArrow for each stage, one exchange for each shuffle, one action for all of it.

Each superstep of an iteration is an action of its own.
Owner: the thread of a run. Must not read what the rows hold, and starts nothing by itself: `execute` does.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from yarrow.container.batch.iteration_rounds import Superstep
from yarrow.container.batch.spark.iteration_frames import BodyFrames, IterationFrames
from yarrow.container.batch.spark.sql_frames import aggregated, sql_settings
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.batch.spark.tasks.stage_function import ResultsFunction, SqlStageFunction, StageFunction
from yarrow.container.batch.spark.tasks.stage_rows import MARKER, ROW_DDL, result_carrier
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration
from yarrow.runtime.graph.batch.batch_plan import BatchExchange, BatchPlan, BatchStage, ExchangeKind
from yarrow.runtime.graph.batch.batch_sql import sql_stages


class StageFrames:
    """The DataFrames of one run."""

    def __init__(
        self,
        session: SparkSession,
        plan: BatchPlan,
        driver: DriverAddress,
        run: int,
        scans: Mapping[JobVertexID, Sequence[str]],
        iterations: IterationFrames,
    ) -> None:
        """`driver` is that of the run, for its tasks; `scans` are the files of each stage that Spark SQL reads."""
        self._iterations = iterations
        #: The bodies of iterations.
        self._bodies = {vertex_id: each.id for each in plan.iterations for vertex_id in each.body}
        #: Rows of what an iteration has put out, by the stages that read its result.
        self._iterated: dict[JobVertexID, DataFrame] = {}
        self._session = session
        self._plan = plan
        self._driver = driver
        self._run = run
        self._scans = scans
        self._frames: dict[JobVertexID, DataFrame] = {}
        #: Stages that several others read: they are kept, so that each task runs once.
        self._kept: list[DataFrame] = []

    def execute(self) -> int:
        """Runs the plan as one Spark job, and one for each superstep; returns the number of results.

        Raises what PySpark raises.
        """
        with sql_settings(self._session, sql_stages(self._plan)):
            return self._execute()

    def _execute(self) -> int:
        for step in self._plan.steps():
            if isinstance(step, BatchIteration):
                self._iterated |= self._iterations.execute(step, partial(self._body, step))
            else:
                self._frames[step.vertex_id] = self._frame(step, self._frames, self._kept, self._iterated)
        results = reduce(DataFrame.unionAll, self._ends()).repartitionById(1, F.lit(0))
        ordered = results.sortWithinPartitions("stage", "producer", "sequence")
        sent = ordered.mapInArrow(ResultsFunction(self._driver, self._run), "results bigint")
        return sum(row["results"] for row in sent.collect())

    def _ends(self) -> Iterator[DataFrame]:
        """The frames from which results leave the plan: behind it, and before iterations, which they do not enter."""
        for stage in self._plan.stages:
            if stage.vertex_id in self._bodies:
                continue
            carrier = result_carrier(stage)
            if carrier is None:
                yield self._frames[stage.vertex_id]
            elif carrier.target in self._bodies:
                yield self._frames[stage.vertex_id].where((F.col("edge") < 0) & (F.col("edge") > MARKER))

    def release(self) -> None:
        """Drops what was kept."""
        for frame in self._kept:
            frame.unpersist()
        self._iterations.release()

    def _body(
        self, iteration: BatchIteration, superstep: Superstep, fed: Mapping[JobVertexID, DataFrame]
    ) -> BodyFrames:
        """The frames of one superstep."""
        body = BodyFrames()
        frames = ChainMap(body.frames, self._frames)
        for vertex_id in iteration.body:
            stage = self._plan.stage(vertex_id)
            body.frames[vertex_id] = self._frame(stage, frames, body.kept, fed, superstep)
        return body

    def _frame(
        self,
        stage: BatchStage,
        frames: Mapping[JobVertexID, DataFrame],
        kept: list[DataFrame],
        fed: Mapping[JobVertexID, DataFrame],
        superstep: Superstep | None = None,
    ) -> DataFrame:
        """The rows that a stage puts out.

        `frames` are those of its producers; `fed` are the rows of stages that read what an iteration has put out. The
        result is added to `kept` if several read it.
        """
        position = self._plan.stages.index(stage)
        if stage.sql is not None:
            computed = aggregated(self._session, stage.sql, self._scans[stage.vertex_id])
            if stage.is_handed_over:
                # The stage behind it calls the functions of both.
                return computed
            return computed.mapInArrow(SqlStageFunction(self._driver, position), ROW_DDL)
        function = StageFunction(self._driver, position, superstep)
        for exchange in stage.inputs:
            producer = self._plan.stage(exchange.source)
            if producer.is_handed_over:
                function = SqlStageFunction(self._driver, self._plan.stages.index(producer), function)
        given = fed.get(stage.vertex_id)
        taken = self._input(stage, frames) if given is None else given
        rows = taken.mapInArrow(function, ROW_DDL)
        if self._is_read_often(stage):
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
            kept.append(rows)
        return rows

    def _is_read_often(self, stage: BatchStage) -> bool:
        """Whether several stages read a stage, or each superstep of an iteration does."""
        targets = {exchange.target for exchange in stage.outputs}
        own = self._bodies.get(stage.vertex_id)
        enters = own is None and any(target in self._bodies for target in targets)
        return len(targets) > 1 or enters

    def _input(self, stage: BatchStage, frames: Mapping[JobVertexID, DataFrame]) -> DataFrame:
        """The rows that a stage reads, in its partitions."""
        if stage.is_source:
            return self._session.range(0, stage.parallelism, 1, stage.parallelism)
        producers = list(dict.fromkeys(exchange.source for exchange in stage.inputs))
        if len(producers) == 1 and all(each.kind is ExchangeKind.FORWARD for each in stage.inputs):
            return self._rows_for(producers[0], stage, frames)
        rows = reduce(DataFrame.unionAll, [self._rows_for(producer, stage, frames) for producer in producers])
        return rows.repartitionById(stage.parallelism, F.col("partition"))

    def _rows_for(
        self, producer: JobVertexID, stage: BatchStage, frames: Mapping[JobVertexID, DataFrame]
    ) -> DataFrame:
        """A stage's rows for one of its consumers, which takes its results too if they travel with it."""
        source = self._plan.stage(producer)
        rows = frames[producer]
        enters = self._bodies.get(producer) != self._bodies.get(stage.vertex_id)
        if not enters and all(exchange.target == stage.vertex_id for exchange in source.outputs):
            return rows
        edges = [exchange.edge for exchange in source.outputs if exchange.target == stage.vertex_id]
        wanted = F.col("edge").isin(edges + [MARKER - edge for edge in edges])
        if not enters and _carries(result_carrier(source), stage):
            wanted = wanted | ((F.col("edge") < 0) & (F.col("edge") > MARKER))
        return rows.where(wanted)


def _carries(carrier: BatchExchange | None, stage: BatchStage) -> bool:
    return carrier is not None and carrier.target == stage.vertex_id
