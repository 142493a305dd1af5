"""Bodies about checkpoints, made from a JobMaster's statistics.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import yarrow.am.rest.models.checkpoints as models
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    NumberSummary,
    SubtaskCheckpoint,
    VertexCheckpoint,
    summary_of,
)

#: Flink's interval of a job that takes no checkpoints by itself.
NEVER = 2**63 - 1
#: Flink's text for a checkpoint without a path.
_IN_MEMORY = "<checkpoint-not-externally-addressable>"


def statistics(found: CheckpointStatistics) -> models.CheckpointStatisticsBody:
    """GET /checkpoints."""
    summary = found.summary
    restored = found.restored
    return models.CheckpointStatisticsBody(
        counts=models.CheckpointCounts(
            restored=found.restored_count,
            total=found.total,
            in_progress=found.in_progress,
            completed=found.completed,
            failed=found.failed,
        ),
        summary=models.CheckpointSummaryBody(
            checkpointed_size=numbers(summary.checkpointed_size),
            state_size=numbers(summary.state_size),
            end_to_end_duration=numbers(summary.duration),
            processed_data=numbers(summary.processed),
            persisted_data=numbers(summary.persisted),
        ),
        latest=models.LatestCheckpoints(
            completed=_completed(found.latest_completed),
            savepoint=_completed(found.latest_savepoint),
            failed=None if found.latest_failed is None else _failed(found.latest_failed),
            restored=None
            if restored is None
            else models.RestoredCheckpoint(
                id=restored.checkpoint_id,
                restore_timestamp=restored.restore_timestamp,
                is_savepoint=restored.is_savepoint,
                external_path=restored.external_path or None,
            ),
        ),
        history=[checkpoint(record) for record in found.history],
    )


def configuration(found: CheckpointConfiguration) -> models.CheckpointConfigurationBody:
    """GET /checkpoints/config."""
    return models.CheckpointConfigurationBody(
        mode="exactly_once" if found.exactly_once else "at_least_once",
        interval=NEVER if found.interval < 0 else found.interval,
        timeout=found.timeout,
        min_pause=found.min_pause,
        max_concurrent=found.max_concurrent,
        externalization=models.Externalization(
            enabled=found.externalized, delete_on_cancellation=found.delete_on_cancellation
        ),
        state_backend=found.state_backend,
        checkpoint_storage=found.storage,
        unaligned_checkpoints=found.unaligned,
        tolerable_failed_checkpoints=found.tolerable_failures,
        aligned_checkpoint_timeout=found.aligned_timeout,
        checkpoints_after_tasks_finish=found.after_tasks_finish,
    )


def checkpoint(record: CheckpointRecord) -> models.AnyCheckpoint:
    """One checkpoint, in the shape of its status."""
    if record.status is CheckpointStatus.COMPLETED:
        return models.CompletedCheckpointBody(**_fields(record), **_where(record), class_name="completed")
    if record.status is CheckpointStatus.FAILED:
        return _failed(record)
    return models.Checkpoint(**_fields(record))


def _completed(record: CheckpointRecord | None) -> models.CompletedCheckpointBody | None:
    if record is None:
        return None
    return models.CompletedCheckpointBody(**_fields(record), **_where(record), class_name="completed")


def _where(record: CheckpointRecord) -> dict[str, Any]:
    return {
        "external_path": record.external_path or _IN_MEMORY,
        "discarded": record.discarded,
    }


def _failed(record: CheckpointRecord) -> models.FailedCheckpoint:
    return models.FailedCheckpoint(
        **_fields(record),
        class_name="failed",
        failure_timestamp=record.end_timestamp,
        failure_message=record.failure_message or None,
    )


def _fields(record: CheckpointRecord) -> dict[str, Any]:
    return {
        "id": record.checkpoint_id,
        "status": record.status.value,
        "latest_ack_timestamp": record.latest_ack,
        "checkpointed_size": record.checkpointed_size,
        "state_size": record.state_size,
        "end_to_end_duration": record.duration,
        "alignment_buffered": 0,
        "processed_data": record.processed,
        "persisted_data": record.persisted,
        "num_subtasks": record.subtasks,
        "num_acknowledged_subtasks": record.acknowledged,
        "is_savepoint": record.kind.is_savepoint,
        "savepoint_format": _format(record),
        "trigger_timestamp": record.trigger_timestamp,
        "checkpoint_type": _type(record),
        "tasks": {vertex.vertex_id: _task(record, vertex) for vertex in record.vertices},
    }


def _format(record: CheckpointRecord) -> str | None:
    if not record.kind.is_savepoint:
        return None
    return "NATIVE" if record.native else "CANONICAL"


def _type(record: CheckpointRecord) -> str:
    if record.kind.stops_job:
        return "SYNC_SAVEPOINT"
    if record.kind is SnapshotKind.SAVEPOINT:
        return "SAVEPOINT"
    return "UNALIGNED_CHECKPOINT" if record.unaligned else "CHECKPOINT"


def _task(record: CheckpointRecord, vertex: VertexCheckpoint) -> models.TaskCheckpoint:
    return models.TaskCheckpoint(**_task_fields(record, vertex))


def _task_fields(record: CheckpointRecord, vertex: VertexCheckpoint) -> dict[str, Any]:
    status = record.status.value
    if vertex.acknowledged == vertex.subtasks and record.status is CheckpointStatus.IN_PROGRESS:
        status = CheckpointStatus.COMPLETED.value
    return {
        "id": record.checkpoint_id,
        "status": status,
        "latest_ack_timestamp": vertex.latest_ack,
        "checkpointed_size": vertex.checkpointed_size,
        "state_size": vertex.state_size,
        "end_to_end_duration": vertex.duration,
        "alignment_buffered": 0,
        "processed_data": vertex.processed,
        "persisted_data": vertex.persisted,
        "num_subtasks": vertex.subtasks,
        "num_acknowledged_subtasks": vertex.acknowledged,
    }


def vertex_details(record: CheckpointRecord, vertex: VertexCheckpoint) -> models.TaskCheckpointDetails:
    """GET /checkpoints/details/:id/subtasks/:vertex."""
    parts = vertex.parts

    def over(value: Callable[[SubtaskCheckpoint], int]) -> models.StatsSummary:
        return numbers(summary_of(sorted(value(part) for part in parts)))

    summary = models.TaskCheckpointSummary(
        checkpointed_size=over(lambda part: part.checkpointed_size),
        state_size=over(lambda part: part.state_size),
        end_to_end_duration=over(lambda part: part.duration),
        checkpoint_duration=models.CheckpointDuration(
            sync=over(lambda part: part.sync), asynchronous=over(lambda part: part.asynchronous)
        ),
        alignment=models.CheckpointAlignment(
            processed=over(lambda part: part.processed),
            persisted=over(lambda part: part.persisted),
            duration=over(lambda part: part.alignment),
        ),
        start_delay=over(lambda part: part.start_delay),
    )
    return models.TaskCheckpointDetails(
        **_task_fields(record, vertex), summary=summary, subtasks=list(_subtasks(vertex))
    )


def _subtasks(vertex: VertexCheckpoint) -> Iterable[models.SubtaskCheckpointBody]:
    parts = {part.subtask: part for part in vertex.parts}
    indexes = range(max([vertex.subtasks, *(index + 1 for index in parts)]))
    for index in indexes:
        part = parts.get(index)
        yield (
            models.SubtaskCheckpointBody(class_name="pending", index=index, status="pending_or_failed")
            if part is None
            else _subtask(part)
        )


def _subtask(part: SubtaskCheckpoint) -> models.SubtaskCheckpointBody:
    return models.SubtaskCheckpointBody(
        class_name="completed",
        index=part.subtask,
        status="completed",
        ack_timestamp=part.ack_timestamp,
        end_to_end_duration=part.duration,
        checkpointed_size=part.checkpointed_size,
        state_size=part.state_size,
        checkpoint=models.SubtaskDuration(sync=part.sync, asynchronous=part.asynchronous),
        alignment=models.SubtaskAlignment(
            buffered=0, processed=part.processed, persisted=part.persisted, duration=part.alignment
        ),
        start_delay=part.start_delay,
        unaligned_checkpoint=part.unaligned,
        aborted=False,
    )


def numbers(found: NumberSummary | None) -> models.StatsSummary:
    """A summary; without data its percentiles are "NaN"."""
    if found is None:
        return models.StatsSummary()
    return models.StatsSummary(
        min=found.min,
        max=found.max,
        avg=found.avg,
        p50=found.p50,
        p90=found.p90,
        p95=found.p95,
        p99=found.p99,
        p999=found.p999,
    )
