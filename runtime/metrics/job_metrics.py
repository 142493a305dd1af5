"""Metrics of a job and of the control plane, under Flink's names, made from the answers of the gateways.

Owner: none (pure). States are stamped when they are entered last, so a `<state>TimeTotal` counts the last
stay only, but that of RESTARTING, which the JobMaster adds up.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.job_status import JobStatus
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import AttemptDetails, ClusterOverview, ExecutionGraphDetails

_TIMED: Final = (
    ("initializing", JobStatus.INITIALIZING),
    ("created", JobStatus.CREATED),
    ("running", JobStatus.RUNNING),
    ("restarting", JobStatus.RESTARTING),
    ("cancelling", JobStatus.CANCELLING),
    ("failing", JobStatus.FAILING),
)

#: Values of a job that has taken no checkpoint.
_NO_CHECKPOINTS: Final = {
    "lastCheckpointDuration": -1.0,
    "lastCheckpointSize": -1.0,
    "lastCheckpointFullSize": -1.0,
    "lastCheckpointMetadataSize": -1.0,
    "lastCheckpointProcessedData": -1.0,
    "lastCheckpointPersistedData": -1.0,
    "lastCheckpointRestoreTimestamp": -1.0,
    "lastCheckpointCompletedTimestamp": -1.0,
    "lastCompletedCheckpointId": -1.0,
    "numberOfInProgressCheckpoints": 0.0,
    "numberOfCompletedCheckpoints": 0.0,
    "numberOfFailedCheckpoints": 0.0,
    "totalNumberOfCheckpoints": 0.0,
}


def job_metrics(details: ExecutionGraphDetails, now_ms: int) -> dict[str, float]:
    """The metrics of scope job."""
    status = details.status
    since = details.timestamps.get(status.value, 0)
    here = max(0, now_ms - since) if since else 0
    waiting = status in (JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.FAILED)
    values: dict[str, float] = {
        "uptime": here
        if status is JobStatus.RUNNING
        else -1.0
        if status.is_globally_terminal_state()
        else 0.0,
        "downtime": here if waiting and not status.is_globally_terminal_state() else 0.0,
        "numRestarts": details.restarts,
        "fullRestarts": details.restarts,
        "numRescales": float(sum(record.state == "COMPLETED" for record in details.rescales)),
        "allSubTasksRunningOrFinishedTime": _all_running_time(details, now_ms),
    }
    for name, timed in _TIMED:
        values[f"{name}State"] = float(status is timed)
        values[f"{name}Time"] = here if status is timed else 0.0
        values[f"{name}TimeTotal"] = _stay(details, timed, now_ms)
    values["restartingTimeTotal"] = float(details.restarting_ms)
    deploying = [task for task in _tasks(details) if task.state is ExecutionState.DEPLOYING]
    since_deploying = min((task.timestamps.get("DEPLOYING", now_ms) for task in deploying), default=now_ms)
    values["deployingState"] = float(bool(deploying))
    values["deployingTime"] = values["deployingTimeTotal"] = max(0, now_ms - since_deploying)
    return values | _NO_CHECKPOINTS | details.checkpoint_metrics


def _tasks(details: ExecutionGraphDetails) -> list[AttemptDetails]:
    return [task for vertex in details.vertices for task in vertex.subtasks]


def _all_running_time(details: ExecutionGraphDetails, now_ms: int) -> float:
    tasks = _tasks(details)
    fine = (ExecutionState.RUNNING, ExecutionState.FINISHED)
    if details.status is not JobStatus.RUNNING or not tasks or any(task.state not in fine for task in tasks):
        return 0.0
    return float(max(0, now_ms - max(task.timestamps.get("RUNNING", now_ms) for task in tasks)))


def _stay(details: ExecutionGraphDetails, status: JobStatus, now_ms: int) -> float:
    begin = details.timestamps.get(status.value, 0)
    if not begin:
        return 0.0
    later = [stamp for stamp in details.timestamps.values() if stamp > begin]
    end = min(later, default=begin if details.status.is_globally_terminal_state() else now_ms)
    return float(max(0, end - begin))


def job_manager_metrics(overview: ClusterOverview) -> dict[str, float]:
    """The metrics of scope jobmanager without those of the process."""
    return {
        "numRegisteredTaskManagers": overview.task_executors,
        "numPendingTaskManagers": overview.pending_task_executors,
        "numRunningJobs": overview.jobs_running,
        "taskSlotsTotal": overview.slots_total,
        "taskSlotsAvailable": overview.slots_available,
    }
