"""States of jobs and of executions, with their transition tables (Flink's JobStatus and ExecutionState).

Owner: the JobMaster's loop drives both machines; workers report ExecutionStates. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from yarrow.common.job_status import JobStatus


class JobType(StrEnum):
    """How a job runs: as a stream, or stage by stage over bounded input (Flink's job types)."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"


class BatchRunner(StrEnum):
    """Who runs the tasks of a job whose type is BATCH."""

    #: Spark, below a SparkDriver.
    SPARK = "SPARK"
    #: Workers of a TaskExecutor, without Java.
    LOCAL = "LOCAL"

    @property
    def driver_noun(self) -> str:
        """What people call the driver of such a job."""
        return "SparkDriver" if self is BatchRunner.SPARK else "batch driver"


class ExecutionState(StrEnum):
    """State of one attempt of one subtask."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """True when the attempt has ended."""
        return self in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


def _job(*states: JobStatus) -> frozenset[JobStatus]:
    return frozenset(states)


_J = JobStatus
JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = MappingProxyType(
    {
        _J.INITIALIZING: _job(_J.CREATED, _J.FAILED, _J.CANCELLING, _J.SUSPENDED),
        _J.CREATED: _job(_J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED),
        _J.RUNNING: _job(_J.FAILING, _J.CANCELLING, _J.FINISHED, _J.RESTARTING, _J.SUSPENDED),
        _J.FAILING: _job(_J.FAILED, _J.CANCELLING, _J.SUSPENDED),
        _J.FAILED: _job(),
        _J.CANCELLING: _job(_J.CANCELED, _J.FAILED, _J.SUSPENDED),
        _J.CANCELED: _job(),
        _J.FINISHED: _job(),
        _J.RESTARTING: _job(_J.CREATED, _J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED),
        _J.SUSPENDED: _job(),
        _J.RECONCILING: _job(_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED),
    }
)


def _execution(*states: ExecutionState) -> frozenset[ExecutionState]:
    return frozenset(states)


_E = ExecutionState
EXECUTION_TRANSITIONS: Mapping[ExecutionState, frozenset[ExecutionState]] = MappingProxyType(
    {
        _E.CREATED: _execution(_E.SCHEDULED, _E.CANCELED, _E.FAILED),
        _E.SCHEDULED: _execution(_E.DEPLOYING, _E.CANCELED, _E.FAILED),
        _E.DEPLOYING: _execution(
            _E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED
        ),
        _E.INITIALIZING: _execution(_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED),
        _E.RUNNING: _execution(_E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED),
        _E.FINISHED: _execution(),
        _E.CANCELING: _execution(_E.CANCELED, _E.FINISHED, _E.FAILED),
        _E.CANCELED: _execution(),
        _E.FAILED: _execution(),
        _E.RECONCILING: _execution(_E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED),
    }
)
