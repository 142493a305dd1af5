"""CheckpointMessages: the checkpoint messages to TaskExecutors.

Owner: the JobMaster's loop. Messages queue behind everything else that was decided for a TaskExecutor. Must
not decide who takes part: the CheckpointCoordinator names tasks and enumerators. This module finds the
TaskExecutors on which they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from yarrow.am.checkpoint.events import Notify, TriggerCoordinators, TriggerTasks
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.links.task_executor_link import OnTriggerFailed
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID, ResourceID
from yarrow.runtime.rpc.messages import CheckpointNotice, NotifyCheckpoint, TriggerCheckpoint


class CheckpointReceiver(Protocol):
    """A TaskExecutor as a receiver of checkpoint messages."""

    def trigger_checkpoint(self, trigger: TriggerCheckpoint, on_failed: OnTriggerFailed) -> None:
        """Tells tasks to begin a checkpoint. `on_failed` is called if the message did not arrive."""
        ...

    def notify_checkpoint(self, notification: NotifyCheckpoint) -> None:
        """Tells whether a checkpoint was completed or aborted."""
        ...


class CheckpointMessages:
    """Sends the checkpoint messages of one job."""

    def __init__(
        self,
        graph: ExecutionGraph,
        links: Mapping[ResourceID, CheckpointReceiver],
        on_trigger_failed: OnTriggerFailed,
    ) -> None:
        """`links`: TaskExecutors of the job; the mapping is always current."""
        self._graph = graph
        self._links = links
        self._on_trigger_failed = on_trigger_failed

    def trigger_coordinators(self, action: TriggerCoordinators) -> None:
        """Asks split enumerators for their states. An enumerator lives beside subtask 0 of its source."""
        at: dict[ResourceID, list[OperatorID]] = {}
        for vertex in self._graph.job.vertices:
            if not vertex.has_enumerator or vertex.head.id not in action.coordinators:
                continue
            execution = self._graph.subtask(vertex.id, 0)
            if execution is not None and execution.worker is not None:
                at.setdefault(execution.worker.resource_id, []).append(vertex.head.id)
        for resource_id, operators in at.items():
            self._send(resource_id, action, coordinators=tuple(operators))

    def trigger_tasks(self, action: TriggerTasks) -> None:
        """Tells tasks to send barriers."""
        at: dict[ResourceID, list[ExecutionAttemptID]] = {}
        for attempt_id in action.attempts:
            execution = self._graph.execution(attempt_id)
            if execution is not None and execution.worker is not None:
                at.setdefault(execution.worker.resource_id, []).append(attempt_id)
        for resource_id, there in at.items():
            self._send(resource_id, action, attempts=tuple(there))

    def _send(
        self,
        resource_id: ResourceID,
        action: TriggerCoordinators | TriggerTasks,
        attempts: tuple[ExecutionAttemptID, ...] = (),
        coordinators: tuple[OperatorID, ...] = (),
    ) -> None:
        trigger = TriggerCheckpoint(
            job_id=self._graph.job.job_id,
            checkpoint_id=action.checkpoint_id,
            timestamp_ms=action.timestamp_ms,
            options=action.options,
            attempts=attempts,
            coordinators=coordinators,
        )
        link = self._links.get(resource_id)
        if link is not None:
            link.trigger_checkpoint(trigger, self._on_trigger_failed)

    def notify(self, action: Notify) -> None:
        """Tells all workers of the job whether a checkpoint was completed or aborted."""
        if action.notice is CheckpointNotice.COMPLETED:
            fault_points.reach("coordinator.before-notify", checkpoint_id=action.checkpoint_id)
        message = NotifyCheckpoint(
            job_id=self._graph.job.job_id,
            checkpoint_id=action.checkpoint_id,
            notice=action.notice,
            latest_completed=action.latest_completed,
        )
        for link in self._links.values():
            link.notify_checkpoint(message)
