"""Bodies about the parallelism of a running job, in Flink's shape.

Owner: none (declarations). Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, RootModel

from yarrow.am.rest.models.base import CamelModel, QueueStatus, RestModel
from yarrow.am.rest.models.checkpoints import FailureCauseBody, StatsSummary
from yarrow.am.rest.models.task_managers import ResourceProfileBody


class RescalingResult(RestModel):
    """The cause of a rescale's failure; empty if it did not fail."""

    failure_cause: FailureCauseBody | None = Field(default=None, serialization_alias="failure-cause")


class RescalingOperation(RestModel):
    """The state of a requested rescale."""

    status: QueueStatus
    operation: RescalingResult | None = None


class ParallelismBounds(CamelModel):
    """Flink's scheduler picks between the bounds; this one takes the upper."""

    lower_bound: int = Field(default=1, ge=1)
    upper_bound: int = Field(ge=1)


class VertexRequirements(CamelModel):
    """The parallelism that one vertex requests."""

    parallelism: ParallelismBounds


class JobResourceRequirements(RootModel[dict[str, VertexRequirements]]):
    """Requirements by vertex."""


class VertexRescale(CamelModel):
    """A vertex in a rescale."""

    job_vertex_id: str = Field(validation_alias="vertex_id")
    job_vertex_name: str = Field(validation_alias="name")
    slot_sharing_group_id: str = Field(validation_alias="slot_sharing_group")
    slot_sharing_group_name: str = Field(validation_alias="slot_sharing_group")
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int
    post_rescale_parallelism: int | None


class SlotSharingGroupRescale(CamelModel):
    """A slot sharing group in a rescale; slots are asked for without a profile, which is empty then."""

    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int
    post_rescale_slots: int | None
    request_resource_profile: ResourceProfileBody | None = None
    acquired_resource_profile: ResourceProfileBody | None = None


class SchedulerStateSpan(CamelModel):
    """The time that the job spent in a state during a rescale."""

    state: str
    enter_timestamp_in_millis: int
    leave_timestamp_in_millis: int | None
    duration_in_millis: int | None
    stringified_exception: str | None = None


class RescaleDetails(CamelModel):
    """One rescale; states and reasons are Flink's words."""

    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, VertexRescale]
    slots: dict[str, SlotSharingGroupRescale]
    scheduler_states: list[SchedulerStateSpan]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: Literal["COMPLETED", "FAILED", "IGNORED"] | None
    trigger_cause: Literal["UPDATE_REQUIREMENT"] = "UPDATE_REQUIREMENT"
    terminated_reason: Literal["SUCCEEDED", "EXCEPTION_OCCURRED"] | None
    #: Ours: what was asked for, and why it failed.
    description: str
    failure_reason: str


class RescaleCounts(CamelModel):
    """Rescales so far."""

    ignored: int = 0
    in_progress: int
    completed: int
    failed: int


class LatestRescales(CamelModel):
    """The newest rescale of each end."""

    completed: RescaleDetails | None = None
    failed: RescaleDetails | None = None
    ignored: RescaleDetails | None = None


class RescalesOverview(CamelModel):
    """Numbers of rescales, and the newest of each end."""

    rescales_counts: RescaleCounts
    latest: LatestRescales


class RescalesHistory(RootModel[list[RescaleDetails]]):
    """The newest first."""


class RescalesSummary(CamelModel):
    """Numbers of rescales, and durations of the remembered ones in milliseconds."""

    rescales_counts: RescaleCounts
    rescales_duration_stats_in_millis: StatsSummary
    completed_rescales_duration_stats_in_millis: StatsSummary
    ignored_rescales_duration_stats_in_millis: StatsSummary = Field(default_factory=StatsSummary)
    failed_rescales_duration_stats_in_millis: StatsSummary


class RescaleConfiguration(CamelModel):
    """Settings of rescaling. A job is rescaled when asked: what Flink's adaptive scheduler waits for is null."""

    rescale_history_max: int
    scheduler_execution_mode: Literal["REACTIVE"] | None = None
    submission_resource_wait_timeout_in_millis: int | None
    submission_resource_stabilization_timeout_in_millis: int | None = None
    slot_idle_timeout_in_millis: int
    executing_cooldown_timeout_in_millis: int | None = None
    executing_resource_stabilization_timeout_in_millis: int | None = None
    maximum_delay_for_triggering_rescale_in_millis: int | None = None
    rescale_on_failed_checkpoint_count: int | None = None
