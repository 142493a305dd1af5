"""Messages between a supervisor, its template process and its slot workers.

They are framed msgpack over pairs of Unix sockets.

Owner: none (values). No pickle here; user code is opaque bytes inside the encoded JobGraph. A frame is a
4-byte little-endian length and one tagged struct. Supervisor and template talk over a SOCK_SEQPACKET pair
instead: a packet is one struct, and descriptors travel with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID, WorkerID
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CollectRows,
    DeclineCheckpoint,
    Deployment,
    FailureCause,
    NotifyCheckpoint,
    OperatorEvent,
    ResetSubtask,
    TaskExecutionStateUpdate,
    TaskMetrics,
    TaskTimeReport,
    TriggerCheckpoint,
    WatermarkBounds,
    WatermarkReport,
    WorkerAddress,
)
from yarrow.runtime.rpc.output_stream import LoggedRecord
from yarrow.runtime.rpc.roles import SERVER_NAME

#: Most bytes of a frame; a longer one closes the connection.
MAX_FRAME_BYTES = 256 * 1024 * 1024


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a worker at its start."""

    worker_id: WorkerID
    resource_id: str
    host: str
    host_key: str
    #: Folder (mode 0700) for the Unix data socket and temporary files.
    working_directory: str
    configuration: dict[str, str]
    #: 32+ bytes shared by the workers of one application: proves data peers. Empty only in one process.
    data_secret: bytes
    #: PEM texts for mutual TLS between hosts; empty = Unix sockets only.
    ca_certificate: bytes = b""
    certificate: bytes = b""
    private_key: bytes = b""
    #: The name that the certificates of other workers have.
    server_name: str = SERVER_NAME
    listen_tcp: bool = False
    #: A client reads along: it gets what user code logs, from the levels that each job brings.
    forward_logs: bool = False


# ------------------------------------------------------------------ supervisor -> worker


class ToWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of messages to a worker."""


class StartWorker(ToWorker, frozen=True, kw_only=True):
    """First message after the fork; answered by WorkerReady or WorkerFailed."""

    settings: WorkerSettings


class StartBatchWorker(ToWorker, frozen=True, kw_only=True):
    """First message in place of StartWorker: the worker runs tasks of one bounded job; see container/batch/local."""

    #: Folder of the job's SharedJob.
    job_folder: str
    #: Folder (mode 0700) for the page that tells what a dead worker ran.
    working_directory: str
    #: As in WorkerSettings.
    forward_logs: bool = False


class SubmitTasks(ToWorker, frozen=True, kw_only=True):
    """Start those tasks of the deployment whose allocation is this worker's (already filtered).

    `file_paths` maps a blob key of the graph's shipped files to a local path the supervisor fetched.
    """

    deployment: Deployment
    file_paths: dict[str, str] = msgspec.field(default_factory=dict)


class CancelTasks(ToWorker, frozen=True, kw_only=True):
    """Cancel tasks; each ends with a TaskStateChanged (CANCELED, or its own end if the cancel came too late)."""

    attempts: tuple[ExecutionAttemptID, ...]


class DeliverOperatorEvent(ToWorker, frozen=True, kw_only=True):
    """An event for a source coordinator or reader of this worker."""

    event: OperatorEvent


class DeliverWatermarkBounds(ToWorker, frozen=True, kw_only=True):
    """Bounds for readers of aligned sources; the worker picks its own."""

    bounds: WatermarkBounds


class BeginCheckpoint(ToWorker, frozen=True, kw_only=True):
    """Begin a checkpoint at these tasks, or at these split enumerators; all of them are this worker's."""

    trigger: TriggerCheckpoint


class CheckpointNotification(ToWorker, frozen=True, kw_only=True):
    """Whether a checkpoint was completed or aborted, for all tasks and enumerators of the job in this worker."""

    notification: NotifyCheckpoint


class ResetReader(ToWorker, frozen=True, kw_only=True):
    """A reader will restart from a checkpoint: its enumerator in this worker takes its later splits back."""

    reset: ResetSubtask


class CollectCredit(ToWorker, frozen=True, kw_only=True):
    """The JobMaster has taken a CollectRows: the operator may send the next, and drop the client's confirmed rows."""

    job_id: JobID
    #: The attempt that sent it: its next attempt counts anew, and must not take the answer for its own.
    attempt_id: ExecutionAttemptID
    collect_id: str
    sequence: int
    #: Positions by stream, of this attempt.
    confirmed: dict[str, int] = msgspec.field(default_factory=dict)


class RequestThreadDump(ToWorker, frozen=True, kw_only=True):
    """Answered by ThreadDump."""


class RequestEventTimes(ToWorker, frozen=True, kw_only=True):
    """Answered by EventTimes."""

    job_id: JobID


class StopWorker(ToWorker, frozen=True, kw_only=True):
    """End: tasks are cancelled, sockets closed, exit status 0."""


# ------------------------------------------------------------------ worker -> supervisor


class FromWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of messages from a worker."""


class WorkerReady(FromWorker, frozen=True, kw_only=True):
    """The worker serves its data socket."""

    address: WorkerAddress
    pid: int


class WorkerFailed(FromWorker, frozen=True, kw_only=True):
    """The worker could not start; it exits after this."""

    cause: FailureCause


class TaskStateChanged(FromWorker, frozen=True, kw_only=True):
    """A task entered a state; the JobMaster gets the update as it is."""

    update: TaskExecutionStateUpdate


class MetricsReport(FromWorker, frozen=True, kw_only=True):
    """Sent about every second while tasks run."""

    tasks: tuple[TaskMetrics, ...]
    accumulators: dict[ExecutionAttemptID, dict[str, Any]]
    process: dict[str, float]


class EmitOperatorEvent(FromWorker, frozen=True, kw_only=True):
    """An event for the JobMaster to route."""

    event: OperatorEvent


class EmitWatermarkReport(FromWorker, frozen=True, kw_only=True):
    """The event time of a reader of aligned sources, for the JobMaster."""

    report: WatermarkReport


class EmitCollectRows(FromWorker, frozen=True, kw_only=True):
    """Rows for the client; CollectCredit answers."""

    rows: CollectRows


class CheckpointAcknowledged(FromWorker, frozen=True, kw_only=True):
    """A task's part of a checkpoint is stored."""

    acknowledgement: AcknowledgeCheckpoint


class CoordinatorAcknowledged(FromWorker, frozen=True, kw_only=True):
    """A split enumerator's part of a checkpoint is stored."""

    acknowledgement: AcknowledgeCoordinator


class CheckpointDeclined(FromWorker, frozen=True, kw_only=True):
    """A task or enumerator cannot take part in a checkpoint."""

    decline: DeclineCheckpoint


class EndOfDataReached(FromWorker, frozen=True, kw_only=True):
    """A task has emitted all its records and waits for the checkpoint that covers them."""

    job_id: JobID
    attempt_id: ExecutionAttemptID


class OutputLines(FromWorker, frozen=True, kw_only=True):
    """Whole lines of output of user code and print sinks.

    The supervisor appends them to its .out (stdout) or .err file.
    """

    stream: str
    text: str


class LogLines(FromWorker, frozen=True, kw_only=True):
    """Whole lines of the worker's log."""

    text: str


class UserLogRecord(FromWorker, frozen=True, kw_only=True):
    """A log record of user code for the client's `logging`; `text` is its form in .log."""

    record: LoggedRecord
    text: str


class ThreadDump(FromWorker, frozen=True, kw_only=True):
    """(thread name, stack)."""

    threads: tuple[tuple[str, str], ...]


class EventTimes(FromWorker, frozen=True, kw_only=True):
    """Event time in the tasks of a job."""

    tasks: tuple[TaskTimeReport, ...]


class CurrentUserCall(FromWorker, frozen=True, kw_only=True):
    """The operator that the task thread was running when it was asked, or when the worker died with a handler.

    It names the operator at fault.
    """

    attempt_id: ExecutionAttemptID
    operator_id: OperatorID
    operator_name: str
    #: A short form of the record that the operator had, "" = none is known.
    record: str = ""
    #: The user's frames, ready to print; known only if the worker told its end.
    stack: str = ""
    #: How the process ends, as the worker told it. Empty = it had no time for a word: the record is that of its last
    #: look.
    end: str = ""


MessageToWorker = (
    StartWorker
    | StartBatchWorker
    | SubmitTasks
    | CancelTasks
    | DeliverOperatorEvent
    | DeliverWatermarkBounds
    | BeginCheckpoint
    | CheckpointNotification
    | ResetReader
    | CollectCredit
    | RequestThreadDump
    | RequestEventTimes
    | StopWorker
)
MessageFromWorker = (
    WorkerReady
    | WorkerFailed
    | TaskStateChanged
    | MetricsReport
    | EmitOperatorEvent
    | EmitWatermarkReport
    | EmitCollectRows
    | CheckpointAcknowledged
    | CoordinatorAcknowledged
    | CheckpointDeclined
    | EndOfDataReached
    | OutputLines
    | LogLines
    | UserLogRecord
    | ThreadDump
    | EventTimes
    | CurrentUserCall
)

# ------------------------------------------------------------------ supervisor <-> template


class ForkWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From supervisor to template.

    Attached by SCM_RIGHTS: the worker's end of its socket pair, then its raw output file.
    """

    worker_id: WorkerID
    #: The name in `ps`, at most 15 bytes.
    process_name: str


class TemplateReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Template -> supervisor: everything is imported, and forks are quick from now on."""

    pid: int


class WorkerForked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Template -> supervisor."""

    worker_id: WorkerID
    pid: int


class WorkerForkFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Template -> supervisor: the system refused the fork."""

    worker_id: WorkerID
    reason: str


class WorkerExited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Template -> supervisor, from waitpid: exactly one of `status` and `signal` is set."""

    worker_id: WorkerID
    pid: int
    status: int | None = None
    signal: int | None = None


MessageFromTemplate = TemplateReady | WorkerForked | WorkerForkFailed | WorkerExited
