"""CheckpointFailureManager: how many failed checkpoints in a row a job survives.

Owner: the CheckpointCoordinator. Pure. What was called off is no failure, and savepoints count neither way unless the
job ends with them: the coordinator tells only what counts.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.rpc.messages import FailureCause


class CheckpointFailureManager:
    """Failures one after the other; a success forgets them."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._count = 0

    def succeeded(self) -> None:
        """A checkpoint is complete."""
        self._count = 0

    def failed(self, cause: FailureCause) -> FailureCause | None:
        """One more; why the job is to fail, which begins the count anew, or None while it is not."""
        self._count += 1
        if self._count <= self._tolerable:
            return None
        self._count = 0
        text = (
            "Exceeded checkpoint tolerable failure threshold"
            f" (execution.checkpointing.tolerable-failed-checkpoints: {self._tolerable}). The latest checkpoint"
            f" failed: {cause.message}"
        )
        return msgspec.structs.replace(cause, message=text, stacktrace=cause.stacktrace or text)
