"""CheckpointStatisticsTracker: statistics of a job's checkpoints for REST and metrics.

Owner: the JobMaster's loop; the Dispatcher reads it on the same loop, also after the job's end. Pure except
for the injected clock. Records of ended checkpoints are kept for the newest `web.checkpoints.history` ones,
and for the last of each kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.pending import PendingCheckpoint
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.checkpoint_statistics import (
    BarrierWait,
    CheckpointConfiguration,
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    CheckpointSummary,
    CountedCheckpoints,
    ExternalizedCheckpoints,
    LatestRecords,
    NumberSummary,
    PhaseDurations,
    RestoredRecord,
    SubtaskCheckpoint,
    VertexCheckpoint,
    summary_of,
)
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint, FailureCause

#: Flink's interval of a job that takes no checkpoints by itself.
NEVER = 2**63 - 1
#: Number of completed checkpoints over which percentiles are taken.
_SAMPLES = 1000
#: Numbers of a checkpoint that are those of its vertices together.
_SUMS = (
    "checkpointed_size",
    "state_size",
    "processed_data",
    "persisted_data",
    "num_subtasks",
    "num_acknowledged_subtasks",
)
_BACKENDS = {"hashmap": "HashMapStateBackend", "rocksdb": "EmbeddedRocksDBStateBackend"}
_STORAGES = {"jobmanager": "JobManagerCheckpointStorage", "filesystem": "FileSystemCheckpointStorage"}


class CheckpointStatisticsTracker:
    """Follows the checkpoints of one job from begin to end."""

    def __init__(self, job: JobGraph, settings: CheckpointSettings, clock: Clock) -> None:
        self._names = {vertex.id: vertex.name for vertex in job.vertices}
        self._clock = clock
        self._configuration = configuration_record(settings)
        self._running: dict[int, _Running] = {}
        self._ended: deque[CheckpointRecord] = deque(maxlen=settings.history)
        self._completed = 0
        self._failed = 0
        self._restored_count = 0
        self._restored: RestoredRecord | None = None
        self._latest: dict[str, CheckpointRecord] = {}
        self._samples: dict[str, _Samples] = {
            name: _Samples() for name in CheckpointSummary.__struct_fields__
        }

    # Events.

    def begun(self, pending: PendingCheckpoint, options: tuple[bool, bool, int], job: JobGraph) -> None:
        """Records the begin of a checkpoint with each vertex of the job as it runs now: Flink's page asks for them."""
        running = _Running(pending, {vertex.id: vertex.parallelism for vertex in job.vertices}, options[1])
        self._running[pending.checkpoint_id] = running

    def planned(self, pending: PendingCheckpoint) -> None:
        """Records its participants: subtasks that had ended count as acknowledged, as in Flink.

        Call it again when more have ended.
        """
        assert pending.plan is not None
        parts = self._running[pending.checkpoint_id].parts
        now = self._clock.epoch_ms()
        for vertex_id, subtasks in pending.plan.finished.items():
            known = parts.setdefault(vertex_id, {})
            for subtask in subtasks:
                if subtask not in known:
                    known[subtask] = _of_ended(subtask, pending, now)

    def acknowledged(self, pending: PendingCheckpoint, message: AcknowledgeCheckpoint) -> None:
        """Records a task's acknowledgement."""
        assert pending.plan is not None
        vertex_id, subtask = pending.plan.acknowledge[message.attempt_id]
        now = self._clock.epoch_ms()
        metrics = message.metrics
        part = SubtaskCheckpoint(
            index=subtask,
            ack_timestamp=now,
            end_to_end_duration=max(0, now - pending.timestamp_ms),
            checkpointed_size=metrics.checkpointed_size,
            state_size=sum(state.state_size for state in message.states.values()),
            checkpoint_duration=PhaseDurations(
                sync=round(metrics.sync_ms), asynchronous=round(metrics.async_ms)
            ),
            alignment=BarrierWait(
                processed=metrics.processed_bytes,
                persisted=metrics.persisted_bytes,
                duration=round(metrics.alignment_ms),
            ),
            start_delay=round(metrics.start_delay_ms),
            unaligned_checkpoint=metrics.unaligned,
        )
        self._running[pending.checkpoint_id].parts.setdefault(vertex_id, {})[subtask] = part

    def completed(
        self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, metadata_size: int = -1
    ) -> None:
        """Records its completion and the size of its metadata in bytes, -1 = unknown."""
        record = self._end(
            pending, CheckpointStatus.COMPLETED, external_path=checkpoint.pointer, metadata_size=metadata_size
        )
        self._completed += 1
        self._latest["savepoint" if record.kind.is_savepoint else "completed"] = record
        for name, samples in self._samples.items():
            samples.add(getattr(record, name))

    def failed(self, pending: PendingCheckpoint, cause: FailureCause) -> None:
        """Records that it was aborted."""
        self._latest["failed"] = self._end(pending, CheckpointStatus.FAILED, failure_message=cause.message)
        self._failed += 1

    def discarded(self, checkpoint_id: int) -> None:
        """Records that its files are being deleted."""
        for index, record in enumerate(self._ended):
            if record.id == checkpoint_id:
                self._ended[index] = msgspec.structs.replace(record, discarded=True)
        for name, record in self._latest.items():
            if record.id == checkpoint_id:
                self._latest[name] = msgspec.structs.replace(record, discarded=True)

    def restored(self, checkpoint: CompletedCheckpoint) -> None:
        """Records that tasks are restored from it."""
        self._restored_count += 1
        self._restored = RestoredRecord(
            id=checkpoint.checkpoint_id,
            restore_timestamp=self._clock.epoch_ms(),
            is_savepoint=checkpoint.kind.is_savepoint,
            external_path=checkpoint.pointer,
        )

    def _end(
        self,
        pending: PendingCheckpoint,
        status: CheckpointStatus,
        external_path: str = "",
        failure_message: str = "",
        metadata_size: int = -1,
    ) -> CheckpointRecord:
        running = self._running.pop(pending.checkpoint_id)
        now = self._clock.epoch_ms()
        record = msgspec.structs.replace(
            running.record(self._names, now, status),
            end_timestamp=now,
            external_path=external_path,
            failure_message=failure_message,
            metadata_size=metadata_size,
        )
        self._ended.appendleft(record)
        return record

    # Answers.

    def statistics(self) -> CheckpointStatistics:
        """Everything except the parts of subtasks."""
        now = self._clock.epoch_ms()
        running = [item.record(self._names, now) for item in reversed(self._running.values())]
        return CheckpointStatistics(
            configuration=self._configuration,
            counts=CountedCheckpoints(
                restored=self._restored_count,
                total=len(running) + self._completed + self._failed,
                in_progress=len(running),
                completed=self._completed,
                failed=self._failed,
            ),
            summary=CheckpointSummary(**{name: samples.summary() for name, samples in self._samples.items()}),
            latest=LatestRecords(
                **{name: _without_parts(record) for name, record in self._latest.items()},
                restored=self._restored,
            ),
            history=tuple(_without_parts(record) for record in (*running, *self._ended)),
        )

    def metrics(self) -> dict[str, float]:
        """Flink's metrics of scope job. Those of a last checkpoint are absent while none is complete."""
        values: dict[str, float] = {
            "numberOfInProgressCheckpoints": len(self._running),
            "numberOfCompletedCheckpoints": self._completed,
            "numberOfFailedCheckpoints": self._failed,
            "totalNumberOfCheckpoints": len(self._running) + self._completed + self._failed,
        }
        if self._restored is not None:
            values["lastCheckpointRestoreTimestamp"] = self._restored.restore_timestamp
        if (last := self._last_completed()) is not None:
            values |= {
                "lastCheckpointDuration": last.end_to_end_duration,
                "lastCheckpointSize": last.checkpointed_size,
                "lastCheckpointFullSize": last.state_size,
                "lastCheckpointMetadataSize": last.metadata_size,
                "lastCheckpointProcessedData": last.processed_data,
                "lastCheckpointPersistedData": last.persisted_data,
                "lastCheckpointCompletedTimestamp": last.end_timestamp,
                "lastCompletedCheckpointId": last.id,
            }
        return values

    @property
    def last_path(self) -> str:
        """The path of the last completed checkpoint, "" = none: Flink's lastCheckpointExternalPath."""
        last = self._last_completed()
        return "" if last is None else last.external_path

    def _last_completed(self) -> CheckpointRecord | None:
        ended = [self._latest[name] for name in ("completed", "savepoint") if name in self._latest]
        return max(ended, key=lambda record: record.id, default=None)

    def record(self, checkpoint_id: int) -> CheckpointRecord | None:
        """One checkpoint with the parts of its subtasks; None if it is unknown or forgotten."""
        if (running := self._running.get(checkpoint_id)) is not None:
            return running.record(self._names, self._clock.epoch_ms())
        for record in (*self._ended, *self._latest.values()):
            if record.id == checkpoint_id:
                return record
        return None


class _Running:
    def __init__(
        self, pending: PendingCheckpoint, expected: Mapping[JobVertexID, int], unaligned: bool
    ) -> None:
        self.pending = pending
        self.unaligned = unaligned
        #: Subtasks by vertex.
        self.expected = expected
        self.parts: dict[JobVertexID, dict[int, SubtaskCheckpoint]] = {}

    def record(
        self,
        names: dict[JobVertexID, str],
        now: int,
        status: CheckpointStatus = CheckpointStatus.IN_PROGRESS,
    ) -> CheckpointRecord:
        pending = self.pending
        vertices = tuple(
            self._vertex(vertex_id, names[vertex_id], count, status)
            for vertex_id, count in self.expected.items()
        )
        return CheckpointRecord(
            id=pending.checkpoint_id,
            status=status,
            kind=pending.kind,
            native=pending.native,
            unaligned=self.unaligned,
            trigger_timestamp=pending.timestamp_ms,
            end_to_end_duration=max(0, now - pending.timestamp_ms),
            vertices=vertices,
            latest_ack_timestamp=max((vertex.latest_ack_timestamp for vertex in vertices), default=-1),
            **{name: sum(getattr(vertex, name) for vertex in vertices) for name in _SUMS},
        )

    def _vertex(
        self, vertex_id: JobVertexID, name: str, expected: int, status: CheckpointStatus
    ) -> VertexCheckpoint:
        parts = [part for _, part in sorted(self.parts.get(vertex_id, {}).items())]
        if len(parts) == expected and status is CheckpointStatus.IN_PROGRESS:
            status = CheckpointStatus.COMPLETED
        return VertexCheckpoint(
            id=self.pending.checkpoint_id,
            status=status,
            vertex_id=vertex_id,
            name=name,
            num_subtasks=expected,
            num_acknowledged_subtasks=len(parts),
            latest_ack_timestamp=max((part.ack_timestamp for part in parts), default=-1),
            checkpointed_size=sum(part.checkpointed_size for part in parts),
            state_size=sum(part.state_size for part in parts),
            end_to_end_duration=max((part.end_to_end_duration for part in parts), default=-1),
            processed_data=sum(part.alignment.processed for part in parts),
            persisted_data=sum(part.alignment.persisted for part in parts),
            parts=tuple(parts),
        )


def _of_ended(subtask: int, pending: PendingCheckpoint, now: int) -> SubtaskCheckpoint:
    """The part of a subtask that had nothing to add."""
    return SubtaskCheckpoint(
        index=subtask,
        ack_timestamp=now,
        end_to_end_duration=max(0, now - pending.timestamp_ms),
        checkpointed_size=0,
        state_size=0,
        checkpoint_duration=PhaseDurations(sync=0, asynchronous=0),
        alignment=BarrierWait(processed=0, persisted=0, duration=0),
        start_delay=0,
        unaligned_checkpoint=False,
    )


def _without_parts(record: CheckpointRecord) -> CheckpointRecord:
    vertices = tuple(msgspec.structs.replace(vertex, parts=()) for vertex in record.vertices)
    return msgspec.structs.replace(record, vertices=vertices)


class _Samples:
    """Minimum, maximum and mean of all values, and the newest values for percentiles."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0
        self._min = 0
        self._max = 0
        self._newest: deque[int] = deque(maxlen=_SAMPLES)

    def add(self, value: int) -> None:
        self._min = value if not self._count else min(self._min, value)
        self._max = max(self._max, value)
        self._count += 1
        self._sum += value
        self._newest.append(value)

    def summary(self) -> NumberSummary | None:
        return summary_of(sorted(self._newest), self._min, self._max, self._sum // max(1, self._count))


def configuration_record(settings: CheckpointSettings) -> CheckpointConfiguration:
    """The settings in the form of REST."""
    retention = settings.retention
    return CheckpointConfiguration(
        mode="exactly_once" if settings.exactly_once else "at_least_once",
        interval=NEVER if settings.interval is None else round(settings.interval * 1000),
        timeout=round(settings.timeout * 1000),
        min_pause=round(settings.min_pause * 1000),
        max_concurrent=settings.max_concurrent,
        externalization=ExternalizedCheckpoints(
            enabled=retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
            delete_on_cancellation=retention is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        ),
        state_backend=_BACKENDS.get(settings.state_backend, settings.state_backend),
        checkpoint_storage=settings.custom_storage or _STORAGES[settings.storage.value],
        unaligned_checkpoints=settings.unaligned,
        tolerable_failed_checkpoints=settings.tolerable_failures,
        aligned_checkpoint_timeout=settings.aligned_timeout_ms,
        checkpoints_after_tasks_finish=settings.after_tasks_finish,
    )
