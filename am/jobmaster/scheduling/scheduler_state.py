"""SchedulerSnapshot: the whole state on which a JobScheduler's next decisions depend, as plain values.

Owner: none (frozen values). Each part of the scheduler makes and restores its own snapshot. A stored snapshot
of a JobGraph (`without_programs`) holds only what decisions read: neither user code nor configuration.
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.execution_graph import ExecutionGraphSnapshot
from yarrow.am.jobmaster.scheduling.deployment_queue import DeploymentQueueSnapshot
from yarrow.am.jobmaster.scheduling.pending_rescale import PendingRescaleSnapshot
from yarrow.am.jobmaster.scheduling.regions import Subtask
from yarrow.am.jobmaster.scheduling.restart_strategies import AnyRestartBackoffSnapshot
from yarrow.am.jobmaster.scheduling.restarts import RestartsSnapshot
from yarrow.am.jobmaster.scheduling.settings import FailoverScope
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPoolSnapshot
from yarrow.runtime.graph.connector_spec import PrintOperator, SourceFunctionOperator, SourceOperator
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, UserCode
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerSpec


class SchedulerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a JobScheduler between two events."""

    job: JobGraph
    graph: ExecutionGraphSnapshot
    pool: SlotPoolSnapshot
    queue: DeploymentQueueSnapshot
    restarts: RestartsSnapshot
    rescale: PendingRescaleSnapshot
    backoff: AnyRestartBackoffSnapshot
    scope: FailoverScope
    #: Finished producers whose results are gone.
    lost_results: tuple[Subtask, ...]
    #: Subtasks that hold their slots, since they run or will run.
    holding: tuple[Subtask, ...]
    #: Subtasks whose results hold their slots.
    holding_results: tuple[Subtask, ...]
    #: From the last CheckpointsChanged and ClientAwaited.
    checkpoints_in_doubt: bool
    ends_with_savepoint: bool
    is_ending: bool
    awaits_first: bool = False


def without_programs(job: JobGraph) -> JobGraph:
    """The job with only the parts that decisions read: vertices, edges and the kinds of sources."""
    return JobGraph(
        job_id=job.job_id,
        name=job.name,
        vertices=tuple(map(_bare_vertex, job.vertices)),
        edges=tuple(map(_bare_edge, job.edges)),
        user_code=UserCode(),
    )


def _bare_vertex(vertex: JobVertex) -> JobVertex:
    head = vertex.operators[0]
    bare = msgspec.structs.replace(
        head,
        spec=_bare_spec(head.spec),
        uid=None,
        description=None,
        input_types=(),
        output_type=None,
        state_key_type=None,
        state_key_columns=(),
    )
    return msgspec.structs.replace(vertex, operators=(bare,), chained_edges=())


def _bare_spec(spec: OperatorSpec) -> OperatorSpec:
    """An operator spec of the engine that is equal as far as decisions read it."""
    if spec.has_enumerator:
        return SourceOperator(source=b"")
    return SourceFunctionOperator(function=b"") if spec.is_source else PrintOperator()


def _bare_edge(edge: JobEdge) -> JobEdge:
    partitioner = PartitionerSpec(kind=edge.partitioner.kind)
    return msgspec.structs.replace(edge, partitioner=partitioner, type_spec=None, side_output=None)
