"""OperatorEvents: routes events between split enumerators and readers through the JobMaster.

Owner: the JobMaster's loop. An event is sent to its receiver's worker, behind everything else that was
decided for that TaskExecutor. An event for a task that is not deployed yet waits. Must not look into events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.scheduling.scheduler_actions import ResetReaderAction
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import OperatorEvent, ResetSubtask


class EventReceiver(Protocol):
    """A TaskExecutor as a receiver of operator events."""

    def send_event(self, event: OperatorEvent) -> None:
        """Delivers an operator event behind whatever was decided before."""
        ...

    def reset_subtask(self, reset: ResetSubtask) -> None:
        """Tells an enumerator to take back a reader's splits before that reader restarts."""
        ...


class OperatorEvents:
    """Routes the operator events of one job."""

    def __init__(self, graph: ExecutionGraph, links: Mapping[ResourceID, EventReceiver]) -> None:
        """`links`: TaskExecutors of the job; the mapping is always current."""
        self._graph = graph
        self._links = links
        #: Events for executions that are not deployed yet.
        self._early: dict[ExecutionAttemptID, list[OperatorEvent]] = {}

    def send(self, event: OperatorEvent) -> None:
        """Routes an event; drops it if its receiver has ended."""
        execution = self._graph.subtask(event.vertex_id, max(0, event.target_subtask))
        if execution is None:
            return
        to_enumerator = event.target_subtask < 0 and execution.enumerator_lives
        if execution.state in (ExecutionState.CANCELED, ExecutionState.FAILED) and not to_enumerator:
            return
        # A reader that has FINISHED may leave its source's enumerator behind, which still gets its events.
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
            self._early.setdefault(execution.attempt_id, []).append(event)
        else:
            self._route(execution, event)

    def deployed(self, executions: Iterable[Execution]) -> None:
        """Sends the events that waited for these executions, behind their deployment."""
        for execution in executions:
            for event in self._early.pop(execution.attempt_id, ()):
                self._route(execution, event)

    def reset_reader(self, reset: ResetReaderAction, checkpoint_id: int) -> None:
        """Tells an enumerator that runs on that one of its readers restarts from that checkpoint."""
        link = self._links.get(reset.resource_id)
        if link is not None:
            link.reset_subtask(
                ResetSubtask(
                    job_id=self._graph.job.job_id,
                    operator_id=reset.operator_id,
                    subtask=reset.subtask,
                    attempt_id=reset.attempt_id,
                    checkpoint_id=checkpoint_id,
                )
            )

    def _route(self, execution: Execution, event: OperatorEvent) -> None:
        if execution.worker is not None:
            link = self._links.get(execution.worker.resource_id)
            if link is not None:
                link.send_event(event)
