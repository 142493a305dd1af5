"""Actions of a JobScheduler for its JobMaster: plain values, carried out in order.

Owner: none (frozen values).
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduling.slot_pool import HeldSlot
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobVertexID, OperatorID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """Tell the ResourceManager how many slots the job needs in all."""

    slots: int


@dataclass(frozen=True, slots=True)
class SlotsAccepted:
    """Tell the TaskExecutor which of the offered slots the job takes."""

    allocations: tuple[AllocationID, ...]


@dataclass(frozen=True, slots=True)
class Deploy:
    """Start these executions; their workers and allocations are set."""

    executions: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class CancelTasksAction:
    """Ask a TaskExecutor to cancel tasks."""

    resource_id: ResourceID
    attempts: tuple[ExecutionAttemptID, ...]


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Give a slot back to its TaskExecutor; whatever still runs there is killed."""

    slot: HeldSlot
    cause: str


@dataclass(frozen=True, slots=True)
class ArmCancellationTimeout:
    """Arm CancellationTimedOut after task.cancellation.timeout; for a restart, RestartCancellationTimedOut."""

    #: The restart whose tasks are being cancelled; None = the whole job ends.
    restart_id: int | None = None


@dataclass(frozen=True, slots=True)
class ArmRestart:
    """Arm RestartDue with that id, after so many seconds."""

    restart_id: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TasksRestarting:
    """Abort pending checkpoints: these attempts have failed or are being cancelled, and will restart."""

    attempts: frozenset[ExecutionAttemptID]
    #: Least seconds until they start.
    delay: float
    #: None when no failure is the reason.
    cause: FailureCause | None


@dataclass(frozen=True, slots=True)
class ResetReaderAction:
    """Tell a source's enumerator that a reader is about to restart."""

    #: Where the enumerator lives.
    resource_id: ResourceID
    vertex_id: JobVertexID
    operator_id: OperatorID
    subtask: int
    #: The attempt that has ended.
    attempt_id: ExecutionAttemptID


@dataclass(frozen=True, slots=True)
class JobReplaced:
    """Use these parallelisms from now on; comes before any deployment of the job's tasks."""

    job: JobGraph


@dataclass(frozen=True, slots=True)
class RescaleSlotsAnswered:
    """Report the slots of a rescale: all are held or, with a failure, nothing waits for them any more."""

    failure: FailureCause | None


@dataclass(frozen=True, slots=True)
class RescaleEnded:
    """Report a rescale: all tasks run at the new parallelism or, with a failure, the job has gone back."""

    failure: FailureCause | None


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Report that the job is FINISHED, CANCELED or FAILED and holds no slot any more."""

    status: JobStatus


SchedulerAction = (
    DeclareRequirements
    | SlotsAccepted
    | Deploy
    | CancelTasksAction
    | FreeSlot
    | ArmCancellationTimeout
    | ArmRestart
    | TasksRestarting
    | ResetReaderAction
    | JobReplaced
    | RescaleSlotsAnswered
    | RescaleEnded
    | JobEnded
)
Actions = list[SchedulerAction]
