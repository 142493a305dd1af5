"""Samples: metric values with the scope and the variables that reporters name them by.

Owner: none (pure). Scopes and variables are Flink's logical scopes and its Prometheus labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from yarrow.runtime.metrics.job_metrics import job_metrics
from yarrow.runtime.metrics.scopes import split_by_operator
from yarrow.runtime.rpc.messages import (
    AttemptDetails,
    ExecutionGraphDetails,
    TaskExecutorInfo,
    VertexDetails,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: `scope` is dotted (`taskmanager.job.task`), `variables` are its labels."""

    scope: str
    name: str
    value: float
    variables: Mapping[str, str]


def of_values(scope: str, values: Mapping[str, float], variables: Mapping[str, str]) -> Iterator[Sample]:
    """Samples of one scope."""
    for name, value in values.items():
        yield Sample(scope, name, value, variables)


def of_task_executors(executors: Iterable[TaskExecutorInfo]) -> Iterator[Sample]:
    """Process metrics of the TaskExecutors."""
    for info in executors:
        variables = {"host": info.registration.host, "tm_id": info.registration.resource_id}
        yield from of_values("taskmanager", info.metrics, variables)


def of_job(details: ExecutionGraphDetails, host: str, now_ms: int) -> Iterator[Sample]:
    """Metrics of a job, and of those of its tasks and operators that are placed.

    `host` is that of the control plane.
    """
    job = {"job_id": details.job_id, "job_name": details.name}
    yield from of_values("jobmanager.job", job_metrics(details, now_ms), {"host": host, **job})
    for vertex in details.vertices:
        for attempt in vertex.subtasks:
            if attempt.resource_id and attempt.metrics:
                yield from _of_attempt(vertex, attempt, job)


def _of_attempt(vertex: VertexDetails, attempt: AttemptDetails, job: Mapping[str, str]) -> Iterator[Sample]:
    variables = {
        "host": attempt.host,
        "tm_id": attempt.resource_id,
        **job,
        "task_id": vertex.vertex_id,
        "task_name": vertex.name,
        "task_attempt_id": attempt.attempt_id,
        "task_attempt_num": str(attempt.attempt_number),
        "subtask_index": str(attempt.subtask),
    }
    ids = {name: operator_id for operator_id, name in vertex.operators}
    scoped = split_by_operator(attempt.metrics, ids)
    yield from of_values("taskmanager.job.task", scoped.task, variables)
    for name, values in scoped.operators.items():
        of_operator = {**variables, "operator_id": ids[name], "operator_name": name}
        yield from of_values("taskmanager.job.task.operator", values, of_operator)
