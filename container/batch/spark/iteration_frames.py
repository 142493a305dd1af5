"""IterationFrames: the supersteps of an iteration as Spark jobs, each over the kept rows of the one before.

Owner: the thread of a run. Rows stay in Spark: the driver gets what tasks tell at their end, and nothing else. Each
superstep cuts the lineage of its rows, so that the plan of a later one is no larger. Must not decide when to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final, Protocol

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from yarrow.container.batch.chunk import FINISHED, decode_task_result
from yarrow.container.batch.iteration_rounds import IterationRounds, SubtaskResult, Superstep
from yarrow.container.batch.spark.tasks.stage_rows import MARKER, result_carrier
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration, IterationVariable
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage

#: Supersteps after which Java is asked to let go of the files of shuffles that nobody reads any more.
_CLEANED: Final = 10


class SuperstepListener(Protocol):
    """Hears of supersteps, and may end them."""

    def superstep_begins(self, iteration: BatchIteration, number: int) -> None:
        """Called before each superstep. Raises YarrowError if the run has ended."""
        ...

    def iteration_ended(self, iteration: BatchIteration, results: Iterable[SubtaskResult], why: str) -> None:
        """Takes what the tasks of the body have told over all supersteps."""
        ...


class BodyFrames:
    """The frames of one superstep, by the stages of the body."""

    def __init__(self) -> None:
        self.frames: dict[JobVertexID, DataFrame] = {}
        #: Those that several stages read: they are kept until the superstep has ended.
        self.kept: list[DataFrame] = []

    def release(self) -> None:
        """Drops what was kept."""
        for frame in self.kept:
            frame.unpersist()


#: Makes the frames of a superstep. It gets the rows with which the superstep begins, by the stages that read them; the
#: first superstep reads what is outside.
MakeBody = Callable[[Superstep, Mapping[JobVertexID, DataFrame]], BodyFrames]


class IterationFrames:
    """Executes the iterations of one run."""

    def __init__(
        self, session: SparkSession, plan: BatchPlan, listener: SuperstepListener, *, has_executors: bool
    ) -> None:
        """`has_executors`: kept rows lie in two of them, so that the loss of one loses none."""
        self._session = session
        self._plan = plan
        self._listener = listener
        self._level = StorageLevel.MEMORY_AND_DISK_2 if has_executors else StorageLevel.MEMORY_AND_DISK
        #: Rows of the last superstep of iterations that have ended.
        self._results: list[DataFrame] = []

    def execute(self, iteration: BatchIteration, make: MakeBody) -> dict[JobVertexID, DataFrame]:
        """Executes an iteration to its end; returns its results by the stages that read them.

        Raises what PySpark raises, and OperatorFailure if an aggregator or criterion fails.
        """
        rounds = IterationRounds(iteration)
        ends = self._ends(iteration)
        last: dict[JobVertexID, DataFrame] = {}
        fed: dict[JobVertexID, DataFrame] = {}
        try:
            while not rounds.is_over:
                number = rounds.present.number
                self._listener.superstep_begins(iteration, number)
                body = make(rounds.present, fed)
                kept = {vertex_id: self._cut(body.frames[vertex_id]) for vertex_id in ends}
                try:
                    rounds.finished(self._told(kept.values()))
                finally:
                    body.release()
                    _release(last.values())
                    last = kept
                fed = {each.input: _fed_back(last[each.output], each) for each in iteration.variables}
                if number % _CLEANED == 0:
                    self._clean()
        except BaseException:
            _release(last.values())
            raise
        self._listener.iteration_ended(iteration, rounds.totals, rounds.why)
        self._results += last.values()
        return {
            self._reader_of(each.output_edge): last[each.output].where(_belongs_to(each.output_edge))
            for each in iteration.variables
        }

    def release(self) -> None:
        """Drops the results of iterations."""
        _release(self._results)

    def _ends(self, iteration: BatchIteration) -> list[JobVertexID]:
        """The stages of the body from which rows, or the results of tasks, leave it."""
        outputs = {each.output for each in iteration.variables}
        return [
            vertex_id
            for vertex_id in iteration.body
            if vertex_id in outputs or self._carries_out(self._plan.stage(vertex_id), iteration)
        ]

    def _carries_out(self, stage: BatchStage, iteration: BatchIteration) -> bool:
        carrier = result_carrier(stage)
        return carrier is None or carrier.target not in iteration.body

    def _reader_of(self, edge: int) -> JobVertexID:
        return next(
            exchange.target
            for stage in self._plan.stages
            for exchange in stage.inputs
            if exchange.edge == edge
        )

    def _cut(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame, computed by the next Spark job and kept; nothing of how they came about."""
        return frame.localCheckpoint(eager=False, storageLevel=self._level)

    def _told(self, frames: Iterable[DataFrame]) -> list[SubtaskResult]:
        """Runs the superstep as one Spark job; returns what its tasks have told."""
        parts = [
            frame.where(F.col("edge") == FINISHED).select("stage", "producer", "attempt", "payload")
            for frame in frames
        ]
        return [
            SubtaskResult(
                self._plan.stages[row["stage"]].vertex_id,
                row["producer"],
                row["attempt"],
                decode_task_result(bytes(row["payload"])),
            )
            for row in reduce(DataFrame.unionAll, parts).collect()
        ]

    def _clean(self) -> None:
        """Lets Java find the shuffles that nobody reads any more: Spark then removes their files."""
        java: Any = self._session.sparkContext._jvm
        java.System.gc()


def _belongs_to(edge: int) -> Column:
    """Whether a row belongs to an edge: a chunk, or what names the partition of a task."""
    return (F.col("edge") == edge) | (F.col("edge") == MARKER - edge)


def _fed_back(rows: DataFrame, variable: IterationVariable) -> DataFrame:
    """What an output has put out, as if it came to the input from outside."""
    left, entered = variable.output_edge, variable.input_edges[0]
    edge = F.when(F.col("edge") == left, F.lit(entered)).otherwise(F.lit(MARKER - entered))
    return rows.where(_belongs_to(left)).withColumn("edge", edge)


def _release(frames: Iterable[DataFrame]) -> None:
    """Drops the rows of frames that `_cut` has made."""
    for frame in frames:
        frame._jdf.queryExecution().analyzed().rdd().unpersist(False)
