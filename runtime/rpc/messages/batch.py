"""Messages about the SparkDriver of a bounded job: its start, submission, progress, results.

Owner: none (frozen values). A run is one execution of the whole plan. The master counts runs from 0, and each
report of the driver names its run. The plan travels as bytes, as the graph does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.runtime.common.ids import JobID, JobMasterID, JobVertexID, OperatorID, ResourceID
from yarrow.runtime.graph.states import BatchRunner, ExecutionState
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.slots import SlotRequest


class SparkDriverRequest(Message, frozen=True, kw_only=True):
    """BatchJobMaster -> ResourceManager: a SparkDriver is to start, and to register with the sender."""

    #: The name of the driver: a repeated request starts no other one.
    driver_id: ResourceID
    job_id: JobID
    job_master_id: JobMasterID
    job_master_address: str
    #: The job's own configuration, over that of the cluster.
    configuration: dict[str, str]
    #: Tasks that Spark runs at a time where no option names its master.
    slots: int
    #: LOCAL: a driver of workers, in a slot of a TaskExecutor whatever the kind of cluster.
    runner: BatchRunner = BatchRunner.SPARK


class SparkDriverStart(Message, frozen=True, kw_only=True):
    """ResourceManager -> TaskExecutor: start the SparkDriver of a job in this slot. It holds a secret."""

    slot: SlotRequest
    driver_id: ResourceID
    #: The job's own configuration, over that of the TaskExecutor's cluster.
    configuration: dict[str, str]
    #: The driver's certificates: an encoded PemIdentity (runtime/rpc/bootstrap.py).
    identity: bytes
    #: LOCAL: the TaskExecutor itself runs the job's stages, in workers of its own.
    runner: BatchRunner = BatchRunner.SPARK

    def __repr__(self) -> str:
        """Names the driver, and no secret."""
        return f"SparkDriverStart({self.driver_id} for job {self.slot.job_id} in {self.slot.slot_id})"


class SparkConfiguration(Message, frozen=True, kw_only=True):
    """BatchJobMaster -> SparkDriver: the job's own configuration, over that of the cluster."""

    configuration: dict[str, str]


class SparkDriverRegistration(Message, frozen=True, kw_only=True):
    """The first message of a SparkDriver, before it starts Java."""

    driver_id: ResourceID
    job_id: JobID
    address: str
    host: str
    pid: int
    #: The TaskExecutor that has started it; "" = none has.
    task_executor: str = ""


class SparkApplication(Message, frozen=True, kw_only=True):
    """The Spark application of a driver, once its session has started."""

    #: Spark's id of it, as local-1700000000000 or application_1700000000000_0001.
    application_id: str
    #: Whether the driver shows Spark's own pages.
    has_pages: bool
    #: Spark's master, as local[2] or yarn.
    spark_master: str
    spark_version: str


class SparkPageRequest(Message, frozen=True, kw_only=True):
    """REST -> Dispatcher -> SparkDriver: one of Spark's own pages is to be read."""

    #: Path at Spark's own server; it begins with a slash.
    path: str
    #: The query as it was sent; "" = none.
    query: str = ""
    #: The path below which the client sees Spark's pages: links on them begin with it.
    base: str


class SparkPage(Message, frozen=True, kw_only=True):
    """An answer of Spark's own server."""

    #: The HTTP status.
    status: int
    media_type: str
    body: bytes
    #: Where a redirection leads, as Spark says it; "" = it is none.
    location: str = ""
    #: The page's Content-Security-Policy and Cache-Control; "" = it has none.
    policy: str = ""
    caching: str = ""


class BatchSubmission(Message, frozen=True, kw_only=True):
    """BatchJobMaster -> SparkDriver: a run of a job."""

    job_id: JobID
    #: Counted from 0 by the master.
    run: int
    #: encode_job_graph(...), or empty with `job_graph_blob_key` set when larger than the inline limit.
    job_graph: bytes
    job_graph_blob_key: str = ""
    #: Blob of `StoredCommittables`: a former run has executed the plan, and its results are still to be committed.
    committables_blob_key: str = ""
    #: encode_batch_plan(...); empty = the driver plans the graph itself.
    plan: bytes = b""
    #: The job is a pipeline: the run waits for submissions of stages, and ends when it is cancelled.
    is_pipeline: bool = False
    #: Stages of the pipeline whose outputs are, or will be, in place.
    finished_stages: tuple[JobVertexID, ...] = ()


class SparkDriverHeartbeat(Message, frozen=True, kw_only=True):
    """The answer of a SparkDriver to a heartbeat."""

    driver_id: ResourceID
    #: The run that executes; -1 = none.
    run: int


class BatchSubtaskProgress(Message, frozen=True, kw_only=True):
    """How far the latest attempt of a subtask is."""

    subtask: int
    #: It has put out everything; Spark may still repeat it.
    is_done: bool
    records_in: int
    records_out: int


class LargeKeyGroup(Message, frozen=True, kw_only=True):
    """A key group that has far more records than the others of its stage: one task works longer than the others."""

    vertex_id: JobVertexID
    vertex_name: str
    #: The subtask that has it.
    subtask: int
    key_group: int
    #: The key of most of its records, as text; "" = no key has most of them.
    key: str
    records: int
    #: Records that another key group has, on average over those that have any.
    mean_records: int


class IterationDetails(Message, frozen=True, kw_only=True):
    """Where a run is in an iteration."""

    name: str
    #: The present or last superstep, from 1; 0 = none has begun.
    superstep: int
    max_supersteps: int
    #: The vertices that each superstep executes.
    vertices: tuple[JobVertexID, ...]


class BatchStageProgress(Message, frozen=True, kw_only=True):
    """How far a stage is: of the attempts that have succeeded, and of those that run."""

    vertex_id: JobVertexID
    #: CREATED, RUNNING, FINISHED, FAILED or CANCELED.
    state: ExecutionState
    tasks_total: int
    tasks_running: int
    tasks_done: int
    #: Attempts that have failed; Spark may have repeated them.
    tasks_failed: int = 0
    #: Epoch ms of the first task's start and of the last one's end; 0 = not yet.
    started_ms: int = 0
    ended_ms: int = 0
    #: Subtasks that have begun and told of records.
    subtasks: tuple[BatchSubtaskProgress, ...] = ()
    large_key_group: LargeKeyGroup | None = None
    #: Of a stage in the body of an iteration, from 1; 0 = it is in none, or has not begun.
    superstep: int = 0

    @property
    def records_in(self) -> int:
        """Records that all subtasks have taken so far."""
        return sum(subtask.records_in for subtask in self.subtasks)

    @property
    def records_out(self) -> int:
        """Records that all subtasks have put out so far."""
        return sum(subtask.records_out for subtask in self.subtasks)


class BatchSubtaskResult(Message, frozen=True, kw_only=True):
    """What the successful attempt of a subtask left."""

    vertex_id: JobVertexID
    subtask: int
    attempt: int
    accumulators: dict[str, Any] = msgspec.field(default_factory=dict)
    #: IO metrics under Flink's names, as numRecordsIn.
    metrics: dict[str, float] = msgspec.field(default_factory=dict)


class BatchCommittables(Message, frozen=True, kw_only=True):
    """What a sink's subtask has prepared, in the successful attempt, or a part of that: one message is bounded."""

    job_id: JobID
    run: int
    vertex_id: JobVertexID
    operator_id: OperatorID
    subtask: int
    attempt: int
    #: Position of the part. Part 0 begins anew, and replaces what came of the subtask before.
    sequence: int
    #: Encoded committables, or a part of them.
    payload: bytes
    #: Another part follows.
    continued: bool = False


class StoredCommittables(Message, frozen=True, kw_only=True):
    """Everything that a run is to commit, as the master keeps it; in the order in which it arrived."""

    #: So that no two jobs store the same blob.
    job_id: JobID
    messages: tuple[BatchCommittables, ...]


class BatchOutput(Message, frozen=True, kw_only=True):
    """Text of print(): of the subtasks of a vertex in their order, each successful attempt's once.

    Each run prints the same text by the same operator. So its position says what a former run has printed.
    """

    job_id: JobID
    run: int
    vertex_id: JobVertexID
    subtask: int
    #: Position of the printing operator in the vertex.
    printer: int = 0
    #: Characters that the operator has printed before.
    first: int = 0
    #: Lines, or a part of a long one.
    text: str


class BatchResult(Message, frozen=True, kw_only=True):
    """The end of a run without failure; all its other messages have been answered before."""

    job_id: JobID
    run: int
    stages: tuple[BatchStageProgress, ...]
