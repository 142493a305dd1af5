"""WorkerReports: routes workers' messages to the JobMaster, to files, or into the next heartbeat.

Owner: the TaskExecutor's event loop. Must not change a slot's state: it only notes there that a task ended.
"""

from __future__ import annotations

from typing import Any, Protocol

from yarrow.container.protocol.worker_protocol import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    CollectCredit,
    CoordinatorAcknowledged,
    CurrentUserCall,
    EmitCollectRows,
    EmitOperatorEvent,
    EmitWatermarkReport,
    EndOfDataReached,
    LogLines,
    MessageFromWorker,
    MetricsReport,
    OutputLines,
    TaskStateChanged,
    UserLogRecord,
)
from yarrow.container.supervisor.job_connection import EndReport, JobConnection
from yarrow.container.supervisor.output_files import OutputFiles
from yarrow.container.supervisor.slot_table import TaskExecutorSlot
from yarrow.container.supervisor.slot_workers import SlotWorker
from yarrow.container.supervisor.worker_handle import WorkerHandle
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    AccumulatorReport,
    CollectRows,
    TaskMetrics,
)


class JobLookup(Protocol):
    """Finds connections of jobs."""

    def find_job(self, job_id: JobID) -> JobConnection | None: ...


class WorkerReports:
    """Routes messages of workers, and keeps their newest metrics."""

    def __init__(self, endpoint: RpcEndpoint, files: OutputFiles, jobs: JobLookup) -> None:
        self._endpoint = endpoint
        self._files = files
        self._jobs = jobs
        self._metrics: dict[int, MetricsReport] = {}

    def handle(self, slot: TaskExecutorSlot, worker: SlotWorker, message: MessageFromWorker) -> None:
        """Routes one message; drops messages for a JobMaster that is gone."""
        match message:
            case OutputLines() | LogLines() | UserLogRecord():
                self._files.write(message)
            case CurrentUserCall():
                worker.last_call = message
            case MetricsReport():
                self._metrics[slot.index] = message
            case _:
                job = None if slot.owner is None else self._jobs.find_job(slot.owner.job_id)
                if job is not None:
                    self._report(slot, worker, job, message)

    def _report(
        self,
        slot: TaskExecutorSlot,
        worker: SlotWorker,
        job: JobConnection,
        message: MessageFromWorker,
    ) -> None:
        match message:
            case TaskStateChanged():
                if message.update.state.is_terminal:
                    slot.tasks.pop(message.update.attempt_id, None)
                job.report(message.update)
            case EmitOperatorEvent():
                job.report(message.event)
            case EmitWatermarkReport():
                job.report_watermark(message.report)
            case CheckpointAcknowledged() | CoordinatorAcknowledged():
                job.report(message.acknowledgement)
            case CheckpointDeclined():
                job.report(message.decline)
            case EndOfDataReached():
                job.report(EndReport(message.attempt_id))
            case EmitCollectRows():
                self._endpoint.spawn(
                    self._push_collected(job, worker.handle, message.rows), f"collect-{job.job_id}"
                )

    async def _push_collected(self, job: JobConnection, worker: WorkerHandle, rows: CollectRows) -> None:
        confirmation = await job.push_collected(rows)
        if confirmation is not None:
            worker.send(
                CollectCredit(
                    job_id=rows.job_id,
                    attempt_id=rows.attempt_id,
                    collect_id=rows.collect_id,
                    sequence=rows.sequence,
                    confirmed=confirmation.positions,
                )
            )

    def forget(self, slot: TaskExecutorSlot) -> None:
        """Forgets the ended worker of a slot."""
        self._metrics.pop(slot.index, None)

    def task_metrics(self, slots: tuple[TaskExecutorSlot, ...]) -> tuple[TaskMetrics, ...]:
        """Newest metrics of running tasks."""
        return tuple(
            task for slot, report in self._of(slots) for task in report.tasks if task.attempt_id in slot.tasks
        )

    def accumulators(self, slots: tuple[TaskExecutorSlot, ...]) -> tuple[AccumulatorReport, ...]:
        """Newest accumulators of running tasks."""
        found: list[tuple[ExecutionAttemptID, dict[str, Any]]] = [
            (attempt, values)
            for slot, report in self._of(slots)
            for attempt, values in report.accumulators.items()
            if attempt in slot.tasks
        ]
        return tuple(AccumulatorReport(attempt_id=attempt, values=values) for attempt, values in found)

    def process_metrics(self) -> list[dict[str, float]]:
        """Newest process metrics of each worker."""
        return [report.process for report in self._metrics.values()]

    def _of(self, slots: tuple[TaskExecutorSlot, ...]) -> list[tuple[TaskExecutorSlot, MetricsReport]]:
        return [(slot, self._metrics[slot.index]) for slot in slots if slot.index in self._metrics]
