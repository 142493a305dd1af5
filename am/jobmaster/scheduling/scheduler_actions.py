"""Actions of a JobScheduler for its JobMaster: plain values, carried out in order.

Owner: none (frozen values).
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduling.slot_pool import HeldSlot
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobVertexID, OperatorID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause


class DeclareRequirements(msgspec.Struct, frozen=True):
    """Tell the ResourceManager how many slots the job needs in all."""

    slots: int


class SlotsAccepted(msgspec.Struct, frozen=True):
    """Tell the TaskExecutor which of the offered slots the job takes."""

    allocations: tuple[AllocationID, ...]


class Deploy(msgspec.Struct, frozen=True):
    """Start these executions; their workers and allocations are set."""

    executions: tuple[Execution, ...]


class CancelTasksAction(msgspec.Struct, frozen=True):
    """Ask a TaskExecutor to cancel tasks."""

    resource_id: ResourceID
    attempts: tuple[ExecutionAttemptID, ...]


class FreeSlot(msgspec.Struct, frozen=True):
    """Give a slot back to its TaskExecutor; whatever still runs there is killed."""

    slot: HeldSlot
    cause: str


class ArmCancellationTimeout(msgspec.Struct, frozen=True):
    """Arm CancellationTimedOut after task.cancellation.timeout; for a restart, RestartCancellationTimedOut."""

    #: The restart whose tasks are being cancelled; None = the whole job ends.
    restart_id: int | None = None


class ArmRestart(msgspec.Struct, frozen=True):
    """Arm RestartDue with that id, after so many seconds."""

    restart_id: int
    seconds: float


class TasksRestarting(msgspec.Struct, frozen=True):
    """Abort pending checkpoints: these attempts have failed or are being cancelled, and will restart."""

    attempts: frozenset[ExecutionAttemptID]
    #: Least seconds until they start.
    delay: float
    #: None when no failure is the reason.
    cause: FailureCause | None


class ResetReaderAction(msgspec.Struct, frozen=True):
    """Tell a source's enumerator that a reader is about to restart."""

    #: Where the enumerator lives.
    resource_id: ResourceID
    vertex_id: JobVertexID
    operator_id: OperatorID
    subtask: int
    #: The attempt that has ended.
    attempt_id: ExecutionAttemptID


class JobReplaced(msgspec.Struct, frozen=True):
    """Use these parallelisms from now on; comes before any deployment of the job's tasks."""

    job: JobGraph


class RescaleSlotsAnswered(msgspec.Struct, frozen=True):
    """Report the slots of a rescale: all are held or, with a failure, nothing waits for them any more."""

    failure: FailureCause | None


class RescaleEnded(msgspec.Struct, frozen=True):
    """Report a rescale: all tasks run at the new parallelism or, with a failure, the job has gone back."""

    failure: FailureCause | None


class JobEnded(msgspec.Struct, frozen=True):
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
