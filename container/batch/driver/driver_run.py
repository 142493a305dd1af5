"""DriverRun: a run as its driver sees it, without Spark.

Owner: the driver's loop. It stands apart so that a driver can say why Spark cannot run here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.rpc.messages import BatchResult, BatchSubmission, FailureCause, StageSubmission


class RunEnd(enum.Enum):
    """How a run ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"


class DriverRun(Protocol):
    """One execution of a job's plan."""

    @property
    def submission(self) -> BatchSubmission:
        """The submission of the master that this run carries out."""
        ...

    async def execute(self) -> tuple[RunEnd, FailureCause | None]:
        """Runs the plan to its end, with the cause of a failure."""
        ...

    def cancel(self) -> None:
        """Begins to end the run."""
        ...

    def submit_stage(self, submission: StageSubmission) -> None:
        """Begins an attempt of a stage. Raises BatchRunError if the job is no pipeline."""
        ...

    def change_rate_limits(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Takes other rate limits of sources and sinks."""
        ...

    def java_ended(self, cause: FailureCause) -> None:
        """Ends the run, because Spark is gone."""
        ...

    def orphaned(self) -> None:
        """Removes at once what nobody else would remove, because the master has died. Any thread; may block."""
        ...

    def result(self) -> BatchResult:
        """The message about a run that has finished."""
        ...


#: Makes a run that has a folder of its own.
MakeRun = Callable[[BatchSubmission, Path], DriverRun]
