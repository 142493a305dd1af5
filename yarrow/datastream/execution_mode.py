"""RuntimeExecutionMode: whether a program runs as a stream or as a batch. A value."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """The way in which a program is executed."""

    #: All tasks run at once and results appear as records come.
    STREAMING = 0
    #: Stages run one after the other over bounded inputs; only final results appear.
    BATCH = 1
    #: BATCH when every source is bounded, else STREAMING.
    AUTOMATIC = 2
