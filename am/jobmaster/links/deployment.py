"""Building of Deployments: one message for each TaskExecutor, with graph and placements once instead of once a task.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.execution.restore import RestorePlan, TaskRestore
from yarrow.runtime.common.ids import JobMasterID, ResourceID, WorkerID
from yarrow.runtime.rpc.messages import (
    NOT_PLACED,
    Deployment,
    TaskDeploymentDescriptor,
    VertexPlacement,
    WorkerAddress,
)

_NOTHING = RestorePlan()
_ANEW = TaskRestore()


class EncodedGraph(msgspec.Struct, frozen=True):
    """The job's graph as it is sent: inline, or by blob key when it is large."""

    data: bytes
    blob_key: str = ""


def placements(graph: ExecutionGraph) -> tuple[tuple[WorkerAddress, ...], tuple[VertexPlacement, ...]]:
    """All workers of the job, and the worker of each subtask.

    Vertices without any placed subtask are left out.
    """
    workers: list[WorkerAddress] = []
    index: dict[WorkerID, int] = {}
    found = []
    for vertex_id, vertex in graph.vertices.items():
        indexes = []
        for execution in vertex.executions:
            worker = execution.worker
            if worker is None:
                indexes.append(NOT_PLACED)
                continue
            position = index.get(worker.worker_id)
            if position is None:
                position = index[worker.worker_id] = len(workers)
                workers.append(worker)
            indexes.append(position)
        if any(index != NOT_PLACED for index in indexes):
            placement = VertexPlacement(
                vertex_id=vertex_id,
                graph_id=graph.graph_id,
                workers=tuple(indexes),
                attempts=tuple(execution.attempt_number for execution in vertex.executions),
            )
            found.append(placement)
    return tuple(workers), tuple(found)


def build_deployments(
    graph: ExecutionGraph,
    job_master_id: JobMasterID,
    encoded: EncodedGraph,
    executions: Iterable[Execution],
    restore: RestorePlan = _NOTHING,
) -> dict[ResourceID, Deployment]:
    """The deployment for each TaskExecutor. Every execution must have its worker and allocation."""
    tasks: dict[ResourceID, list[TaskDeploymentDescriptor]] = {}
    for execution in executions:
        assert execution.worker is not None and execution.allocation_id is not None
        task = restore.tasks.get(execution.attempt_id, _ANEW)
        descriptor = TaskDeploymentDescriptor(
            attempt_id=execution.attempt_id,
            vertex_id=execution.vertex.id,
            subtask=execution.subtask,
            attempt_number=execution.attempt_number,
            allocation_id=execution.allocation_id,
            restore=dict(task.states),
            restore_coordinator=None if execution.enumerator_goes_on else task.coordinator,
            restored_checkpoint_id=restore.checkpoint_id,
            restore_directory=restore.directory,
            restore_trusted=restore.trusted,
            latest_savepoint_id=restore.latest_savepoint_id,
            finished_before=task.finished_before,
            enumerator_goes_on=execution.enumerator_goes_on,
        )
        tasks.setdefault(execution.worker.resource_id, []).append(descriptor)
    workers, placed = placements(graph)
    return {
        resource_id: Deployment(
            job_id=graph.job.job_id,
            job_master_id=job_master_id,
            job_graph=encoded.data,
            job_graph_blob_key=encoded.blob_key,
            workers=workers,
            placements=placed,
            tasks=tuple(descriptors),
        )
        for resource_id, descriptors in tasks.items()
    }
