"""TimeCharacteristic: the older name of the choice between clocks; new programs choose by their window assigners."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """Which time a whole program goes by."""

    PROCESSING_TIME = 0
    INGESTION_TIME = 1
    EVENT_TIME = 2
