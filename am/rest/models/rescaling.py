"""Bodies about the parallelism of a running job, in Flink's shape.

Owner: none (declarations). Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, RootModel

from yarrow.am.rest.models.base import CamelModel, RestModel
from yarrow.am.rest.models.checkpoints import FailureCauseBody, OperationStatus


class RescalingResult(RestModel):
    """Why a rescale failed; empty when it did not."""

    failure_cause: FailureCauseBody | None = Field(default=None, serialization_alias="failure-cause")


class RescalingOperation(RestModel):
    """How a rescale that was asked for goes."""

    status: OperationStatus
    operation: RescalingResult | None = None


class ParallelismBounds(CamelModel):
    """Flink's scheduler picks between the bounds; this one takes the upper."""

    lower_bound: int = Field(default=1, ge=1)
    upper_bound: int = Field(ge=1)


class VertexRequirements(CamelModel):
    """What one vertex asks for."""

    parallelism: ParallelismBounds


class JobResourceRequirements(RootModel[dict[str, VertexRequirements]]):
    """Requirements by vertex."""


class RescaleDetails(CamelModel):
    """One rescale."""

    rescale_uuid: str
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int
    terminal_state: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    trigger_cause: str
    terminated_reason: str
    #: Parallelism by vertex.
    pre_rescale_parallelism: dict[str, int]
    post_rescale_parallelism: dict[str, int]


class RescaleCounts(CamelModel):
    """Rescales so far."""

    ignored: int = 0
    in_progress: int
    completed: int
    failed: int


class RescalesOverview(CamelModel):
    """Numbers, and the newest of each kind."""

    rescales_counts: RescaleCounts
    latest: dict[str, RescaleDetails]


class RescalesHistory(CamelModel):
    """The newest first."""

    rescales: list[RescaleDetails]
