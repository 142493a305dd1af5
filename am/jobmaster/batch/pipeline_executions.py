"""PipelineExecutions: the executions of a pipeline, one a stage: each begins and ends by itself.

Owner: the BatchJobMaster's loop. Pure. What has finished stays so when a SparkDriver is lost. Must not decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.batch.stage_executions import StageExecutions
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause

_BEGINNING = (
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class PipelineExecutions(StageExecutions):
    """The executions of one pipeline."""

    def __init__(self, graph: ExecutionGraph) -> None:
        super().__init__(graph)
        self._pipeline = graph

    def scheduled(self) -> None:
        """Nothing begins with a SparkDriver: each stage waits for others."""

    def lost(self) -> None:
        """Ends the stages that the lost SparkDriver ran."""
        for execution in self._pipeline.executions():
            if execution.state in _BEGINNING:
                execution.machine.transition(ExecutionState.CANCELED)

    def restart(self) -> None:
        """Begins a new attempt of each stage that has ended without its outputs."""
        for execution in list(self._pipeline.executions()):
            if execution.state in (ExecutionState.CANCELED, ExecutionState.FAILED):
                self._pipeline.next_attempt(execution)

    def started(self, vertex_id: JobVertexID) -> None:
        """Notes that the SparkDriver runs a stage."""
        execution = self._of(vertex_id)
        for state in _BEGINNING:
            if execution.machine.can(state):
                execution.machine.transition(state)

    def stage_finished(self, vertex_id: JobVertexID, metrics: Mapping[str, float]) -> None:
        """Notes that the outputs of a stage are in place."""
        execution = self._of(vertex_id)
        execution.metrics = {**execution.metrics, **metrics}
        execution.machine.transition(ExecutionState.FINISHED)

    def stage_failed(self, vertex_id: JobVertexID, cause: FailureCause) -> None:
        """Notes a failure after which the stage begins again."""
        execution = self._of(vertex_id)
        self._pipeline.record_exception(cause, execution)
        execution.cause = cause
        execution.machine.transition(ExecutionState.FAILED)
        self._pipeline.next_attempt(execution)

    def begin_again(self, vertex_id: JobVertexID) -> None:
        """Notes that a stage runs again, since what it left, or what it reads, is gone."""
        execution = self._of(vertex_id)
        if not execution.state.is_terminal:
            execution.machine.transition(ExecutionState.CANCELED)
        self._pipeline.next_attempt(execution)

    def _of(self, vertex_id: JobVertexID) -> Execution:
        execution = self._pipeline.subtask(vertex_id, 0)
        assert execution is not None, "each stage has one execution"
        return execution
