"""Vertices, subtasks and attempts as REST shows them.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yarrow.am.rest.models import vertices as models
from yarrow.am.rest.views.io_metrics import aggregated, io_metrics
from yarrow.am.rest.views.times import (
    aggregate_state,
    attempt_span,
    state_counts,
    state_durations,
    tasks_span,
)
from yarrow.runtime.common.accumulators import merge_accumulators
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import AttemptDetails, VertexDetails

#: Flink's bounds, as parts of the time for which a subtask is back-pressured.
_LOW, _HIGH = 0.10, 0.50


def vertex_details(vertex: VertexDetails, now: int) -> models.VertexDetailsBody:
    """A vertex with its subtasks."""
    return models.VertexDetailsBody.of(
        vertex,
        now=now,
        subtasks=[attempt_details(attempt, now) for attempt in vertex.subtasks],
        aggregated=aggregated(vertex.subtasks, now),
    )


def attempt_details(attempt: AttemptDetails, now: int) -> models.AttemptDetailsBody:
    """One attempt."""
    return models.AttemptDetailsBody.of(
        attempt,
        **attempt_span(attempt, now)._asdict(),
        metrics=io_metrics([attempt]),
        status_duration=state_durations(attempt, now),
    )


def vertex_times(vertex: VertexDetails, now: int) -> models.VertexTimes:
    """The times at which each subtask entered its states."""
    subtasks = [
        models.SubtaskTimes.of(
            attempt,
            duration=attempt_span(attempt, now).duration,
            timestamps={state: attempt.timestamps.get(state, 0) for state in ExecutionState},
        )
        for attempt in vertex.subtasks
    ]
    return models.VertexTimes.of(vertex, now=now, subtasks=subtasks)


def vertex_task_managers(vertex: VertexDetails, now: int) -> models.VertexTaskManagers:
    """The vertex by TaskExecutor."""
    groups: dict[str, list[AttemptDetails]] = {}
    for attempt in vertex.subtasks:
        groups.setdefault(attempt.resource_id, []).append(attempt)
    return models.VertexTaskManagers.of(
        vertex, now=now, taskmanagers=[_task_manager(group, now) for group in groups.values()]
    )


def _task_manager(attempts: Sequence[AttemptDetails], now: int) -> models.VertexTaskManager:
    return models.VertexTaskManager.of(
        attempts[0],
        status=aggregate_state(attempts),
        **tasks_span(attempts, now)._asdict(),
        metrics=io_metrics(attempts),
        status_counts=state_counts(attempts),
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


def vertex_accumulators(vertex: VertexDetails) -> models.VertexAccumulators:
    """Accumulators of the vertex, merged over its subtasks."""
    merged = merge_accumulators(attempt.accumulators for attempt in vertex.subtasks)
    return models.VertexAccumulators.of(vertex, accumulators=merged)
