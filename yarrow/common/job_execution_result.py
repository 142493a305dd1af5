"""JobExecutionResult: the result of a job that has finished. Plain data, usable from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yarrow.common.job_id import JobID

__all__ = ["JobExecutionResult"]


@dataclass(frozen=True)
class JobExecutionResult:
    """Id, run time in milliseconds and final accumulators of a finished job."""

    job_id: JobID
    net_runtime: int
    accumulators: Mapping[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return milliseconds from the first task's start to the job's end."""
        return self.net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the final value of an accumulator.

        Raises KeyError, naming the present accumulators, when the job has none of this name.
        """
        if accumulator_name not in self.accumulators:
            there_are = ", ".join(sorted(self.accumulators)) or "none"
            raise KeyError(f"job {self.job_id} has no accumulator {accumulator_name!r}; it has: {there_are}")
        return self.accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the final values of all accumulators by name."""
        return dict(self.accumulators)

    def is_job_execution_result(self) -> bool:
        """Whether the result is complete, as it always is once a job has ended."""
        return True
