"""One gateway per component: Protocols of async methods with message structs as arguments and results.

Owner: the endpoint implements it on its own loop; callers hold a client that the transport makes. Must not
know the transport. Fencing: every call carries the leader token of the receiver that the client was made for;
a stale one raises FencingTokenError. A TaskExecutor has no leader: its methods take the caller's own id if a
stale caller could do harm. Methods marked `@waits` answer after an event and have no deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    ResourceID,
    ResourceManagerID,
    ScheduleID,
)
from yarrow.runtime.data.checkpoint_options import CheckpointType
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from yarrow.runtime.rpc.messages import (
    COLLECT_START,
    Acknowledge,
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    AllocatedSlotReport,
    BlobPart,
    ClusterOverview,
    CollectConfirmation,
    CollectPosition,
    CollectRows,
    DeclineCheckpoint,
    DelegationTokens,
    Deployment,
    EventTimeDetails,
    ExecutionGraphDetails,
    FailureCause,
    FileInfo,
    JobMasterRegistration,
    JobOverview,
    JobResult,
    NotifyCheckpoint,
    OperatorEvent,
    RateLimitDetails,
    RateLimitRequest,
    RegistrationRejection,
    RegistrationSuccess,
    RescaleRequest,
    ResetSubtask,
    ResourceRequirements,
    SavepointRequest,
    ScheduleOverview,
    SlotOffer,
    SlotReport,
    SlotRequest,
    SparkDriverRequest,
    SparkDriverStart,
    SparkPage,
    SparkPageRequest,
    TaskExecutionStateUpdate,
    TaskExecutorInfo,
    TaskExecutorRegistration,
    TaskExecutorToJobMasterHeartbeat,
    TaskExecutorToResourceManagerHeartbeat,
    TaskTimeReport,
    TriggerCheckpoint,
    WatermarkBounds,
    WatermarkReport,
)

F = TypeVar("F", bound=Callable[..., Any])
_WAITS = "__rpc_waits__"


def waits(method: F) -> F:
    """Marks a gateway method that may take any time."""
    setattr(method, _WAITS, True)
    return method


def may_wait(method: Callable[..., Any]) -> bool:
    """True for a method marked `@waits`."""
    return getattr(method, _WAITS, False)


class DispatcherGateway(Protocol):
    """Accepts jobs, and knows running and finished ones."""

    async def submit_job(self, job_graph: bytes) -> JobID:
        """Stores the encoded JobGraph and starts its JobMaster; refuses a known job id."""
        ...

    async def submit_stored_job(self, blob_key: str) -> JobID:
        """Submits an encoded JobGraph that lies in the blob store because it is large."""
        ...

    async def list_jobs(self) -> tuple[JobOverview, ...]: ...

    async def request_job_status(self, job_id: JobID) -> JobStatus: ...

    async def request_job_details(self, job_id: JobID) -> ExecutionGraphDetails: ...

    @waits
    async def request_job_result(self, job_id: JobID) -> JobResult:
        """Returns when the job has ended; a cancelled call has no effect on the job."""
        ...

    async def cancel_job(self, job_id: JobID) -> Acknowledge:
        """Starts cancelling; for an ended job it raises an error with the job's end."""
        ...

    async def report_job_client_heartbeat(self, job_id: JobID) -> Acknowledge:
        """Notes a heartbeat of an attached client; no effect for other jobs. Raises JobNotFoundError."""
        ...

    async def create_schedule(self, blob_key: str, schedule: Schedule) -> ScheduleOverview:
        """Keeps the encoded JobGraph of the blob store, and runs it at the times of the schedule.

        The schedule gets the id of the graph, each run one of its own. Refuses a known id, and what is no bounded job.
        """
        ...

    async def list_schedules(self) -> tuple[ScheduleOverview, ...]: ...

    async def request_schedule(self, schedule_id: ScheduleID) -> ScheduleOverview:
        """Raises ScheduleNotFoundError."""
        ...

    async def cancel_schedule(self, schedule_id: ScheduleID) -> JobID | None:
        """Forgets a schedule; returns the job of its present run, which goes on. Raises ScheduleNotFoundError."""
        ...

    async def request_overview(self) -> ClusterOverview: ...

    @waits
    async def trigger_checkpoint(
        self, job_id: JobID, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED
    ) -> int:
        """Takes a checkpoint now; returns its id once it is complete.

        Raises CheckpointFailedError with the cause.
        """
        ...

    @waits
    async def trigger_savepoint(self, job_id: JobID, request: SavepointRequest) -> str:
        """Takes a savepoint, and stops the job with it if asked to; returns its path when both are done."""
        ...

    @waits
    async def rescale_job(self, job_id: JobID, request: RescaleRequest) -> Acknowledge:
        """Returns when all tasks run at the new parallelism; after an error the job runs on at the former one."""
        ...

    async def request_rate_limits(self, job_id: JobID) -> RateLimitDetails:
        """Return the rate limits of a running job's sources and sinks."""
        ...

    @waits
    async def change_rate_limits(self, job_id: JobID, request: RateLimitRequest) -> RateLimitDetails:
        """Sets other limits, and returns all when they hold and are stored. It waits for a rescale to end.

        Raises RateLimitRefusedError and RateLimitsNotStoredError, and then nothing has changed.
        """
        ...

    async def dispose_savepoint(self, path: str) -> Acknowledge:
        """Deletes a savepoint's files; refuses a folder that is no savepoint."""
        ...

    async def request_checkpoint_statistics(self, job_id: JobID) -> CheckpointStatistics:
        """Checkpoints of a job so far, running or ended."""
        ...

    async def request_scheduler_decisions(self, job_id: JobID, last: int) -> tuple[bytes, ...]:
        """The scheduler's last events for a running job, each as JSON with its actions, oldest first.

        Long events reduce their number. Raises JobAlreadyEndedError and JobNotFoundError.
        """
        ...

    async def request_event_time(self, job_id: JobID) -> EventTimeDetails:
        """Event time of a running job, operator by operator, and who holds it back.

        Raises JobAlreadyEndedError and JobNotFoundError.
        """
        ...

    @waits
    async def request_spark_page(self, job_id: JobID, request: SparkPageRequest) -> SparkPage:
        """One of Spark's own pages about a running bounded job.

        Raises NoSparkPagesError, JobAlreadyEndedError and JobNotFoundError.
        """
        ...

    async def request_checkpoint(self, job_id: JobID, checkpoint_id: int) -> CheckpointRecord | None:
        """One checkpoint with the parts of its subtasks; None if it is unknown or forgotten."""
        ...

    @waits
    async def fetch_collected(
        self, job_id: JobID, collect_id: str, max_rows: int, position: CollectPosition = COLLECT_START
    ) -> tuple[CollectRows, ...]:
        """The rows behind that position of a collect operator; waits until there are some.

        The call confirms the rows before the position, which are not returned again. A message with `last`
        set ends the rows; no message means that a new master is taking the job over.
        """
        ...

    async def put_blob(self, data: bytes) -> str:
        """Stores a payload under its SHA-256 and returns that key; larger ones are uploaded in parts by REST."""
        ...

    async def shut_down_cluster(self) -> Acknowledge: ...


class ResourceManagerGateway(Protocol):
    """Knows TaskExecutors and slots; grants slots to jobs."""

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> RegistrationSuccess | RegistrationRejection: ...

    async def register_job_master(
        self, registration: JobMasterRegistration
    ) -> RegistrationSuccess | RegistrationRejection: ...

    async def declare_required_resources(
        self, job_master_id: JobMasterID, requirements: ResourceRequirements
    ) -> Acknowledge: ...

    async def notify_slot_available(
        self, resource_id: ResourceID, slot_index: int, allocation_id: AllocationID, cause: str = ""
    ) -> Acknowledge:
        """Takes a slot back. `cause` says how the SparkDriver ended that was in it."""
        ...

    async def heartbeat_from_job_master(self, job_id: JobID, job_master_id: JobMasterID) -> Acknowledge: ...

    async def heartbeat_from_task_executor(
        self, payload: TaskExecutorToResourceManagerHeartbeat
    ) -> Acknowledge: ...

    async def disconnect_task_executor(
        self, resource_id: ResourceID, cause: str, by_force: bool = False
    ) -> Acknowledge:
        """Takes note of a TaskExecutor's end.

        `by_force`: somebody else ends it, and jobs hear of it when the cause is known.
        """
        ...

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, status: JobStatus
    ) -> Acknowledge: ...

    async def request_task_executors(self) -> tuple[TaskExecutorInfo, ...]: ...

    @waits
    async def request_spark_driver(self, request: SparkDriverRequest) -> Acknowledge:
        """Starts a SparkDriver for a bounded job; waits until there is room for it.

        Repeated for the same driver it has no effect. Raises SparkDriverStartError.
        """
        ...

    @waits
    async def release_spark_driver(self, job_master_id: JobMasterID, driver_id: ResourceID) -> Acknowledge:
        """Ends a SparkDriver, or withdraws the request for it; returns when nothing of it is left.

        No effect if it has ended already.
        """
        ...


class JobMasterGateway(Protocol):
    """Runs one job."""

    async def register_task_executor(
        self, resource_id: ResourceID, address: str, host: str
    ) -> RegistrationSuccess | RegistrationRejection: ...

    async def offer_slots(
        self, resource_id: ResourceID, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationID, ...]:
        """Returns the accepted allocations; the others go back to the ResourceManager."""
        ...

    async def fail_slot(
        self, resource_id: ResourceID, allocation_id: AllocationID, cause: FailureCause
    ) -> Acknowledge:
        """Reports that a slot's worker is gone: everything in it has failed for that cause."""
        ...

    async def update_task_execution_states(
        self, updates: tuple[TaskExecutionStateUpdate, ...]
    ) -> Acknowledge: ...

    async def heartbeat_from_task_executor(
        self, payload: TaskExecutorToJobMasterHeartbeat
    ) -> Acknowledge: ...

    async def disconnect_task_executor(self, resource_id: ResourceID, cause: str) -> Acknowledge: ...

    async def send_operator_event(self, event: OperatorEvent) -> Acknowledge: ...

    async def report_watermark(self, report: WatermarkReport) -> Acknowledge:
        """Takes the event time that a reader of aligned sources has reached."""
        ...

    async def acknowledge_checkpoint(self, acknowledgement: AcknowledgeCheckpoint) -> Acknowledge:
        """Takes the acknowledgement of a stored part; late or repeated ones are ignored and their files deleted."""
        ...

    async def acknowledge_coordinator(self, acknowledgement: AcknowledgeCoordinator) -> Acknowledge: ...

    async def decline_checkpoint(self, decline: DeclineCheckpoint) -> Acknowledge: ...

    async def notify_end_of_data(
        self, job_id: JobID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        """Says that these tasks have emitted all their records and wait for the checkpoint that covers them.

        When all running tasks have said so, the final checkpoint begins at once, without waiting for the
        interval.
        """
        ...

    @waits
    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        """Takes rows for the client; the answer is the operator's credit, with the client's confirmed positions.

        The answer comes when there is room for the next rows. An operator that `awaits` the client gets it
        when the subtask may end.
        """
        ...

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        """Bytes of a shipped payload, for the job's TaskExecutors.

        Parts stay below the message limit.
        """
        ...

    async def notify_not_enough_resources(
        self, explanation: str, most_slots: int | None = None
    ) -> Acknowledge:
        """The ResourceManager's reason why it cannot fulfil the declared requirements.

        `most_slots`: how many slots the cluster can have for all jobs together; None = unknown.
        """
        ...


class TaskExecutorGateway(Protocol):
    """Offers slots and runs tasks in slot workers."""

    async def request_slot(self, request: SlotRequest) -> Acknowledge: ...

    async def start_spark_driver(self, start: SparkDriverStart) -> Acknowledge:
        """Gives the slot to the SparkDriver of a job, and starts it; `free_slot` ends it.

        Repeated for the same allocation it has no effect. A driver that cannot start or ends is told by
        `notify_slot_available`. Raises FencingTokenError, and SlotNotAvailableError if the slot is taken.
        """
        ...

    async def submit_tasks(self, deployment: Deployment) -> Acknowledge: ...

    async def cancel_tasks(
        self, job_id: JobID, job_master_id: JobMasterID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge: ...

    async def free_slot(self, allocation_id: AllocationID, cause: str) -> Acknowledge: ...

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterID, slots: AllocatedSlotReport
    ) -> TaskExecutorToJobMasterHeartbeat:
        """The answer is the payload: running attempts, metrics, accumulators."""
        ...

    async def heartbeat_from_resource_manager(
        self, resource_manager_id: ResourceManagerID
    ) -> TaskExecutorToResourceManagerHeartbeat: ...

    async def update_delegation_tokens(
        self, resource_manager_id: ResourceManagerID, tokens: DelegationTokens
    ) -> Acknowledge:
        """Takes newer tokens of Hadoop into use, in all processes of the container; repeated it has no effect.

        Raises FencingTokenError, and TokenFileError if they cannot be written.
        """
        ...

    async def send_operator_event(self, job_master_id: JobMasterID, event: OperatorEvent) -> Acknowledge: ...

    async def send_watermark_bounds(self, job_master_id: JobMasterID, bounds: WatermarkBounds) -> Acknowledge:
        """Tells readers of aligned sources how far they may read."""
        ...

    async def trigger_checkpoint(
        self, job_master_id: JobMasterID, trigger: TriggerCheckpoint
    ) -> Acknowledge: ...

    async def notify_checkpoint(
        self, job_master_id: JobMasterID, notification: NotifyCheckpoint
    ) -> Acknowledge: ...

    async def reset_subtask(self, job_master_id: JobMasterID, reset: ResetSubtask) -> Acknowledge:
        """Returns a reader's newer splits to the enumerator, before the reader is deployed again."""
        ...

    async def disconnect_job_master(
        self, job_id: JobID, job_master_id: JobMasterID, cause: str
    ) -> Acknowledge:
        """Ends the JobMaster's use of this TaskExecutor: its slots go back to the ResourceManager."""
        ...

    async def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerID, cause: str
    ) -> Acknowledge: ...

    async def request_log_list(self) -> tuple[FileInfo, ...]: ...

    async def request_log(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file that `request_log_list` names; refuses any other name."""
        ...

    async def request_thread_dump(self) -> tuple[tuple[str, str], ...]:
        """(thread name, stack) of supervisor and workers."""
        ...

    async def request_event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        """Event time in the running tasks of a job here; a worker that does not answer leaves its tasks out."""
        ...

    async def request_slot_report(self) -> SlotReport: ...

    async def release(self, resource_manager_id: ResourceManagerID, cause: str) -> Acknowledge:
        """Ends the TaskExecutor: slots are freed, workers end, the process exits.

        Raises FencingTokenError if it follows another ResourceManager.
        """
        ...


__all__ = [
    "DispatcherGateway",
    "JobMasterGateway",
    "ResourceManagerGateway",
    "TaskExecutorGateway",
    "may_wait",
    "waits",
]
