"""Bodies about jobs.

Owner: none (declarations). Times are epoch milliseconds, durations milliseconds; -1 = not yet. Where Flink
1.x and 2.x name a thing differently, both names are there.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasPath, Field

from yarrow.am.rest.models.accumulators import SerializedAccumulators, UserAccumulators
from yarrow.am.rest.models.base import CamelModel, HyphenModel, QueueStatus, RawJson, RestModel, TextOrNone
from yarrow.am.rest.models.metrics import IOMetrics
from yarrow.common.job_status import JobStatus
from yarrow.runtime.graph.states import ExecutionState, JobType

SchedulerType = Literal["Default"]


class JobIdWithStatus(RestModel):
    """A job and its state."""

    id: str
    status: JobStatus


class JobIds(RestModel):
    """All running and remembered jobs."""

    jobs: list[JobIdWithStatus]


class JobClientHeartbeat(CamelModel):
    """A client's heartbeat: the time, by the client's clock, until which it counts as alive."""

    expired_timestamp: int | None = None


class JobStatusBody(RestModel):
    """The state of a job."""

    status: JobStatus


class TaskCounts(RestModel):
    """Subtasks by state."""

    total: int = 0
    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0
    initializing: int = 0


class JobSummary(HyphenModel):
    """A job in a list."""

    jid: str = Field(validation_alias="job_id")
    name: str
    job_type: JobType = Field(serialization_alias="jobType")
    scheduler_type: SchedulerType = Field(default="Default", serialization_alias="schedulerType")
    state: JobStatus = Field(validation_alias="status")
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    pending_operators: int = 0
    tasks: TaskCounts
    #: Yarrow's: what the job waits for, empty when it waits for nothing.
    waiting_for: str = ""


class JobsOverview(RestModel):
    """All running and remembered jobs."""

    jobs: list[JobSummary]


class PlanInput(RestModel):
    """An edge into a vertex.

    Yarrow's own: `stream_kind` says rows or columns, `combining` what batch mode folds before the shuffle, and why.
    """

    num: int
    id: str
    ship_strategy: str
    exchange: str | None = None
    local_strategy: str | None = None
    caching: str | None = None
    stream_kind: str | None = None
    combining: str | None = None


class PlanClaim(RestModel):
    """What a source gives again after a failure, or what a sink claims of its rows.

    Yarrow's own: docs/connectors.md lists the claims.
    """

    operator: str
    claim: str


class PlanErrorHandling(RestModel):
    """What an operator does with a record at which it fails, with its bounds and who reads its dead letters.

    Yarrow's own.
    """

    operator: str
    on_error: str


class PlanNode(RestModel):
    """A vertex of the plan.

    Yarrow's own: `claims` of the sources and sinks in it, and `error_handling` of operators that leave out records.
    """

    id: str
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str = ""
    optimizer_properties: RawJson = Field(default_factory=dict)
    inputs: list[PlanInput] = Field(default_factory=list)
    claims: list[PlanClaim] = Field(default_factory=list)
    error_handling: list[PlanErrorHandling] = Field(default_factory=list)


class Plan(RestModel):
    """A job as a graph of its vertices."""

    jid: str
    name: str
    type: JobType
    nodes: list[PlanNode]


class JobPlan(RestModel):
    """The plan of a job."""

    plan: Plan


class JobVertexSummary(HyphenModel):
    """A vertex with its metrics."""

    id: str = Field(validation_alias="vertex_id")
    slot_sharing_group_id: str = Field(
        validation_alias="slot_sharing_group", serialization_alias="slotSharingGroupId"
    )
    name: str
    max_parallelism: int = Field(serialization_alias="maxParallelism")
    parallelism: int
    status: ExecutionState
    start_time: int
    end_time: int
    duration: int
    #: Subtasks by state.
    tasks: dict[ExecutionState, int]
    metrics: IOMetrics


class LargeKeyGroupInfo(HyphenModel):
    """A key group that has far more records than the others: its subtask works longer."""

    vertex_id: str
    vertex_name: str
    subtask: int
    key_group: int
    #: The key of most of its records, as text; empty where no key has most of them.
    key: str
    records: int
    #: Records of another key group, on average over those that have any.
    mean_records: int


class IterationInfo(HyphenModel):
    """An iteration of a bounded job."""

    name: str
    #: The present or last superstep, from 1; 0 before the first one.
    superstep: int
    #: As many as the program allows.
    max_supersteps: int
    #: The vertices that each superstep executes.
    vertices: list[str]


class JobDetails(HyphenModel):
    """A job with its vertices."""

    jid: str = Field(validation_alias="job_id")
    name: str
    #: Whether it can be stopped with a savepoint now.
    is_stoppable: bool = Field(serialization_alias="isStoppable")
    state: JobStatus = Field(validation_alias="status")
    job_type: JobType
    scheduler_type: SchedulerType = Field(default="Default", serialization_alias="schedulerType")
    application_id: str
    start_time: int
    end_time: int
    duration: int
    max_parallelism: int = Field(serialization_alias="maxParallelism")
    now: int
    #: When each state was entered, 0 = never.
    timestamps: dict[JobStatus, int]
    vertices: list[JobVertexSummary]
    #: Vertices by state.
    status_counts: dict[ExecutionState, int]
    plan: Plan
    #: Every operator with the vertex it is part of.
    stream_graph: RawJson
    pending_operators: int = 0
    #: Yarrow's: what the job waits for, empty when it waits for nothing.
    waiting_for: str = ""
    #: Yarrow's: who runs the tasks of a bounded job, `SPARK` or `LOCAL`, empty for a stream.
    batch_runner: str = ""
    #: Yarrow's: why it is that one, empty for a stream.
    batch_runner_reason: str = ""
    #: Yarrow's: Spark's id of the application that runs the job, empty for a stream.
    spark_application: str = ""
    #: Yarrow's: Spark's master of that application, as `local[2]`, empty for a stream.
    spark_master: str = ""
    #: Yarrow's: the path of Spark's own pages about the job, empty while there are none.
    spark_pages: str = ""
    #: Yarrow's: the SparkDriver of the job, with which its log files are named, empty for a stream.
    spark_driver: str = ""
    #: Yarrow's: the TaskManager in whose slot the SparkDriver runs, and which serves its logs.
    spark_driver_taskmanager: str = Field(default="", validation_alias="spark_driver_task_executor")
    #: Yarrow's: key groups of a bounded job that have far more records than the others of their vertex.
    large_key_groups: list[LargeKeyGroupInfo] = Field(default_factory=list)
    #: Yarrow's: iterations of a bounded job, each with its superstep.
    iterations: list[IterationInfo] = Field(default_factory=list)


class ExecutionConfiguration(HyphenModel):
    """The execution settings of a job."""

    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]


class JobConfiguration(HyphenModel):
    """The configuration of a job; values of secret keys are hidden."""

    jid: str
    name: str
    execution_config: ExecutionConfiguration


class ExceptionInfo(CamelModel):
    """A failure of a task; `endpoint` and `location` are one thing, `host:port`."""

    exception_name: str = Field(validation_alias=AliasPath("cause", "exception_name"))
    stacktrace: str = Field(validation_alias=AliasPath("cause", "stacktrace"))
    timestamp: int = Field(validation_alias="timestamp_ms")
    task_name: TextOrNone
    endpoint: TextOrNone
    location: TextOrNone = Field(validation_alias="endpoint")
    task_manager_id: TextOrNone = Field(validation_alias="resource_id")
    #: What is known of the failure beside its text: `operator`, whose function raised it.
    failure_labels: dict[str, str] = Field(validation_alias="labels")


class RootException(ExceptionInfo):
    """A failure that made the job fail or restart, with its concurrent failures."""

    concurrent_exceptions: list[ExceptionInfo] = Field(default_factory=list, validation_alias="concurrent")


class ExceptionHistory(RestModel):
    """Failures, the newest first."""

    entries: list[RootException]
    truncated: bool


class LegacyException(CamelModel):
    """A failure as Flink 1.x tells it."""

    exception: str = Field(validation_alias=AliasPath("cause", "stacktrace"))
    task: TextOrNone = Field(validation_alias="task_name")
    location: TextOrNone = Field(validation_alias="endpoint")
    endpoint: TextOrNone
    timestamp: int = Field(validation_alias="timestamp_ms")
    task_manager_id: TextOrNone = Field(validation_alias="resource_id")


class JobExceptions(RestModel):
    """The failures of the job."""

    root_exception: str | None = Field(serialization_alias="root-exception")
    timestamp: int | None
    all_exceptions: list[LegacyException] = Field(serialization_alias="all-exceptions")
    truncated: bool
    exception_history: ExceptionHistory = Field(serialization_alias="exceptionHistory")


class SchedulerDecision(RestModel):
    """An event that a job's scheduler handled, with the scheduler's decision."""

    number: int = Field(
        description="Number of the event among the job's events under its present JobMaster, from 1."
    )
    timestamp: int = Field(validation_alias="timestamp_ms")
    event: RawJson = Field(
        description="`event` names its kind, `now` is the time in seconds on the JobMaster's monotonic clock."
    )
    actions: list[RawJson] = Field(description="In the order of their execution; `action` names the kind.")
    error: str = Field(description='Class of the exception with which the scheduler failed; "" = it did not.')


class SchedulerDecisions(RestModel):
    """The last events of a job's scheduler, oldest first."""

    decisions: list[SchedulerDecision]


class JobAccumulators(HyphenModel):
    """Accumulators of a job, merged over its subtasks."""

    job_accumulators: list[RawJson] = Field(default_factory=list)
    user_task_accumulators: UserAccumulators = Field(validation_alias="accumulators")
    #: Accumulators whose class merges in its own way: JSON in base64, which a client of Yarrow merges.
    serialized_user_task_accumulators: SerializedAccumulators = Field(
        default_factory=dict, validation_alias="accumulators"
    )


class FailureBody(HyphenModel):
    """The cause of a job's failure: the user's own frames come first in the stack trace."""

    exception_class: str = Field(validation_alias="exception_name", serialization_alias="class")
    stack_trace: str = Field(validation_alias="stacktrace")


class JobResultBody(HyphenModel):
    """The end of a job."""

    id: str = Field(validation_alias="job_id")
    name: str
    application_status: Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]
    accumulator_results: dict[str, Any]
    net_runtime: int = Field(validation_alias="net_runtime_ms")
    application_id: str
    start_time: int
    end_time: int
    failure_cause: FailureBody | None = None


class JobExecutionResultBody(HyphenModel):
    """The result of a job, once it has ended."""

    status: QueueStatus
    job_execution_result: JobResultBody | None = None


class JobSubmission(CamelModel):
    """The server has accepted the job."""

    job_url: str


class Artifact(CamelModel):
    """A file of the job: its name in the job, and the name of the part that brings it."""

    entry_name: str
    file_name: str


class JobSubmissionRequest(CamelModel):
    """The part `request` of a submission: which of the other parts is what."""

    #: The part with the encoded JobGraph.
    execution_plan_file_name: str | None = None
    #: The same under its name in Flink 1.x.
    job_graph_file_name: str | None = None
    job_jar_file_names: list[str] = Field(default_factory=list)
    job_artifact_file_names: list[Artifact] = Field(default_factory=list)
