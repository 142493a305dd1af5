"""CheckpointRequests: what workers, the Dispatcher and its users ask of a JobMaster about checkpoints.

Owner: the JobMaster's loop. A part of the JobMaster class, apart from scheduling; decisions are the coordinator's.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from yarrow.am.checkpoint.statistics import CheckpointStatisticsTracker
from yarrow.am.checkpoint.targets import savepoint_target
from yarrow.am.jobmaster.checkpoints.checkpoint_link import CheckpointLink
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.data.checkpoint_options import CheckpointType, SnapshotKind
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    DeclineCheckpoint,
    SavepointFormat,
    SavepointRequest,
)


class CheckpointRequests(RpcEndpoint):
    """The methods of a JobMaster that its CheckpointLink answers."""

    _checkpoints: CheckpointLink
    #: Where savepoints go that name no place.
    _savepoint_directory: str

    @abstractmethod
    def cancel(self) -> None:
        """Starts cancelling."""

    @abstractmethod
    async def wait_until_ended(self) -> JobStatus:
        """Returns when the job has ended."""

    # The gateway: workers.

    async def acknowledge_checkpoint(self, acknowledgement: AcknowledgeCheckpoint) -> Acknowledge:
        self._checkpoints.handle(acknowledgement)
        return Acknowledge()

    async def acknowledge_coordinator(self, acknowledgement: AcknowledgeCoordinator) -> Acknowledge:
        self._checkpoints.handle(acknowledgement)
        return Acknowledge()

    async def decline_checkpoint(self, decline: DeclineCheckpoint) -> Acknowledge:
        self._checkpoints.handle(decline)
        return Acknowledge()

    async def notify_end_of_data(
        self, job_id: JobID, attempts: tuple[ExecutionAttemptID, ...]
    ) -> Acknowledge:
        self._checkpoints.end_of_data(attempts)
        return Acknowledge()

    # For the Dispatcher.

    @property
    def checkpoint_statistics(self) -> CheckpointStatisticsTracker:
        """What is shown of the job's checkpoints; it outlives the JobMaster."""
        return self._checkpoints.coordinator.statistics

    async def trigger_checkpoint(self, checkpoint_type: CheckpointType = CheckpointType.CONFIGURED) -> int:
        """Takes a checkpoint now; its id when it is complete. Raises CheckpointFailedError with the cause."""
        kind = SnapshotKind.CHECKPOINT
        return (await self._checkpoints.request(kind, checkpoint_type=checkpoint_type)).checkpoint_id

    async def trigger_savepoint(self, request: SavepointRequest) -> str:
        """Takes a savepoint and ends the job with it where asked; its path when all that is done.

        Raises InvalidSavepointPathError for a place that cannot be, CheckpointFailedError with the cause of anything
        else.
        """
        directory = savepoint_target(request.target_directory, self._savepoint_directory)
        native = request.format_type is SavepointFormat.NATIVE
        restart = self._checkpoints.next_restart()
        checkpoint = await self._checkpoints.request(
            request.kind, directory, request.cancel_job, native=native
        )
        if not (request.kind.stops_job or request.cancel_job):
            return checkpoint.pointer
        if request.cancel_job:
            self.cancel()
        status = await self._end_or_restart(checkpoint.pointer, restart)
        expected = JobStatus.CANCELED if request.cancel_job else JobStatus.FINISHED
        if status is not expected:
            raise CheckpointFailedError(
                f"the savepoint {checkpoint.pointer} is complete, but the job did not end as it should: it is"
                f" {status.value}. Start it again from that savepoint."
            )
        return checkpoint.pointer

    async def _end_or_restart(self, savepoint: str, restart: asyncio.Future[None]) -> JobStatus:
        """How the job has ended; raises CheckpointFailedError where it goes on instead, since a task has failed."""
        ended = asyncio.ensure_future(self.wait_until_ended())
        try:
            await asyncio.wait((ended, restart), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
        finally:
            ended.cancel()
        raise CheckpointFailedError(
            f"the savepoint {savepoint} is complete, but a task failed before the job had ended: the job goes on from"
            " that savepoint. See its exceptions, and stop it again."
        )
