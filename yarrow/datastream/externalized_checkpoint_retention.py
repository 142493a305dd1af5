"""ExternalizedCheckpointRetention: what becomes of checkpoints when a job is cancelled. A value."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """Which checkpoints outlive the job. After a failure the last one stays in the first two cases."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
