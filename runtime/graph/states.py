"""States of jobs and of executions, with their transition tables (Flink's JobStatus and ExecutionState).

Owner: the JobMaster's loop drives both machines; workers report ExecutionStates. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.state_machine import transitions


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


_J = JobStatus
JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = transitions(
    {
        _J.INITIALIZING: (_J.CREATED, _J.FAILED, _J.CANCELLING, _J.SUSPENDED),
        _J.CREATED: (_J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED),
        _J.RUNNING: (_J.FAILING, _J.CANCELLING, _J.FINISHED, _J.RESTARTING, _J.SUSPENDED),
        _J.FAILING: (_J.FAILED, _J.CANCELLING, _J.SUSPENDED),
        _J.FAILED: (),
        _J.CANCELLING: (_J.CANCELED, _J.FAILED, _J.SUSPENDED),
        _J.CANCELED: (),
        _J.FINISHED: (),
        _J.RESTARTING: (_J.CREATED, _J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED),
        _J.SUSPENDED: (),
        _J.RECONCILING: (_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED),
    }
)


_E = ExecutionState
EXECUTION_TRANSITIONS: Mapping[ExecutionState, frozenset[ExecutionState]] = transitions(
    {
        _E.CREATED: (_E.SCHEDULED, _E.CANCELED, _E.FAILED),
        _E.SCHEDULED: (_E.DEPLOYING, _E.CANCELED, _E.FAILED),
        _E.DEPLOYING: (_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED),
        _E.INITIALIZING: (_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED),
        _E.RUNNING: (_E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED),
        _E.FINISHED: (),
        _E.CANCELING: (_E.CANCELED, _E.FINISHED, _E.FAILED),
        _E.CANCELED: (),
        _E.FAILED: (),
        _E.RECONCILING: (_E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED),
    }
)
