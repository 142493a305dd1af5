"""CheckpointingMode and TimeCharacteristic: choices that hold for a whole job. Values, usable from any thread."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode", "TimeCharacteristic"]


class CheckpointingMode(Enum):
    """How often a record counts in the state after a failure."""

    #: Once: barriers are aligned, or the records they overtake are saved.
    EXACTLY_ONCE = 0
    #: Once or more: barriers hold nothing up.
    AT_LEAST_ONCE = 1


class TimeCharacteristic(Enum):
    """Which time a whole program goes by; the older name of the choice between clocks."""

    PROCESSING_TIME = 0
    INGESTION_TIME = 1
    EVENT_TIME = 2
