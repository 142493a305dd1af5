"""JobClient: the handle on a submitted job.

The interface alone. Each way of running a program (embedded, remote, YARN) has its own client. All methods
return at once, are safe to call from any thread, and answer through a CompletableFuture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """A handle on one job, attached or detached."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Ask for the state of the job."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; done when the cluster has taken the request."""

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stop the job with a savepoint; the answer is its path.

        With `advance_to_end_of_event_time` the sources send the last watermark before, so that every
        event-time timer fires. Without a directory the configured one is used.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Make a savepoint while the job runs on; the answer is its path."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Ask for the values of all accumulators so far, by name."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Wait for the end of the job.

        The future fails with the job's error when it fails or is cancelled.
        """
