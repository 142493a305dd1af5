"""CheckpointingMode: what a checkpoint promises about records after a failure. A value."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """How often a record counts in the state after a failure."""

    #: Once: barriers are aligned, or the records they overtake are saved.
    EXACTLY_ONCE = 0
    #: Once or more: barriers hold nothing up.
    AT_LEAST_ONCE = 1
