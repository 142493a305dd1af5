"""CheckpointStatistics: a job's checkpoints for REST and metrics: history, summary and settings.

Owner: none (frozen values on the wire). Names are those of Flink's REST API, whose bodies are filled by name from these
records (am/rest/models/checkpoints.py). Times are epoch milliseconds, durations milliseconds, sizes bytes; -1 where a
number is not known yet.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.data.checkpoint_options import SnapshotKind


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class CheckpointStatus(enum.StrEnum):
    """The status names of REST."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class PhaseDurations(Record, frozen=True, kw_only=True):
    """How long one subtask stood still for its snapshot, and wrote it."""

    sync: int
    asynchronous: int


class BarrierWait(Record, frozen=True, kw_only=True):
    """How long one subtask waited for barriers, and the bytes that it read and wrote meanwhile."""

    #: Nothing is held back in buffers.
    buffered: ClassVar[int] = 0
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpoint(Record, frozen=True, kw_only=True):
    """The part of one subtask that has acknowledged."""

    class_name: ClassVar[str] = "completed"
    status: ClassVar[str] = "completed"
    aborted: ClassVar[bool] = False
    index: int
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint_duration: PhaseDurations
    alignment: BarrierWait
    start_delay: int
    unaligned_checkpoint: bool


class UnacknowledgedCheckpoint(Record, frozen=True, kw_only=True):
    """The part of one subtask that has not acknowledged."""

    class_name: ClassVar[str] = "pending"
    status: ClassVar[str] = "pending_or_failed"
    index: int


class CheckpointTotals(Record, frozen=True, kw_only=True):
    """What is told of a checkpoint, and of the part of each vertex in it."""

    alignment_buffered: ClassVar[int] = 0
    #: Of the checkpoint.
    id: int
    status: CheckpointStatus
    latest_ack_timestamp: int
    #: Uploaded by this checkpoint.
    checkpointed_size: int
    #: All state.
    state_size: int
    #: End of a completed or failed one less its trigger; so far else.
    end_to_end_duration: int
    #: Bytes read between the first and the last barrier.
    processed_data: int
    #: Bytes in flight that were written.
    persisted_data: int
    #: All of them; those that had ended before have acknowledged.
    num_subtasks: int
    num_acknowledged_subtasks: int


class VertexCheckpoint(CheckpointTotals, frozen=True, kw_only=True):
    """The part of one vertex."""

    vertex_id: JobVertexID
    name: str
    #: In order of subtasks; filled only where details are asked for.
    parts: tuple[SubtaskCheckpoint, ...] = ()

    @property
    def subtasks(self) -> list[SubtaskCheckpoint | UnacknowledgedCheckpoint]:
        """The part of each subtask, by its index."""
        parts = {part.index: part for part in self.parts}
        count = max([self.num_subtasks, *(index + 1 for index in parts)])
        return [parts.get(index) or UnacknowledgedCheckpoint(index=index) for index in range(count)]

    @property
    def summary(self) -> Mapping[str, Any]:
        """Each number of the parts over all of them, by its name."""
        return _summaries(self.parts)


class CheckpointRecord(CheckpointTotals, frozen=True, kw_only=True):
    """One checkpoint."""

    kind: SnapshotKind
    #: For a savepoint: it has the backend's own form.
    native: bool = False
    unaligned: bool
    trigger_timestamp: int
    vertices: tuple[VertexCheckpoint, ...]
    external_path: str = ""
    #: Bytes, of a completed checkpoint.
    metadata_size: int = -1
    discarded: bool = False
    end_timestamp: int = -1
    failure_message: str = ""

    @property
    def class_name(self) -> str:
        """Flink's name of the shape in which REST shows it."""
        return self.status.value.lower()

    @property
    def is_savepoint(self) -> bool:
        """Whether it is one."""
        return self.kind.is_savepoint

    @property
    def savepoint_format(self) -> str | None:
        """Of a savepoint."""
        if not self.is_savepoint:
            return None
        return "NATIVE" if self.native else "CANONICAL"

    @property
    def checkpoint_type(self) -> str:
        """Flink's name of its kind."""
        if self.kind.stops_job:
            return "SYNC_SAVEPOINT"
        if self.is_savepoint:
            return "SAVEPOINT"
        return "UNALIGNED_CHECKPOINT" if self.unaligned else "CHECKPOINT"

    @property
    def tasks(self) -> Mapping[str, VertexCheckpoint]:
        """The part of each vertex, by its id."""
        return {vertex.vertex_id: vertex for vertex in self.vertices}


class RestoredRecord(Record, frozen=True, kw_only=True):
    """The last restored checkpoint or savepoint."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class NumberSummary(Record, frozen=True, kw_only=True):
    """A number over the completed checkpoints; percentiles over the newest of them."""

    min: int
    max: int
    avg: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class CheckpointSummary(Record, frozen=True, kw_only=True):
    """Statistics of completed checkpoints; None = none is complete."""

    checkpointed_size: NumberSummary | None = None
    state_size: NumberSummary | None = None
    end_to_end_duration: NumberSummary | None = None
    processed_data: NumberSummary | None = None
    persisted_data: NumberSummary | None = None


class ExternalizedCheckpoints(Record, frozen=True, kw_only=True):
    """What becomes of checkpoints when the job ends."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfiguration(Record, frozen=True, kw_only=True):
    """How the job takes checkpoints; an interval of 2^63-1 = not by itself."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: ExternalizedCheckpoints
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool


class CountedCheckpoints(Record, frozen=True, kw_only=True):
    """Checkpoints so far."""

    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


class LatestRecords(Record, frozen=True, kw_only=True):
    """The last one of each kind."""

    completed: CheckpointRecord | None = None
    savepoint: CheckpointRecord | None = None
    failed: CheckpointRecord | None = None
    restored: RestoredRecord | None = None


class CheckpointStatistics(Record, frozen=True, kw_only=True):
    """The checkpoints of a job so far; the records lack the parts of subtasks."""

    configuration: CheckpointConfiguration
    counts: CountedCheckpoints
    summary: CheckpointSummary
    latest: LatestRecords
    #: Newest first.
    history: tuple[CheckpointRecord, ...] = ()


def _summaries(records: Sequence[Record]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name in records[0].__struct_fields__ if records else ():
        values = [getattr(record, name) for record in records]
        found[name] = _summaries(values) if isinstance(values[0], Record) else summary_of(sorted(values))
    return found


def summary_of(
    ordered: Sequence[int], least: int | None = None, most: int | None = None, mean: int | None = None
) -> NumberSummary | None:
    """A summary of rising values; the bounds and the mean may cover more values than these."""
    if not ordered:
        return None
    return NumberSummary(
        min=ordered[0] if least is None else least,
        max=ordered[-1] if most is None else most,
        avg=sum(ordered) // len(ordered) if mean is None else mean,
        p50=_percentile(ordered, 0.5),
        p90=_percentile(ordered, 0.9),
        p95=_percentile(ordered, 0.95),
        p99=_percentile(ordered, 0.99),
        p999=_percentile(ordered, 0.999),
    )


def _percentile(ordered: Sequence[int], part: float) -> float:
    """As Flink has it: interpolated between the values nearest to the place `part * (n + 1)` of n rising ones."""
    place = part * (len(ordered) + 1)
    below = math.floor(place)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (place - below) * (upper - lower)
