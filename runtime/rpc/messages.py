"""Arguments and results of the gateways: msgspec structs, no pickle, no live objects.

Owner: none (frozen values). User code appears only as opaque bytes. Everything here crosses process
boundaries, so a changed field is a changed protocol: raise PROTOCOL_VERSION with it.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    ResourceID,
    ResourceManagerID,
    WorkerID,
    execution_attempt_id,
)
from yarrow.runtime.graph.states import ExecutionState, JobStatus
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle
from yarrow.runtime.snapshot.options import CheckpointOptions, SnapshotKind

PROTOCOL_VERSION = 3


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class ResourceProfile(Message, frozen=True, kw_only=True):
    """What a slot offers or a request asks for; -1 = unspecified."""

    cpu_cores: float = -1.0
    memory_bytes: int = -1


class WorkerAddress(Message, frozen=True, kw_only=True):
    """Where a slot's worker accepts data connections."""

    worker_id: WorkerID
    resource_id: ResourceID
    host: str
    #: TCP port (mutual TLS); 0 where the worker is reachable on its host only.
    port: int
    #: Path of the Unix socket, usable by workers of the same `host_key`.
    unix_path: str
    #: Equal for processes that share a kernel (boot id + network namespace).
    host_key: str


class SlotID(Message, frozen=True, kw_only=True):
    """A slot of a TaskExecutor."""

    resource_id: ResourceID
    index: int


class SlotStatus(Message, frozen=True, kw_only=True):
    """One line of a slot report."""

    slot_id: SlotID
    profile: ResourceProfile
    allocation_id: AllocationID | None = None
    job_id: JobID | None = None


class SlotReport(Message, frozen=True, kw_only=True):
    """All slots of a TaskExecutor as it sees them."""

    slots: tuple[SlotStatus, ...]
    #: Grows with each report of one TaskExecutor: an older one that arrives late is ignored.
    sequence: int = 0


class HardwareDescription(Message, frozen=True, kw_only=True):
    """The machine of a TaskExecutor, as REST shows it (bytes)."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int = 0


class TaskExecutorRegistration(Message, frozen=True, kw_only=True):
    """How a TaskExecutor introduces itself to the ResourceManager."""

    resource_id: ResourceID
    address: str
    host: str
    data_port: int
    hardware: HardwareDescription
    process_memory: int
    supervisor_memory: int
    slot_report: SlotReport


class RegistrationSuccess(Message, frozen=True, kw_only=True, tag="success"):
    """Accepted; `leader_id` is the token for all later messages."""

    leader_id: str
    heartbeat_interval_ms: int


class RegistrationRejection(Message, frozen=True, kw_only=True, tag="rejection"):
    """Refused for good; the reason says why."""

    reason: str


class JobMasterRegistration(Message, frozen=True, kw_only=True):
    """How a JobMaster introduces itself to the ResourceManager."""

    job_id: JobID
    job_master_id: JobMasterID
    address: str


class ResourceRequirement(Message, frozen=True, kw_only=True):
    """So many slots of one profile."""

    profile: ResourceProfile
    number_of_slots: int


class ResourceRequirements(Message, frozen=True, kw_only=True):
    """All that a job needs at present; the newest declaration replaces the former."""

    job_id: JobID
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]


class SlotRequest(Message, frozen=True, kw_only=True):
    """ResourceManager -> TaskExecutor: give this slot to that job and offer it to its JobMaster."""

    slot_id: SlotID
    job_id: JobID
    allocation_id: AllocationID
    profile: ResourceProfile
    job_master_address: str
    #: Token with which the TaskExecutor connects to the JobMaster.
    job_master_id: JobMasterID
    resource_manager_id: ResourceManagerID


class SlotOffer(Message, frozen=True, kw_only=True):
    """TaskExecutor -> JobMaster: a slot allocated for its job, with the worker that serves it."""

    allocation_id: AllocationID
    slot_index: int
    profile: ResourceProfile
    worker: WorkerAddress


#: Index of the worker of a subtask that has none yet: its region is deployed later.
NOT_PLACED = -1


class TaskPlacement(Message, frozen=True, kw_only=True):
    """Where one subtask runs: attempt id and index into the plan's `workers`."""

    attempt_id: ExecutionAttemptID
    worker: int


class VertexPlacement(Message, frozen=True, kw_only=True):
    """Placements of all subtasks of a vertex, by subtask index.

    On the wire as two rows of small numbers: every TaskExecutor of a job gets all placements, so their cost
    is that of subtasks times TaskExecutors.
    """

    vertex_id: JobVertexID
    #: First part of the attempt ids.
    graph_id: str
    #: Of each subtask, the index into the plan's `workers`; NOT_PLACED of one that waits for its slot.
    workers: tuple[int, ...]
    #: Of each subtask, the number of its attempt.
    attempts: tuple[int, ...]

    @property
    def subtasks(self) -> tuple[TaskPlacement, ...]:
        """The placements, made anew at each call: keep them."""
        return tuple(
            TaskPlacement(
                attempt_id=execution_attempt_id(self.graph_id, self.vertex_id, subtask, attempt),
                worker=worker,
            )
            for subtask, (worker, attempt) in enumerate(zip(self.workers, self.attempts, strict=True))
        )


class TaskDeploymentDescriptor(Message, frozen=True, kw_only=True):
    """One subtask to start; its channels follow from the job graph's edges and the placements."""

    attempt_id: ExecutionAttemptID
    vertex_id: JobVertexID
    subtask: int
    attempt_number: int
    allocation_id: AllocationID
    #: State to restore, by operator; empty where the task begins anew.
    restore: dict[OperatorID, OperatorSubtaskState] = msgspec.field(default_factory=dict)
    #: State of the split enumerator, for subtask 0 of a source whose enumerator starts with it.
    restore_coordinator: StateHandle | None = None
    #: Checkpoint that `restore` belongs to; -1 = none.
    restored_checkpoint_id: int = -1
    #: Base of relative paths in `restore`: the folder of its `_metadata`.
    restore_directory: str = ""
    #: Pickled values in it may be read.
    restore_trusted: bool = True
    #: The latest savepoint of this job, -1 = none: what it names outside of state may be needed by other jobs.
    latest_savepoint_id: int = -1
    #: True for a subtask that had finished at that checkpoint: it sends what its consumers wait for and ends.
    finished_before: bool = False
    #: True for subtask 0 of a source whose split enumerator has outlived the former attempt, in this same worker.
    enumerator_goes_on: bool = False


class Deployment(Message, frozen=True, kw_only=True):
    """All that one TaskExecutor starts of a job at once: the graph and all placements travel once, not per
    task."""

    job_id: JobID
    job_master_id: JobMasterID
    #: encode_job_graph(...), or empty with `job_graph_blob_key` set when larger than the inline limit.
    job_graph: bytes
    job_graph_blob_key: str = ""
    workers: tuple[WorkerAddress, ...]
    placements: tuple[VertexPlacement, ...]
    tasks: tuple[TaskDeploymentDescriptor, ...]


class FailureCause(Message, frozen=True, kw_only=True):
    """Why a task or job failed, as text made where it happened."""

    #: Qualified class name of the exception, e.g. builtins.ValueError or yarrow...WorkerLostError.
    exception_name: str
    message: str
    #: The user's own frames first, then ours where they help; ready to print.
    stacktrace: str
    #: Operator whose function failed, "" when no operator's.
    operator_name: str = ""
    #: Short form of the record at hand, "" when none.
    record: str = ""
    #: The finished attempt whose result a task could not read: it runs again. "" = none.
    lost_result: str = ""


class TaskExecutionStateUpdate(Message, frozen=True, kw_only=True):
    """TaskExecutor -> JobMaster."""

    attempt_id: ExecutionAttemptID
    state: ExecutionState
    timestamp_ms: int
    cause: FailureCause | None = None
    accumulators: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Last IO metrics of a task that ended.
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    #: Threads of user code that a task which ended has left behind: its worker must not be used again.
    threads_left: tuple[str, ...] = ()
    #: Of a task that ended, subtask 0 of a source: its split enumerator lives on in the worker.
    enumerator_lives: bool = False
    #: Of subtask 0 of a source that has FINISHED with its split enumerator: the attempts of the readers that were done
    #: then; None where it ended otherwise.
    finished_readers: tuple[ExecutionAttemptID, ...] | None = None


class TaskMetrics(Message, frozen=True, kw_only=True):
    """Metric values of one running subtask: Flink's names without scope; operator metrics under
    `<operator>.<metric>`."""

    attempt_id: ExecutionAttemptID
    values: dict[str, float]


class AccumulatorReport(Message, frozen=True, kw_only=True):
    """Accumulator values of one subtask; values are JSON-like."""

    attempt_id: ExecutionAttemptID
    values: dict[str, Any]


class AllocatedSlotReport(Message, frozen=True, kw_only=True):
    """What the JobMaster believes a TaskExecutor has for it: heals lost messages."""

    job_id: JobID
    allocations: tuple[tuple[int, AllocationID], ...]


class TaskExecutorToJobMasterHeartbeat(Message, frozen=True, kw_only=True):
    """Payload of the TaskExecutor's answer to a JobMaster's heartbeat."""

    resource_id: ResourceID
    running: tuple[ExecutionAttemptID, ...]
    metrics: tuple[TaskMetrics, ...]
    accumulators: tuple[AccumulatorReport, ...]


class TaskExecutorToResourceManagerHeartbeat(Message, frozen=True, kw_only=True):
    """Payload of the TaskExecutor's answer to the ResourceManager's heartbeat."""

    resource_id: ResourceID
    slot_report: SlotReport
    #: Process metrics (Status.JVM..., bytes and counts), summed over supervisor, template and workers.
    metrics: dict[str, float]


class OperatorEvent(Message, frozen=True, kw_only=True):
    """Opaque event between a source's coordinator and its readers, routed by the JobMaster."""

    job_id: JobID
    vertex_id: JobVertexID
    operator_id: OperatorID
    #: -1 = the coordinator, else the reader's subtask.
    target_subtask: int
    #: -1 = the coordinator, else the reader's subtask.
    source_subtask: int
    payload: bytes
    #: The attempt it is for, of a coordinator that of subtask 0 with which it began: it is delivered to no other.
    #: "" = whichever runs.
    target_attempt: ExecutionAttemptID = ExecutionAttemptID("")
    #: The attempt that sent it, in the same sense.
    source_attempt: ExecutionAttemptID = ExecutionAttemptID("")


class TriggerCheckpoint(Message, frozen=True, kw_only=True):
    """JobMaster -> TaskExecutor: begin a checkpoint at these tasks (sources, and tasks whose inputs have all ended).

    `coordinators` name sources whose split enumerator lives in that TaskExecutor and is to be snapshotted; it comes in
    a message before the one that names the tasks, and is acknowledged by AcknowledgeCoordinator.
    """

    job_id: JobID
    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    attempts: tuple[ExecutionAttemptID, ...] = ()
    coordinators: tuple[OperatorID, ...] = ()


class CheckpointNotice(enum.StrEnum):
    """What became of a checkpoint."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    #: A later one is complete; this one's files that are not shared are gone.
    SUBSUMED = "subsumed"


class NotifyCheckpoint(Message, frozen=True, kw_only=True):
    """JobMaster -> TaskExecutor, for all tasks and coordinators of the job; a later COMPLETED covers earlier ones."""

    job_id: JobID
    checkpoint_id: int
    notice: CheckpointNotice
    #: The latest completed checkpoint, -1 when there is none.
    latest_completed: int = -1


class CheckpointMetrics(Message, frozen=True, kw_only=True):
    """What a checkpoint took at one task: milliseconds and bytes."""

    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0
    #: From the checkpoint's trigger to the first barrier at this task.
    start_delay_ms: float = 0.0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    #: Uploaded by this checkpoint; the state may be larger.
    checkpointed_size: int = 0
    unaligned: bool = False


class AcknowledgeCheckpoint(Message, frozen=True, kw_only=True):
    """Task -> JobMaster: its part of a checkpoint is stored."""

    job_id: JobID
    checkpoint_id: int
    attempt_id: ExecutionAttemptID
    states: dict[OperatorID, OperatorSubtaskState]
    metrics: CheckpointMetrics
    #: True where the end of the task's input lies before its cut: it ends when this checkpoint is complete.
    finished: bool = False


class AcknowledgeCoordinator(Message, frozen=True, kw_only=True):
    """Split enumerator -> JobMaster."""

    job_id: JobID
    checkpoint_id: int
    operator_id: OperatorID
    state: StateHandle


class DeclineCheckpoint(Message, frozen=True, kw_only=True):
    """Task or enumerator -> JobMaster: it cannot take part; the checkpoint is aborted, the task lives."""

    job_id: JobID
    checkpoint_id: int
    #: The task; "" where an enumerator declined.
    attempt_id: ExecutionAttemptID
    cause: FailureCause
    #: It has just ended or does not run yet: no failure, and not counted as one.
    not_ready: bool = False


class ResetSubtask(Message, frozen=True, kw_only=True):
    """JobMaster -> the enumerator of a source: a reader starts again from that checkpoint (-1: from nothing)."""

    job_id: JobID
    operator_id: OperatorID
    subtask: int
    #: The reader's attempt that has ended: what a later one has said or was given stays.
    attempt_id: ExecutionAttemptID
    checkpoint_id: int


class SavepointFormat(enum.StrEnum):
    """In which form the state of a savepoint is written."""

    #: The same for every backend, each of which restores it.
    CANONICAL = "CANONICAL"
    #: The backend's own, which is written and restored faster and by this backend only.
    NATIVE = "NATIVE"


class SavepointRequest(Message, frozen=True, kw_only=True):
    """What a client asks for; without a `target_directory` `execution.checkpointing.savepoint-dir` counts."""

    kind: SnapshotKind
    target_directory: str | None = None
    #: cancel-with-savepoint (Flink 1.x).
    cancel_job: bool = False
    format_type: SavepointFormat = SavepointFormat.CANONICAL


class RescaleRequest(Message, frozen=True, kw_only=True):
    """Another parallelism for a running job."""

    #: Of single vertices; the others keep theirs.
    parallelism: dict[JobVertexID, int] = msgspec.field(default_factory=dict)
    #: Above 0: of all vertices that may have another one than 1, instead.
    every: int = 0
    #: Who asked, for the history.
    trigger_cause: str = "request"


class CollectRows(Message, frozen=True, kw_only=True):
    """Rows of a collect operator on their way to the client: pickle bytes that the control plane passes on
    unread."""

    job_id: JobID
    collect_id: str
    subtask: int
    sequence: int
    payload: bytes
    row_count: int
    last: bool = False
    #: The pickle goes on in the subtask's next message: one row may be longer than a message.
    continued: bool = False
    #: The subtask's attempt: each begins anew with its sequence, and leaves unfinished what the former continued.
    attempt_number: int = 0
    attempt_id: ExecutionAttemptID = ExecutionAttemptID("")
    #: Rows in one order, whose positions count on over attempts; a subtask may go on with several.
    stream: str = ""
    #: Position of the first row.
    first: int = 0
    #: Position at which the attempt began: what former ones have sent from there on is void.
    restored: int = 0
    #: Rows before this position are covered by a completed checkpoint.
    confirmed: int = 0
    #: Put in by the JobMaster: rows are handed out when they are confirmed, and not before.
    exactly_once: bool = False
    #: On the end mark: the job has finished, so that all rows count that have come.
    complete: bool = False


class Acknowledge(Message, frozen=True, kw_only=True):
    """Done."""


class BlobPart(Message, frozen=True, kw_only=True):
    """A piece of a stored payload: the bytes from the offset asked for, and the size of the whole."""

    data: bytes
    total_size: int


class FileInfo(Message, frozen=True, kw_only=True):
    """A log file: name, bytes, epoch ms of its last change."""

    name: str
    size: int
    mtime: int


class JobOverview(Message, frozen=True, kw_only=True):
    """A job in a list."""

    job_id: JobID
    name: str
    status: JobStatus
    start_time: int
    end_time: int
    last_modification: int
    tasks: dict[str, int]
    #: What the job waits for, "" when it waits for nothing.
    waiting_for: str = ""


class AttemptDetails(Message, frozen=True, kw_only=True):
    """One attempt of a subtask, for REST."""

    attempt_id: ExecutionAttemptID
    subtask: int
    attempt_number: int
    state: ExecutionState
    #: Epoch ms a state was entered, by state name.
    timestamps: dict[str, int]
    host: str
    endpoint: str
    resource_id: str
    cause: FailureCause | None
    metrics: dict[str, float]
    accumulators: dict[str, Any]


class VertexDetails(Message, frozen=True, kw_only=True):
    """A vertex with its current attempts (by subtask) and the former ones."""

    vertex_id: JobVertexID
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[tuple[OperatorID, str], ...]
    subtasks: tuple[AttemptDetails, ...]
    former_attempts: tuple[AttemptDetails, ...] = ()


class ExceptionEntry(Message, frozen=True, kw_only=True):
    """One line of a job's exception history."""

    cause: FailureCause
    timestamp_ms: int
    task_name: str
    endpoint: str
    resource_id: str
    #: What else failed until the restart that it caused.
    concurrent: tuple[ExceptionEntry, ...] = ()


#: Rescales of a job that are remembered.
RESCALES_KEPT = 20


class RescaleRecord(Message, frozen=True, kw_only=True):
    """One change of a running job's parallelism."""

    rescale_id: str
    start_ms: int
    #: -1 while it is under way.
    end_ms: int = -1
    #: IN_PROGRESS, COMPLETED, or FAILED: the job runs at its former parallelism or has ended.
    state: str = "IN_PROGRESS"
    #: Parallelism by vertex.
    before: dict[JobVertexID, int]
    after: dict[JobVertexID, int]
    trigger_cause: str
    #: Why it failed.
    reason: str = ""


class ExecutionGraphDetails(Message, frozen=True, kw_only=True):
    """All that REST shows of one job, running or ended."""

    job_id: JobID
    name: str
    status: JobStatus
    timestamps: dict[str, int]
    end_time: int
    max_parallelism: int
    plan: dict[str, Any]
    configuration: dict[str, str]
    vertices: tuple[VertexDetails, ...]
    exceptions: tuple[ExceptionEntry, ...]
    #: Merged user accumulators by name.
    accumulators: dict[str, Any]
    #: What the job waits for, "" when it waits for nothing ("2 slots: 1 TaskExecutor requested ...").
    waiting_for: str = ""
    #: Metrics of checkpoints under Flink's names; those that are not known yet are absent.
    checkpoint_metrics: dict[str, float] = msgspec.field(default_factory=dict)
    #: How often tasks were started again after a failure.
    restarts: int = 0
    #: Milliseconds spent RESTARTING in all.
    restarting_ms: int = 0
    rescales: tuple[RescaleRecord, ...] = ()


class JobResult(Message, frozen=True, kw_only=True):
    """How a job ended."""

    job_id: JobID
    name: str
    status: JobStatus
    net_runtime_ms: int
    start_time: int
    end_time: int
    accumulators: dict[str, Any]
    cause: FailureCause | None = None


class TaskExecutorInfo(Message, frozen=True, kw_only=True):
    """A TaskExecutor as the ResourceManager knows it."""

    registration: TaskExecutorRegistration
    milliseconds_since_heartbeat: int
    free_slots: int
    allocated: tuple[SlotStatus, ...]
    metrics: dict[str, float]


class ClusterOverview(Message, frozen=True, kw_only=True):
    """Numbers of REST's /overview."""

    task_executors: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    pending_task_executors: int = 0
