"""Bodies about checkpoints and savepoints, in Flink's shape.

Owner: none (declarations). What a JobMaster tells of checkpoints (runtime/rpc/checkpoint_statistics.py) has the same
names: `model_validate` makes a body of a record. Times are epoch milliseconds, durations milliseconds, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from yarrow.am.rest.models.base import CamelModel, HyphenModel, NumberOrNaN, QueueStatus, RestModel
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointRecord

#: As in the path where the outcome is asked for.
_HEX = "^[0-9a-fA-F]{32}$"

#: Flink's text for a checkpoint that no path leads to.
_IN_MEMORY = "<checkpoint-not-externally-addressable>"

#: An empty text is none.
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]
CheckpointStatus = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]


class CheckpointCounts(RestModel):
    """Checkpoints so far."""

    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


class StatsSummary(RestModel):
    """A number over all completed checkpoints; percentiles without data are the text "NaN"."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: NumberOrNaN = "NaN"
    p90: NumberOrNaN = "NaN"
    p95: NumberOrNaN = "NaN"
    p99: NumberOrNaN = "NaN"
    p999: NumberOrNaN = "NaN"


def _or_without_data(found: object) -> object:
    return StatsSummary() if found is None else found


#: None is a summary without data.
Summary = Annotated[StatsSummary, BeforeValidator(_or_without_data)]


class CheckpointSummaryBody(RestModel):
    """Sizes and durations of completed checkpoints."""

    checkpointed_size: Summary = Field(default_factory=StatsSummary)
    state_size: Summary = Field(default_factory=StatsSummary)
    end_to_end_duration: Summary = Field(default_factory=StatsSummary)
    alignment_buffered: Summary = Field(default_factory=StatsSummary)
    processed_data: Summary = Field(default_factory=StatsSummary)
    persisted_data: Summary = Field(default_factory=StatsSummary)


class TaskCheckpoint(RestModel):
    """The part of one vertex in a checkpoint."""

    id: int
    status: CheckpointStatus
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(TaskCheckpoint):
    """A checkpoint."""

    class_name: Literal["in_progress", "completed", "failed"] = Field(
        default="in_progress", serialization_alias="className"
    )
    is_savepoint: bool
    savepoint_format: str | None = Field(default=None, serialization_alias="savepointFormat")
    trigger_timestamp: int
    checkpoint_type: Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]
    tasks: dict[str, TaskCheckpoint]


class CompletedCheckpointBody(Checkpoint):
    """A checkpoint that can be restored."""

    external_path: Annotated[str | None, BeforeValidator(lambda path: path or _IN_MEMORY)]
    discarded: bool


class FailedCheckpoint(Checkpoint):
    """A checkpoint that failed."""

    failure_timestamp: int = Field(validation_alias="end_timestamp")
    failure_message: TextOrNone


def checkpoint_body(record: CheckpointRecord) -> Checkpoint:
    """A checkpoint in the shape of its status."""
    shapes: dict[str, type[Checkpoint]] = {"completed": CompletedCheckpointBody, "failed": FailedCheckpoint}
    return shapes.get(record.class_name, Checkpoint).model_validate(record)


def _by_status(found: object) -> object:
    return checkpoint_body(found) if isinstance(found, CheckpointRecord) else found


#: One of the three, by status.
AnyCheckpoint = Annotated[
    CompletedCheckpointBody | FailedCheckpoint | Checkpoint, BeforeValidator(_by_status)
]


class RestoredCheckpoint(RestModel):
    """The checkpoint that the job began from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: TextOrNone


class LatestCheckpoints(RestModel):
    """The last checkpoint of each kind."""

    completed: CompletedCheckpointBody | None = None
    savepoint: CompletedCheckpointBody | None = None
    failed: FailedCheckpoint | None = None
    restored: RestoredCheckpoint | None = None


class CheckpointStatisticsBody(RestModel):
    """Checkpoints of a job."""

    counts: CheckpointCounts = Field(default_factory=CheckpointCounts)
    summary: CheckpointSummaryBody = Field(default_factory=CheckpointSummaryBody)
    latest: LatestCheckpoints = Field(default_factory=LatestCheckpoints)
    history: list[AnyCheckpoint] = Field(default_factory=list)


class Externalization(RestModel):
    """The retention of checkpoints at the end of the job."""

    enabled: bool = False
    delete_on_cancellation: bool = True


class CheckpointConfigurationBody(RestModel):
    """Settings of a job's checkpoints; an interval of 2^63-1 = none are taken."""

    mode: Literal["exactly_once", "at_least_once"]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool = False
    changelog_periodic_materialization_interval: int = -1
    changelog_storage: str = ""


class CheckpointDuration(RestModel):
    """Parts of the time that a task's part took."""

    sync: Summary = Field(default_factory=StatsSummary)
    asynchronous: Summary = Field(default_factory=StatsSummary, serialization_alias="async")


class CheckpointAlignment(RestModel):
    """The time of waiting for barriers, and the bytes meanwhile."""

    buffered: Summary = Field(default_factory=StatsSummary)
    processed: Summary = Field(default_factory=StatsSummary)
    persisted: Summary = Field(default_factory=StatsSummary)
    duration: Summary = Field(default_factory=StatsSummary)


class TaskCheckpointSummary(RestModel):
    """The subtasks of a vertex in one checkpoint."""

    checkpointed_size: Summary = Field(default_factory=StatsSummary)
    state_size: Summary = Field(default_factory=StatsSummary)
    end_to_end_duration: Summary = Field(default_factory=StatsSummary)
    checkpoint_duration: CheckpointDuration = Field(default_factory=CheckpointDuration)
    alignment: CheckpointAlignment = Field(default_factory=CheckpointAlignment)
    start_delay: Summary = Field(default_factory=StatsSummary)


class SubtaskDuration(RestModel):
    """The metrics of one subtask."""

    sync: int
    asynchronous: int = Field(serialization_alias="async")


class SubtaskAlignment(RestModel):
    """The metrics of one subtask."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpointBody(RestModel):
    """One subtask in a checkpoint; one that has not acknowledged has no numbers."""

    class_name: Literal["completed", "pending"] = Field(serialization_alias="className")
    index: int
    status: Literal["completed", "pending_or_failed"]
    ack_timestamp: int | None = None
    end_to_end_duration: int | None = None
    checkpointed_size: int | None = None
    state_size: int | None = None
    checkpoint: SubtaskDuration | None = Field(default=None, validation_alias="checkpoint_duration")
    alignment: SubtaskAlignment | None = None
    start_delay: int | None = None
    unaligned_checkpoint: bool | None = None
    aborted: bool | None = None


class TaskCheckpointDetails(TaskCheckpoint):
    """The part of one vertex with that of each subtask."""

    summary: TaskCheckpointSummary
    subtasks: list[SubtaskCheckpointBody]


class FailureCauseBody(HyphenModel):
    """The cause of an operation's failure; `serialized-throwable` is empty: Yarrow has no Java objects."""

    class_: str = Field(serialization_alias="class")
    stack_trace: str
    serialized_throwable: str = ""


class SavepointResult(HyphenModel):
    """The path of a savepoint, or the cause of its failure."""

    location: str | None = None
    failure_cause: FailureCauseBody | None = None


class SavepointOperation(RestModel):
    """The state of a requested savepoint."""

    status: QueueStatus
    operation: SavepointResult | None = None


class CheckpointResult(RestModel):
    """The id of the checkpoint, or the cause of its failure."""

    checkpoint_id: int | None = Field(default=None, serialization_alias="checkpointId")
    failure_cause: FailureCauseBody | None = Field(default=None, serialization_alias="failure-cause")


class CheckpointOperation(RestModel):
    """The state of a requested checkpoint."""

    status: QueueStatus
    operation: CheckpointResult | None = None


class DisposalResult(HyphenModel):
    """Empty, or the cause of the failure."""

    failure_cause: FailureCauseBody | None = None


class DisposalOperation(RestModel):
    """The state of a savepoint's disposal."""

    status: QueueStatus
    operation: DisposalResult | None = None


class SavepointDisposal(HyphenModel):
    """The savepoint to delete."""

    savepoint_path: str


class CheckpointTrigger(CamelModel):
    """The kind of checkpoint that a client requests."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    trigger_id: str | None = Field(default=None, pattern=_HEX)


class SavepointTrigger(CamelModel):
    """The request for a savepoint."""

    target_directory: str | None = Field(default=None, alias="target-directory")
    cancel_job: bool = Field(default=False, alias="cancel-job")
    trigger_id: str | None = Field(default=None, pattern=_HEX)
    format_type: Literal["CANONICAL", "NATIVE"] = "CANONICAL"


class StopWithSavepoint(CamelModel):
    """The request to stop a job."""

    target_directory: str | None = None
    drain: bool = False
    trigger_id: str | None = Field(default=None, pattern=_HEX)
    format_type: Literal["CANONICAL", "NATIVE"] = "CANONICAL"
