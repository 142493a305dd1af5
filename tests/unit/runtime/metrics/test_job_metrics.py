"""Metrics of jobs and of the process."""

from __future__ import annotations

import msgspec

from tests.unit.am.checkpoint.simulation import Simulation
from tests.unit.am.rest.fakes import ENDED_JOB, JOB, NOW, STARTED, job_details
from yarrow.common.job_status import JobStatus
from yarrow.runtime.metrics.job_metrics import job_metrics
from yarrow.runtime.metrics.process_metrics import process_metrics

#: What dashboards read of a job's checkpoints; lastCheckpointExternalPath is a text, which REST alone tells.
CHECKPOINT_METRICS = {
    "lastCheckpointDuration",
    "lastCheckpointSize",
    "lastCheckpointFullSize",
    "lastCheckpointMetadataSize",
    "lastCheckpointProcessedData",
    "lastCheckpointPersistedData",
    "lastCheckpointRestoreTimestamp",
    "lastCheckpointCompletedTimestamp",
    "lastCompletedCheckpointId",
    "numberOfInProgressCheckpoints",
    "numberOfCompletedCheckpoints",
    "numberOfFailedCheckpoints",
    "totalNumberOfCheckpoints",
}


def test_metrics_of_checkpoints_are_there_before_the_first_one() -> None:
    found = job_metrics(job_details(JOB, JobStatus.RUNNING), NOW)
    assert found.keys() >= CHECKPOINT_METRICS
    simulation = Simulation()
    simulation.after(10)
    simulation.complete(1)
    restored = simulation.coordinator.store.latest
    assert restored is not None
    simulation.coordinator.statistics.restored(restored)
    told = simulation.coordinator.statistics.metrics()
    assert told.keys() == CHECKPOINT_METRICS and all(value >= 0 for value in told.values())


def test_running_job_is_up_since_it_runs() -> None:
    found = job_metrics(job_details(JOB, JobStatus.RUNNING), NOW)
    assert found["uptime"] == found["runningTime"] == NOW - STARTED - 2
    assert (found["downtime"], found["runningState"], found["createdState"]) == (0, 1, 0)
    assert found["createdTimeTotal"] == 1
    assert found["numRestarts"] == 1
    assert found["allSubTasksRunningOrFinishedTime"] == NOW - STARTED - 2000


def test_ended_job_is_not_up() -> None:
    found = job_metrics(job_details(ENDED_JOB, JobStatus.FINISHED), NOW)
    assert (found["uptime"], found["runningState"], found["allSubTasksRunningOrFinishedTime"]) == (-1, 0, 0)
    assert found["runningTimeTotal"] == 20_000 - 2


def test_restarting_job_is_down() -> None:
    job = job_details(JOB, JobStatus.RUNNING)
    stamps = {**job.timestamps, "RESTARTING": NOW - 500}
    found = job_metrics(msgspec.structs.replace(job, status=JobStatus.RESTARTING, timestamps=stamps), NOW)
    assert (found["downtime"], found["restartingTime"], found["uptime"]) == (500, 500, 0)


def test_process_has_memory_threads_and_descriptors() -> None:
    found = process_metrics()
    assert found["Status.JVM.Memory.Heap.Used"] > 1 << 20
    assert found["Status.JVM.Threads.Count"] >= 1
    assert found["Status.JVM.FileDescriptor.Open"] > 2
    assert found["Status.JVM.CPU.Time"] > 0
