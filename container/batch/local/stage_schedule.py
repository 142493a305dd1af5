"""StageSchedule: which tasks of a plan can run now. Pure.

Owner: the driver's loop. A task needs the outputs of all tasks of the stages that its stage reads. Of a forward
exchange it needs one. The tasks that stand first in the plan come first.
"""

from __future__ import annotations

from typing import NamedTuple

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage, ExchangeKind


class StageTask(NamedTuple):
    """A task of a plan."""

    #: Position in `BatchPlan.stages`.
    stage: int
    subtask: int


class StageSchedule:
    """The tasks of one run."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._positions: dict[JobVertexID, int] = {
            stage.vertex_id: position for position, stage in enumerate(plan.stages)
        }
        self._waiting = [
            StageTask(position, subtask)
            for position, stage in enumerate(plan.stages)
            for subtask in range(stage.parallelism)
        ]
        self._finished: set[StageTask] = set()

    @property
    def finished(self) -> list[StageTask]:
        """The tasks that have finished, in order."""
        return sorted(self._finished)

    def next_task(self) -> StageTask | None:
        """The next task that can run, which counts as running from now on; None = none can before another finishes."""
        for at, task in enumerate(self._waiting):
            if self._finished.issuperset(self.inputs_of(task)):
                return self._waiting.pop(at)
        return None

    def has_finished(self, task: StageTask) -> None:
        """Notes that a task has finished."""
        self._finished.add(task)

    def inputs_of(self, task: StageTask) -> list[StageTask]:
        """The tasks whose outputs a task reads, in order, each once."""
        stage = self._plan.stages[task.stage]
        return sorted(
            {
                StageTask(self._positions[exchange.source], subtask)
                for exchange in stage.inputs
                for subtask in self._producers(exchange.source, exchange.kind, task.subtask)
            }
        )

    def _producers(self, source: JobVertexID, kind: ExchangeKind, subtask: int) -> range:
        producer: BatchStage = self._plan.stages[self._positions[source]]
        if kind is ExchangeKind.FORWARD:
            return range(subtask, subtask + 1)
        return range(producer.parallelism)
