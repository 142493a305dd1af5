"""CheckpointApi: requests of workers, the Dispatcher and users to a JobMaster about checkpoints.

Owner: the JobMaster's loop. The CheckpointLink passes each message to the CheckpointCoordinator, which
decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.checkpoint.targets import savepoint_target
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.data.checkpoint_options import CheckpointType, SnapshotKind
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    DeclineCheckpoint,
    SavepointFormat,
    SavepointRequest,
)


class CheckpointApi:
    """Answers requests about the checkpoints and savepoints of one job."""

    def __init__(
        self,
        link: CheckpointLink,
        savepoint_directory: str,
        cancel: Callable[[], None],
        wait_until_ended: Callable[[], Awaitable[JobStatus]],
    ) -> None:
        """`savepoint_directory`: the folder of savepoints that name none.

        `cancel` and `wait_until_ended` act on the job.
        """
        self._link = link
        self._savepoint_directory = savepoint_directory
        self._cancel = cancel
        self._wait_until_ended = wait_until_ended

    # For workers.

    def take(
        self, message: AcknowledgeCheckpoint | AcknowledgeCoordinator | DeclineCheckpoint
    ) -> Acknowledge:
        """Takes a message of a task or a split enumerator about its part of a checkpoint."""
        self._link.handle(message)
        return Acknowledge()

    def end_of_data(self, attempts: tuple[ExecutionAttemptID, ...]) -> Acknowledge:
        """Notes that these tasks are at the end of their input and wait for a checkpoint."""
        self._link.end_of_data(attempts)
        return Acknowledge()

    # For the Dispatcher.

    @property
    def statistics(self) -> CheckpointStatisticsTracker:
        """Statistics of the job's checkpoints; they outlive the JobMaster."""
        return self._link.coordinator.statistics

    @property
    def left_some(self) -> bool:
        """True if the job has ended and some checkpoints that should have been deleted could not be."""
        return self._link.left_some

    async def trigger_checkpoint(self, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED) -> int:
        """Takes a checkpoint now; returns its id once it is complete.

        Raises CheckpointFailedError with the cause.
        """
        kind = SnapshotKind.CHECKPOINT
        return (await self._link.request(kind, checkpoint_type=checkpoint_type)).checkpoint_id

    async def trigger_savepoint(self, request: SavepointRequest) -> str:
        """Takes a savepoint, and ends the job with it if asked to; returns the path when both are done.

        Raises InvalidSavepointPathError for an unusable target, and CheckpointFailedError with the cause of
        any other failure.
        """
        directory = savepoint_target(request.target_directory, self._savepoint_directory)
        native = request.format_type is SavepointFormat.NATIVE
        restart = self._link.next_restart()
        checkpoint = await self._link.request(request.kind, directory, request.cancel_job, native=native)
        if not (request.kind.stops_job or request.cancel_job):
            return checkpoint.pointer
        if request.cancel_job:
            self._cancel()
        status = await self._end_or_restart(checkpoint.pointer, restart)
        expected = JobStatus.CANCELED if request.cancel_job else JobStatus.FINISHED
        if status is not expected:
            raise CheckpointFailedError(
                f"the savepoint {checkpoint.pointer} is complete, but the job did not end with it: its "
                f"status is {status.value}. Start the job again from that savepoint."
            )
        return checkpoint.pointer

    async def _end_or_restart(self, savepoint: str, restart: asyncio.Future[None]) -> JobStatus:
        """The final status of the job.

        Raises CheckpointFailedError if a task failed and the job restarts instead.
        """
        ended = asyncio.ensure_future(self._wait_until_ended())
        try:
            await asyncio.wait((ended, restart), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
        finally:
            ended.cancel()
        raise CheckpointFailedError(
            f"the savepoint {savepoint} is complete, but a task failed before the job had ended: the job "
            "goes on from that savepoint. Look at the exceptions of the job, and stop the job again."
        )
