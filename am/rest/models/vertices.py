"""Bodies about vertices, subtasks and attempts.

Owner: none (declarations). Times are epoch milliseconds, durations milliseconds; -1 = not yet.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from yarrow.am.rest.models.accumulators import UserAccumulators
from yarrow.am.rest.models.base import CamelModel, HyphenModel, RestModel
from yarrow.am.rest.models.metrics import IOMetrics, Statistics
from yarrow.runtime.graph.states import ExecutionState

BackPressureLevel = Literal["ok", "low", "high"]
#: A host, endpoint or TaskExecutor of an attempt; an attempt without a slot has none.
Place = Annotated[str, BeforeValidator(lambda text: text or "(unassigned)")]


class Aggregated(HyphenModel):
    """IO metrics and times in states over several subtasks."""

    metrics: dict[str, Statistics]
    status_duration: dict[ExecutionState, Statistics]


class AttemptDetailsBody(HyphenModel):
    """One attempt of a subtask."""

    subtask: int
    status: ExecutionState = Field(validation_alias="state")
    attempt: int = Field(validation_alias="attempt_number")
    host: Place
    endpoint: Place
    start_time: int
    start_time_underscored: int = Field(validation_alias="start_time", serialization_alias="start_time")
    end_time: int
    duration: int
    metrics: IOMetrics
    taskmanager_id: Place = Field(validation_alias="resource_id")
    #: How long the attempt was in each state, -1 = never.
    status_duration: dict[ExecutionState, int]
    other_concurrent_attempts: list[AttemptDetailsBody] | None = None


class VertexDetailsBody(HyphenModel):
    """A vertex with its subtasks."""

    id: str = Field(validation_alias="vertex_id")
    name: str
    parallelism: int
    max_parallelism: int = Field(serialization_alias="maxParallelism")
    now: int
    subtasks: list[AttemptDetailsBody]
    aggregated: Aggregated


class SubtaskTimes(HyphenModel):
    """The times at which a subtask entered its states, 0 = never."""

    subtask: int
    host: Place
    endpoint: Place
    duration: int
    timestamps: dict[ExecutionState, int]


class VertexTimes(RestModel):
    """The times of all subtasks of a vertex."""

    id: str = Field(validation_alias="vertex_id")
    name: str
    now: int
    subtasks: list[SubtaskTimes]


class VertexTaskManager(HyphenModel):
    """The subtasks of a vertex on one TaskExecutor."""

    host: Place
    endpoint: Place
    status: ExecutionState
    start_time: int
    end_time: int
    duration: int
    metrics: IOMetrics
    status_counts: dict[ExecutionState, int]
    taskmanager_id: Place = Field(validation_alias="resource_id")
    aggregated: Aggregated


class VertexTaskManagers(RestModel):
    """A vertex by TaskExecutor."""

    id: str = Field(validation_alias="vertex_id")
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


class SubtaskBackPressure(CamelModel):
    """The shares of a subtask's time, as parts of 1."""

    subtask: int
    attempt_number: int = Field(serialization_alias="attempt-number")
    backpressure_level: BackPressureLevel
    backpressure_level_hyphened: BackPressureLevel = Field(serialization_alias="backpressure-level")
    ratio: float
    idle_ratio: float
    busy_ratio: float
    other_concurrent_attempts: list[SubtaskBackPressure] | None = Field(
        default=None, serialization_alias="other-concurrent-attempts"
    )


class VertexBackPressure(CamelModel):
    """Back-pressure of a vertex: that of its worst subtask. `deprecated` = no subtask runs."""

    status: Literal["ok", "deprecated"]
    backpressure_level: BackPressureLevel | None
    backpressure_level_hyphened: BackPressureLevel | None = Field(serialization_alias="backpressure-level")
    end_timestamp: int | None = Field(serialization_alias="end-timestamp")
    subtasks: list[SubtaskBackPressure]


class VertexAccumulators(HyphenModel):
    """Accumulators of a vertex, merged over its subtasks."""

    id: str = Field(validation_alias="vertex_id")
    user_accumulators: UserAccumulators = Field(validation_alias="accumulators")


class AttemptAccumulators(HyphenModel):
    """Accumulators of one attempt."""

    subtask: int
    attempt: int = Field(validation_alias="attempt_number")
    id: str = Field(validation_alias="attempt_id")
    user_accumulators: UserAccumulators = Field(validation_alias="accumulators")


class SubtaskAccumulators(HyphenModel):
    """Accumulators of one subtask."""

    subtask: int
    attempt: int = Field(validation_alias="attempt_number")
    host: Place
    endpoint: Place
    user_accumulators: UserAccumulators = Field(validation_alias="accumulators")


class SubtasksAccumulators(HyphenModel):
    """Accumulators of each subtask of a vertex."""

    id: str = Field(validation_alias="vertex_id")
    parallelism: int
    subtasks: list[SubtaskAccumulators]
