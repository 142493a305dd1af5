"""What a job tells about its checkpoints: history, summary and settings, as REST and metrics show them.

Owner: none (frozen values on the wire). Times are epoch milliseconds, durations milliseconds, sizes bytes; -1 where a
number is not known yet.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import msgspec

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.data.checkpoint_options import SnapshotKind


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class CheckpointStatus(enum.StrEnum):
    """As REST names them."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SubtaskCheckpoint(Record, frozen=True, kw_only=True):
    """The part of one subtask that has acknowledged."""

    subtask: int
    ack_timestamp: int
    duration: int
    checkpointed_size: int
    state_size: int
    sync: int
    asynchronous: int
    alignment: int
    start_delay: int
    processed: int
    persisted: int
    unaligned: bool


class VertexCheckpoint(Record, frozen=True, kw_only=True):
    """The part of one vertex."""

    vertex_id: JobVertexID
    name: str
    #: Subtasks that take part.
    subtasks: int
    acknowledged: int
    latest_ack: int
    checkpointed_size: int
    state_size: int
    duration: int
    processed: int
    persisted: int
    #: In order of subtasks; filled only where details are asked for.
    parts: tuple[SubtaskCheckpoint, ...] = ()


class CheckpointRecord(Record, frozen=True, kw_only=True):
    """One checkpoint."""

    checkpoint_id: int
    status: CheckpointStatus
    kind: SnapshotKind
    #: Of a savepoint: in the form of the backend.
    native: bool = False
    unaligned: bool
    trigger_timestamp: int
    vertices: tuple[VertexCheckpoint, ...]
    #: End of a completed or failed one less its trigger; so far else.
    duration: int
    external_path: str = ""
    #: Of a completed one.
    metadata_size: int = -1
    discarded: bool = False
    end_timestamp: int = -1
    failure_message: str = ""

    @property
    def subtasks(self) -> int:
        """Subtasks that take part."""
        return sum(vertex.subtasks for vertex in self.vertices)

    @property
    def acknowledged(self) -> int:
        """Subtasks that have acknowledged."""
        return sum(vertex.acknowledged for vertex in self.vertices)

    @property
    def latest_ack(self) -> int:
        """Epoch ms of the last acknowledgement."""
        return max((vertex.latest_ack for vertex in self.vertices), default=-1)

    @property
    def checkpointed_size(self) -> int:
        """Uploaded by this checkpoint."""
        return sum(vertex.checkpointed_size for vertex in self.vertices)

    @property
    def state_size(self) -> int:
        """All state."""
        return sum(vertex.state_size for vertex in self.vertices)

    @property
    def processed(self) -> int:
        """Bytes read between the first and the last barrier."""
        return sum(vertex.processed for vertex in self.vertices)

    @property
    def persisted(self) -> int:
        """Bytes in flight that were written."""
        return sum(vertex.persisted for vertex in self.vertices)


class RestoredRecord(Record, frozen=True, kw_only=True):
    """The checkpoint or savepoint that the job went back to last."""

    checkpoint_id: int
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
    """What completed checkpoints took; None = none is complete."""

    checkpointed_size: NumberSummary | None = None
    state_size: NumberSummary | None = None
    duration: NumberSummary | None = None
    processed: NumberSummary | None = None
    persisted: NumberSummary | None = None


class CheckpointConfiguration(Record, frozen=True, kw_only=True):
    """How the job takes checkpoints; an interval of -1 = not by itself."""

    exactly_once: bool
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalized: bool
    delete_on_cancellation: bool
    state_backend: str
    storage: str
    unaligned: bool
    tolerable_failures: int
    aligned_timeout: int
    after_tasks_finish: bool


class CheckpointStatistics(Record, frozen=True, kw_only=True):
    """Checkpoints of a job so far; the records without the parts of subtasks."""

    configuration: CheckpointConfiguration
    restored_count: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    summary: CheckpointSummary = CheckpointSummary()
    latest_completed: CheckpointRecord | None = None
    latest_savepoint: CheckpointRecord | None = None
    latest_failed: CheckpointRecord | None = None
    restored: RestoredRecord | None = None
    #: Newest first.
    history: tuple[CheckpointRecord, ...] = ()

    @property
    def total(self) -> int:
        """All that were begun."""
        return self.in_progress + self.completed + self.failed


def summary_of(
    ordered: Sequence[int], least: int | None = None, most: int | None = None, mean: int | None = None
) -> NumberSummary | None:
    """A summary of values in rising order, with other bounds where more values than these are known of."""
    if not ordered:
        return None
    return NumberSummary(
        min=ordered[0] if least is None else least,
        max=ordered[-1] if most is None else most,
        avg=sum(ordered) // len(ordered) if mean is None else mean,
        p50=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        p999=percentile(ordered, 0.999),
    )


def percentile(ordered: Sequence[int], part: float) -> float:
    """Between the two values nearest to the place `part * (n + 1)` of n values in rising order."""
    place = part * (len(ordered) + 1)
    below = math.floor(place)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (place - below) * (upper - lower)
