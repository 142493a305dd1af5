"""Details, overview and result of a job, made from its ExecutionGraph.

Owner: the JobMaster's loop. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph, ExecutionJobVertex
from yarrow.common.job_status import JobStatus
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.graph.translation.plan import stream_graph_of_job
from yarrow.runtime.rpc.messages import (
    AttemptDetails,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    VertexDetails,
)

_ENDS = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)


def job_details(
    graph: ExecutionGraph, waiting_for: str = "", checkpoint_metrics: Mapping[str, float] | None = None
) -> ExecutionGraphDetails:
    """The job's details for REST."""
    return ExecutionGraphDetails(
        job_id=graph.job.job_id,
        name=graph.job.name,
        status=graph.status,
        job_type=graph.job.job_type,
        timestamps={status.value: stamp for status, stamp in graph.machine.timestamps.items()},
        end_time=_end_time(graph),
        max_parallelism=max((vertex.max_parallelism for vertex in graph.job.vertices), default=-1),
        plan=graph.job.plan,
        configuration=graph.job.configuration,
        vertices=tuple(_vertex(vertex) for vertex in graph.vertices.values()),
        exceptions=tuple(graph.exceptions),
        accumulators=graph.accumulators(),
        waiting_for=waiting_for,
        checkpoint_metrics=dict(checkpoint_metrics or {}),
        restarts=graph.restarts,
        restarting_ms=graph.restarting_ms,
        stream_graph=stream_graph_of_job(graph.job),
    )


def job_overview(graph: ExecutionGraph) -> JobOverview:
    """The job's line in a list."""
    tasks = {state.value.lower(): 0 for state in ExecutionState}
    for vertex in graph.vertices.values():
        for state, count in vertex.counts.items():
            tasks[state.value.lower()] += count
    return JobOverview(
        job_id=graph.job.job_id,
        name=graph.job.name,
        status=graph.status,
        start_time=_start_time(graph),
        end_time=_end_time(graph),
        last_modification=graph.last_modification,
        job_type=graph.job.job_type,
        tasks={"total": sum(tasks.values()), **tasks},
    )


def job_result(graph: ExecutionGraph) -> JobResult:
    """The final result of the job; call it only when the job has ended."""
    return JobResult(
        job_id=graph.job.job_id,
        name=graph.job.name,
        status=graph.status,
        net_runtime_ms=max(0, _end_time(graph) - _start_time(graph)),
        start_time=_start_time(graph),
        end_time=_end_time(graph),
        accumulators=graph.accumulators(),
        cause=graph.failure,
        cancellation=graph.cancellation,
    )


def _start_time(graph: ExecutionGraph) -> int:
    return graph.machine.timestamps[JobStatus.INITIALIZING]


def _end_time(graph: ExecutionGraph) -> int:
    """Epoch ms, -1 while the job has not ended."""
    return graph.machine.timestamps[graph.status] if graph.status in _ENDS else -1


def _vertex(vertex: ExecutionJobVertex) -> VertexDetails:
    spec = vertex.vertex
    return VertexDetails(
        vertex_id=spec.id,
        name=spec.name,
        parallelism=spec.parallelism,
        max_parallelism=spec.max_parallelism,
        slot_sharing_group=spec.slot_sharing_group,
        operators=tuple((operator.id, operator.name) for operator in spec.operators),
        subtasks=tuple(_attempt(execution) for execution in vertex.executions),
        former_attempts=tuple(_attempt(execution) for execution in vertex.former),
    )


def _attempt(execution: Execution) -> AttemptDetails:
    worker = execution.worker
    return AttemptDetails(
        attempt_id=execution.attempt_id,
        subtask=execution.subtask,
        attempt_number=execution.attempt_number,
        state=execution.state,
        timestamps={state.value: stamp for state, stamp in execution.machine.timestamps.items()},
        host=worker.host if worker is not None else "",
        endpoint=f"{worker.host}:{worker.port}" if worker is not None else "",
        resource_id=worker.resource_id if worker is not None else "",
        metrics=execution.metrics,
        accumulators=execution.accumulators,
        late_records=execution.late_records,
    )
