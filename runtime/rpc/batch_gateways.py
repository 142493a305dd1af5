"""Gateways of batch mode: the BatchJobMaster as its SparkDriver calls it, and the SparkDriver.

Owner: as in runtime/rpc/gateways.py. One driver belongs to one job. Fencing: both gateways' calls carry the
BatchJobMaster's id.
"""

from __future__ import annotations

from typing import Protocol

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID, ResourceID
from yarrow.runtime.rpc.gateways import waits
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchCommittables,
    BatchOutput,
    BatchResult,
    BatchStageProgress,
    BatchSubmission,
    BatchSubtaskResult,
    BlobPart,
    CollectConfirmation,
    CollectRows,
    DelegationTokens,
    FailureCause,
    RateLimitRequest,
    RegistrationRejection,
    RegistrationSuccess,
    SparkApplication,
    SparkConfiguration,
    SparkDriverHeartbeat,
    SparkDriverRegistration,
    SparkPage,
    SparkPageRequest,
    StageCommit,
    StageEnd,
    StageSubmission,
)


class BatchRunError(YarrowError):
    """A driver cannot begin a run: another one executes, or the driver is ending."""


class NoSparkPagesError(YarrowError):
    """Spark's own pages about a job cannot be read: the message says why."""


class BatchJobMasterGateway(Protocol):
    """Runs one job in batch mode; its SparkDriver calls it."""

    async def register_spark_driver(
        self, registration: SparkDriverRegistration
    ) -> RegistrationSuccess | RegistrationRejection:
        """Takes the driver for its job, or refuses it for good; the answer comes before Java starts."""
        ...

    async def report_spark_application(
        self, driver_id: ResourceID, application: SparkApplication
    ) -> Acknowledge:
        """Says that the driver's session has started."""
        ...

    async def report_stages(
        self, job_id: JobID, run: int, stages: tuple[BatchStageProgress, ...]
    ) -> Acknowledge:
        """The progress of the stages that have changed."""
        ...

    async def report_subtasks(
        self, job_id: JobID, run: int, subtasks: tuple[BatchSubtaskResult, ...]
    ) -> Acknowledge:
        """Results of successful subtasks; large jobs send them in several calls."""
        ...

    @waits
    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        """Takes rows for the client, in the order of subtasks; the answer comes when there is room for the next.

        The last message of a collect operator bears `last`.
        """
        ...

    @waits
    async def push_output(self, output: BatchOutput) -> Acknowledge:
        """Takes text of print(); the answer comes when there is room for more."""
        ...

    @waits
    async def store_committables(self, committables: BatchCommittables) -> Acknowledge:
        """Takes them for the present run; `begin_commit` follows when the run has sent all of them."""
        ...

    @waits
    async def begin_commit(self, job_id: JobID, run: int) -> Acknowledge:
        """Answers when the committables of the run are stored, and it is certain that they will be committed.

        From then on no later run executes the plan again: it only commits. Raises BatchRunError if the job has
        ended, or the run is over.
        """
        ...

    async def check_run(self, job_id: JobID, run: int) -> Acknowledge:
        """Answers if that run executes, for all that the master knows. Raises BatchRunError if it is over."""
        ...

    @waits
    async def begin_stage_commit(self, commit: StageCommit) -> Acknowledge:
        """Answers when it is stored that an attempt of a stage leaves these outputs: no other attempt of it does.

        Raises BatchRunError if the attempt is over.
        """
        ...

    async def report_stage_end(self, end: StageEnd) -> Acknowledge:
        """Ends an attempt of a stage of a pipeline."""
        ...

    async def fail_batch(self, job_id: JobID, run: int, cause: FailureCause) -> Acknowledge:
        """Ends a run: of several causes the first is told. The driver can take another run."""
        ...

    async def finish_batch(self, result: BatchResult) -> Acknowledge:
        """Ends a run without failure."""
        ...

    async def confirm_cancelled(self, job_id: JobID, run: int) -> Acknowledge:
        """Says that nothing of a cancelled run executes any more."""
        ...

    async def notify_not_enough_resources(self, driver_id: ResourceID, explanation: str) -> Acknowledge:
        """Why the driver has not started yet, by the ResourceManager, or its session, by itself; "" = it has enough."""
        ...

    async def read_spark_configuration(self, driver_id: ResourceID) -> SparkConfiguration:
        """The job's own configuration, for a driver whose starter could not pass it on."""
        ...

    async def disconnect_spark_driver(self, driver_id: ResourceID, cause: FailureCause) -> Acknowledge:
        """The driver's last message before it ends: by request, or because it cannot go on."""
        ...

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart:
        """Bytes of a shipped payload.

        Parts stay below the message limit.
        """
        ...


class SparkDriverGateway(Protocol):
    """Runs the plan of one job on Spark.

    It belongs to one BatchJobMaster: every call carries that master's id.
    """

    async def submit_batch(self, submission: BatchSubmission) -> Acknowledge:
        """Begins a run; repeated for the same run it has no effect.

        Raises BatchRunError while another run executes.
        """
        ...

    async def submit_stage(self, submission: StageSubmission) -> Acknowledge:
        """Begins an attempt of a stage in the present run of a pipeline; repeated for the same one it has no effect.

        Raises BatchRunError if that run does not execute.
        """
        ...

    async def change_rate_limits(self, job_id: JobID, run: int, request: RateLimitRequest) -> Acknowledge:
        """Gives a run other rate limits. No effect for a run that does not execute."""
        ...

    async def cancel_batch(self, job_id: JobID, run: int) -> Acknowledge:
        """Begins to end a run; `confirm_cancelled` follows. No effect for a run that has ended."""
        ...

    async def heartbeat_from_job_master(self) -> SparkDriverHeartbeat: ...

    async def update_delegation_tokens(self, tokens: DelegationTokens) -> Acknowledge:
        """Takes newer tokens of Hadoop into use; repeated it has no effect.

        Raises TokenFileError if they cannot be written.
        """
        ...

    @waits
    async def read_spark_page(self, request: SparkPageRequest) -> SparkPage:
        """One of Spark's own pages. The first call starts Spark's web server, on the loopback address.

        Raises NoSparkPagesError.
        """
        ...

    async def release(self, cause: str) -> Acknowledge:
        """Ends the driver with its JVM and its Python workers."""
        ...
