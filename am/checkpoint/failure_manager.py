"""CheckpointFailureManager: how many consecutive checkpoint failures a job survives.

Owner: the CheckpointCoordinator. Pure. The coordinator reports only what counts. A checkpoint that was called
off is no failure. A savepoint counts neither as failure nor as success, unless the job ends with it.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.rpc.messages import FailureCause


class CheckpointFailureManager:
    """The number of consecutive failures; a success resets it."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._count = 0

    def succeeded(self) -> None:
        """Resets the count after a completed checkpoint."""
        self._count = 0

    def failed(self, cause: FailureCause) -> FailureCause | None:
        """Counts a failure. Returns why the job must fail, which resets the count, or None if it need not."""
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
