"""Vertices, subtasks and attempts as REST shows them.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yarrow.am.execution.accumulators import merge_accumulators
from yarrow.am.rest.models import vertices as models
from yarrow.am.rest.views.accumulators import user_accumulators
from yarrow.am.rest.views.io_metrics import aggregated, io_metrics
from yarrow.am.rest.views.times import (
    aggregate_state,
    all_timestamps,
    attempt_span,
    state_counts,
    state_durations,
    tasks_span,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import AttemptDetails, VertexDetails

#: Flink's bounds, as parts of the time for which a subtask is back-pressured.
_LOW, _HIGH = 0.10, 0.50
_UNASSIGNED = "(unassigned)"


def vertex_details(vertex: VertexDetails, now: int) -> models.VertexDetailsBody:
    """A vertex with its subtasks."""
    return models.VertexDetailsBody(
        id=vertex.vertex_id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        now=now,
        subtasks=[attempt_details(attempt, now) for attempt in vertex.subtasks],
        aggregated=aggregated(vertex.subtasks, now),
    )


def attempt_details(attempt: AttemptDetails, now: int) -> models.AttemptDetailsBody:
    """One attempt."""
    span = attempt_span(attempt, now)
    return models.AttemptDetailsBody(
        subtask=attempt.subtask,
        status=attempt.state,
        attempt=attempt.attempt_number,
        host=attempt.host or _UNASSIGNED,
        endpoint=attempt.endpoint or _UNASSIGNED,
        start_time=span.start,
        start_time_underscored=span.start,
        end_time=span.end,
        duration=span.duration,
        metrics=io_metrics([attempt]),
        taskmanager_id=attempt.resource_id or _UNASSIGNED,
        status_duration=state_durations(attempt, now),
    )


def vertex_times(vertex: VertexDetails, now: int) -> models.VertexTimes:
    """The times at which each subtask entered its states."""
    return models.VertexTimes(
        id=vertex.vertex_id,
        name=vertex.name,
        now=now,
        subtasks=[
            models.SubtaskTimes(
                subtask=attempt.subtask,
                host=attempt.host or _UNASSIGNED,
                endpoint=attempt.endpoint or _UNASSIGNED,
                duration=attempt_span(attempt, now).duration,
                timestamps=all_timestamps(attempt.timestamps),
            )
            for attempt in vertex.subtasks
        ],
    )


def vertex_task_managers(vertex: VertexDetails, now: int) -> models.VertexTaskManagers:
    """The vertex by TaskExecutor."""
    groups: dict[str, list[AttemptDetails]] = {}
    for attempt in vertex.subtasks:
        groups.setdefault(attempt.resource_id or _UNASSIGNED, []).append(attempt)
    return models.VertexTaskManagers(
        id=vertex.vertex_id,
        name=vertex.name,
        now=now,
        taskmanagers=[_task_manager(resource_id, group, now) for resource_id, group in groups.items()],
    )


def _task_manager(resource_id: str, attempts: Sequence[AttemptDetails], now: int) -> models.VertexTaskManager:
    span = tasks_span(attempts, now)
    return models.VertexTaskManager(
        host=attempts[0].host or _UNASSIGNED,
        endpoint=attempts[0].endpoint or _UNASSIGNED,
        status=aggregate_state(attempts),
        start_time=span.start,
        end_time=span.end,
        duration=span.duration,
        metrics=io_metrics(attempts),
        status_counts=state_counts(attempts),
        taskmanager_id=resource_id,
        aggregated=aggregated(attempts, now),
    )


def told_metrics(vertex: VertexDetails) -> dict[int, Mapping[str, float]]:
    """What each subtask told last, by its index: a present attempt that has told nothing yet has its predecessor's.

    Flink keeps them alike over a restart: its page asks for the names once, and would offer none.
    """
    former = {each.subtask: each.metrics for each in vertex.former_attempts if each.metrics}
    return {each.subtask: each.metrics or former.get(each.subtask, {}) for each in vertex.subtasks}


def back_pressure(vertex: VertexDetails, now: int) -> models.VertexBackPressure:
    """How long running subtasks waited for room downstream; the worst one counts."""
    running = [
        _subtask_pressure(attempt)
        for attempt in vertex.subtasks
        if attempt.state is ExecutionState.RUNNING and "backPressuredTimeMsPerSecond" in attempt.metrics
    ]
    if not running:
        return models.VertexBackPressure(
            status="deprecated",
            backpressure_level=None,
            backpressure_level_hyphened=None,
            end_timestamp=None,
            subtasks=[],
        )
    level = _level(max(subtask.ratio for subtask in running))
    return models.VertexBackPressure(
        status="ok",
        backpressure_level=level,
        backpressure_level_hyphened=level,
        end_timestamp=now,
        subtasks=running,
    )


def _subtask_pressure(attempt: AttemptDetails) -> models.SubtaskBackPressure:
    def part(metric: str) -> float:
        return min(1.0, max(0.0, attempt.metrics.get(metric, 0.0) / 1000))

    ratio = part("backPressuredTimeMsPerSecond")
    return models.SubtaskBackPressure(
        subtask=attempt.subtask,
        attempt_number=attempt.attempt_number,
        backpressure_level=_level(ratio),
        backpressure_level_hyphened=_level(ratio),
        ratio=ratio,
        idle_ratio=part("idleTimeMsPerSecond"),
        busy_ratio=part("busyTimeMsPerSecond"),
    )


def _level(ratio: float) -> models.BackPressureLevel:
    return "ok" if ratio <= _LOW else "low" if ratio <= _HIGH else "high"


def attempt_accumulators(attempt: AttemptDetails) -> models.AttemptAccumulators:
    """Accumulators of one attempt."""
    return models.AttemptAccumulators(
        subtask=attempt.subtask,
        attempt=attempt.attempt_number,
        id=attempt.attempt_id,
        user_accumulators=user_accumulators(attempt.accumulators),
    )


def vertex_accumulators(vertex: VertexDetails) -> models.VertexAccumulators:
    """Accumulators of the vertex, merged over its subtasks."""
    merged = merge_accumulators(attempt.accumulators for attempt in vertex.subtasks)
    return models.VertexAccumulators(id=vertex.vertex_id, user_accumulators=user_accumulators(merged))


def subtasks_accumulators(vertex: VertexDetails) -> models.SubtasksAccumulators:
    """Accumulators of each subtask."""
    return models.SubtasksAccumulators(
        id=vertex.vertex_id,
        parallelism=vertex.parallelism,
        subtasks=[
            models.SubtaskAccumulators(
                subtask=attempt.subtask,
                attempt=attempt.attempt_number,
                host=attempt.host or _UNASSIGNED,
                endpoint=attempt.endpoint or _UNASSIGNED,
                user_accumulators=user_accumulators(attempt.accumulators),
            )
            for attempt in vertex.subtasks
        ],
    )
