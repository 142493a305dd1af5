"""StageExecutions: carries what a SparkDriver tells of stages into the executions that REST shows.

Owner: the BatchJobMaster's loop. Pure. A subtask that Spark may still repeat runs on; it ends
when its result is reported, or with its stage.
"""

from __future__ import annotations

from collections.abc import Iterable

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    BatchStageProgress,
    BatchSubtaskProgress,
    BatchSubtaskResult,
    FailureCause,
)


class StageExecutions:
    """The executions of one bounded job."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph

    def scheduled(self) -> None:
        """Notes that a SparkDriver is asked for."""
        for execution in self._graph.executions():
            execution.machine.transition(ExecutionState.SCHEDULED)

    def progressed(self, stages: Iterable[BatchStageProgress]) -> None:
        """Takes in the state of stages. Failures of single attempts, which Spark repeats, change nothing."""
        for stage in stages:
            vertex = self._graph.vertices.get(stage.vertex_id)
            if vertex is None:
                continue
            for told in stage.subtasks:
                self._told(self._graph.subtask(stage.vertex_id, told.subtask), told)
            if stage.state is ExecutionState.FINISHED:
                for execution in vertex.executions:
                    _begin(execution)
                    _finish(execution)

    def _told(self, execution: Execution | None, told: BatchSubtaskProgress) -> None:
        if execution is None or execution.state.is_terminal:
            return
        _begin(execution)
        counts = {"numRecordsIn": float(told.records_in), "numRecordsOut": float(told.records_out)}
        execution.metrics = {**execution.metrics, **counts}

    def succeeded(self, subtasks: Iterable[BatchSubtaskResult]) -> None:
        """Takes in the results of subtasks. A result that comes twice counts once."""
        for result in subtasks:
            execution = self._graph.subtask(result.vertex_id, result.subtask)
            # The end of its stage may have been told before its result.
            if execution is None or execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
                continue
            execution.accumulators = result.accumulators
            execution.metrics = {**execution.metrics, **result.metrics}
            _begin(execution)
            _finish(execution)

    def finished(self) -> None:
        """Notes that the whole plan has been executed."""
        for execution in self._graph.executions():
            _begin(execution)
            _finish(execution)

    def failed_by(self, cause: FailureCause) -> Execution | None:
        """A running execution of the operator that the cause names; None if it names none."""
        for vertex in self._graph.vertices.values():
            if any(operator.name == cause.operator_name for operator in vertex.vertex.operators):
                return next((each for each in vertex.executions if not each.state.is_terminal), None)
        return None

    def fail(self, cause: FailureCause) -> None:
        """Ends all executions: the one that the cause names has failed, the others are cancelled."""
        failed = self.failed_by(cause)
        if failed is not None:
            failed.cause = cause
            failed.machine.transition(ExecutionState.FAILED)
        self.cancel()

    def lost(self) -> None:
        """Ends what the lost SparkDriver had to do: all executions that have not ended."""
        self.cancel()

    def cancel(self) -> None:
        """Ends all executions that have not ended."""
        for execution in self._graph.executions():
            if not execution.state.is_terminal:
                execution.machine.transition(ExecutionState.CANCELED)

    def restart(self) -> None:
        """Begins a new attempt of each subtask."""
        for execution in list(self._graph.executions()):
            self._graph.next_attempt(execution)


def _begin(execution: Execution) -> None:
    for state in (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING):
        if execution.machine.can(state):
            execution.machine.transition(state)


def _finish(execution: Execution) -> None:
    if not execution.state.is_terminal:
        execution.machine.transition(ExecutionState.FINISHED)
