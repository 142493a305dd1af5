"""TimeDomain: which clock a timer belongs to. A value."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """The clock of a timer."""

    #: Time as watermarks tell it.
    EVENT_TIME = 0
    #: Time as the machine's clock tells it.
    PROCESSING_TIME = 1
