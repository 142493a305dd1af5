"""SparkStageOperator: a stage of a pipeline as the only operator of its vertex.

Owner: none (frozen values). The vertices of a pipeline all have this operator; edges say which stage waits for which.
"""

from __future__ import annotations

from yarrow.common.pipelines.stage import Stage
from yarrow.runtime.graph.operator_spec import OperatorSpec


class SparkStageOperator(OperatorSpec, frozen=True, kw_only=True, tag="spark_stage"):
    """A function of the SparkSession, which runs in the SparkDriver."""

    stage: Stage

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def spark_stage(self) -> Stage:
        return self.stage
