"""TaskDeployments: starts the tasks of a job.

A task gets its deployment, the state to restore, and the events that waited for it.

Owner: the JobMaster's loop. Must not decide which tasks start, nor where (job_scheduler.py).
"""

from __future__ import annotations

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.links.deployment import build_deployments
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.am.jobmaster.registered_task_executors import RegisteredTaskExecutors
from yarrow.am.jobmaster.scheduling.scheduler_actions import ResetReaderAction
from yarrow.runtime.common.ids import JobMasterID


class TaskDeployments:
    """Deploys the tasks of one job."""

    def __init__(
        self,
        leader_id: JobMasterID,
        graph: ExecutionGraph,
        encoded: EncodedGraphs,
        task_executors: RegisteredTaskExecutors,
        checkpoints: CheckpointLink,
        events: OperatorEvents,
    ) -> None:
        self._leader_id = leader_id
        self._graph = graph
        self._encoded = encoded
        self._task_executors = task_executors
        self._checkpoints = checkpoints
        self._events = events

    def deploy(self, executions: tuple[Execution, ...]) -> None:
        """Starts these executions on their workers, from the latest checkpoint."""
        restore = self._checkpoints.restore_for(executions)
        deployments = build_deployments(
            self._graph, self._leader_id, self._encoded.present, executions, restore
        )
        for resource_id, deployment in deployments.items():
            self._task_executors.links[resource_id].submit(deployment)
        self._events.deployed(executions)

    def reset_reader(self, action: ResetReaderAction) -> None:
        """Tells the enumerator of a source, which runs on, to take back the splits of a reader that restarts."""
        self._events.reset_reader(action, self._checkpoints.checkpoint_id)
