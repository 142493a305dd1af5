"""Messages that show jobs and the cluster to clients and REST: lists, graphs, results, numbers.

Owner: none (frozen values). They describe a moment, and nobody acts on them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, JobVertexID, OperatorID
from yarrow.runtime.common.late_records import LateRecords, summed_up
from yarrow.runtime.graph.states import ExecutionState, JobType
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.batch import IterationDetails, LargeKeyGroup
from yarrow.runtime.rpc.messages.registrations import TaskExecutorRegistration
from yarrow.runtime.rpc.messages.rescaling import RescaleRecord
from yarrow.runtime.rpc.messages.slots import SlotStatus
from yarrow.runtime.rpc.messages.tasks import FailureCause


class JobOverview(Message, frozen=True, kw_only=True):
    """A job in a list."""

    job_id: JobID
    name: str
    status: JobStatus
    start_time: int
    end_time: int
    last_modification: int
    tasks: dict[str, int]
    #: The thing that the job waits for; "" while it waits for nothing.
    waiting_for: str = ""
    job_type: JobType = JobType.STREAMING


class AttemptDetails(Message, frozen=True, kw_only=True):
    """One attempt of a subtask, for REST."""

    attempt_id: ExecutionAttemptID
    subtask: int
    attempt_number: int
    state: ExecutionState
    #: Epoch ms at which a state was entered, by state name.
    timestamps: dict[str, int]
    host: str
    endpoint: str
    resource_id: str
    metrics: dict[str, float]
    accumulators: dict[str, Any]
    #: Of each operator that has some.
    late_records: tuple[LateRecords, ...] = ()


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

    @property
    def late_records(self) -> list[LateRecords]:
        """The late records of each operator that has some, summed up over its present subtasks."""
        return summed_up(report for attempt in self.subtasks for report in attempt.late_records)


class ExceptionEntry(Message, frozen=True, kw_only=True):
    """One line of a job's exception history."""

    cause: FailureCause
    timestamp_ms: int
    task_name: str
    endpoint: str
    resource_id: str
    #: Other failures until the restart that it caused.
    concurrent: tuple[ExceptionEntry, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """What is known of the failure beside its text."""
        return {"operator": self.cause.operator_name} if self.cause.operator_name else {}


class ExecutionGraphDetails(Message, frozen=True, kw_only=True):
    """The details of one job, running or ended, for REST."""

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
    job_type: JobType = JobType.STREAMING
    #: Who runs the tasks of a bounded job, and why; "" for a stream.
    batch_runner: str = ""
    batch_runner_reason: str = ""
    #: Spark's id of the application that runs a bounded job; "" = none, or not yet.
    spark_application: str = ""
    #: Key groups of a bounded job that have far more records than the others.
    large_key_groups: tuple[LargeKeyGroup, ...] = ()
    #: Iterations of a bounded job, in order of the program.
    iterations: tuple[IterationDetails, ...] = ()
    #: Spark's master of that application, as local[2]; "" = none, or not yet.
    spark_master: str = ""
    #: Whether Spark's own pages about the job can be read now.
    has_spark_pages: bool = False
    #: The name of the present or last SparkDriver, with which its log files are named; "" = none.
    spark_driver: str = ""
    #: The TaskExecutor in whose slot it runs, and which serves its logs; "" = it runs in none.
    spark_driver_task_executor: str = ""
    #: Merged user accumulators by name.
    accumulators: dict[str, Any]
    #: The thing that the job waits for; "" while it waits for nothing ("2 slots: 1 TaskExecutor requested ...").
    waiting_for: str = ""
    #: Metrics of checkpoints under Flink's names; unknown ones are absent.
    checkpoint_metrics: dict[str, float] = msgspec.field(default_factory=dict)
    #: Path of the last completed checkpoint or savepoint; "" = in the master's memory, or there is none.
    last_checkpoint_path: str = ""
    #: How often tasks were started again after a failure.
    restarts: int = 0
    #: Milliseconds spent RESTARTING in all.
    restarting_ms: int = 0
    rescales: tuple[RescaleRecord, ...] = ()
    #: Every operator with its vertex, in Flink's JSON form.
    stream_graph: dict[str, Any] = msgspec.field(default_factory=dict)


class JobResult(Message, frozen=True, kw_only=True):
    """The end of a job."""

    job_id: JobID
    name: str
    status: JobStatus
    net_runtime_ms: int
    start_time: int
    end_time: int
    accumulators: dict[str, Any]
    cause: FailureCause | None = None
    #: Why the job was cancelled without a request, as when its client was gone; "" = somebody requested it.
    cancellation: str = ""


class TaskExecutorInfo(Message, frozen=True, kw_only=True):
    """A TaskExecutor as the ResourceManager knows it."""

    registration: TaskExecutorRegistration
    milliseconds_since_heartbeat: int
    free_slots: int
    allocated: tuple[SlotStatus, ...]
    metrics: dict[str, float]
    #: The lowest TCP port on which a worker accepts data connections; -1 = none does.
    data_port: int = -1


class ClusterOverview(Message, frozen=True, kw_only=True):
    """The numbers of REST's /overview."""

    task_executors: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    pending_task_executors: int = 0
