"""Choices that hold for a whole job: checkpoints and their retention, time, inputs. Values, usable from any thread."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "CheckpointingMode",
    "ExternalizedCheckpointRetention",
    "InputDependencyConstraint",
    "TimeCharacteristic",
]


class CheckpointingMode(Enum):
    """The number of times that a record counts in the state after a failure."""

    #: Once: barriers are aligned, or the records they overtake are saved.
    EXACTLY_ONCE = 0
    #: Once or more: barriers hold nothing up.
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(Enum):
    """Which checkpoints outlive the job. After a failure the last one stays in the first two cases."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class InputDependencyConstraint(Enum):
    """Whether one input of a task that reads blocking results must be ready, or every one."""

    ANY = 0
    ALL = 1


class TimeCharacteristic(Enum):
    """The clock of a whole program; the older name of the choice between clocks."""

    PROCESSING_TIME = 0
    INGESTION_TIME = 1
    EVENT_TIME = 2
