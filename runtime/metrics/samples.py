"""Samples: metric values with the scope and the variables that reporters name them by.

Owner: none (pure). Scopes and variables are Flink's logical scopes and its Prometheus labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from yarrow.runtime.metrics.job_metrics import job_metrics
from yarrow.runtime.metrics.scopes import split_by_operator
from yarrow.runtime.rpc.messages import (
    AttemptDetails,
    ExecutionGraphDetails,
    TaskExecutorInfo,
    VertexDetails,
)

#: The fields of a histogram in reports and in REST, and those that are quantiles in Flink's Prometheus reporter.
_LAST_FIELD: Final = "_p999"
_QUANTILES: Final = {"median": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
_HISTOGRAM_FIELDS: Final = ("count", "sum", "min", "max", "mean", "stddev", "p90", *_QUANTILES)


class Summary(msgspec.Struct, frozen=True):
    """A histogram as Prometheus knows it: `quantiles` by the share that each is of."""

    count: float
    sum: float
    quantiles: Mapping[float, float]


def gather_histograms(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, Summary]]:
    """Split the values into those of single metrics and histograms by name.

    A name is that of a histogram when a task has reported all fields of one under it.
    """
    plain, summaries = dict(values), dict[str, Summary]()
    for last in [name for name in values if name.endswith(_LAST_FIELD)]:
        name = last.removesuffix(_LAST_FIELD)
        if not all(f"{name}_{field}" in values for field in _HISTOGRAM_FIELDS):
            continue
        fields = {field: plain.pop(f"{name}_{field}") for field in _HISTOGRAM_FIELDS}
        quantiles = {share: fields[field] for field, share in _QUANTILES.items()}
        summaries[name] = Summary(fields["count"], fields["sum"], quantiles)
    return plain, summaries


class Sample(msgspec.Struct, frozen=True):
    """One value or one histogram: `scope` is dotted (`taskmanager.job.task`), `variables` are its labels."""

    scope: str
    name: str
    value: float | Summary
    variables: Mapping[str, str]


def of_values(scope: str, values: Mapping[str, float], variables: Mapping[str, str]) -> Iterator[Sample]:
    """Samples of one scope; the fields of a histogram, which REST shows one by one, become one sample."""
    plain, summaries = gather_histograms(values)
    for name, value in plain.items():
        yield Sample(scope, name, value, variables)
    for name, summary in summaries.items():
        yield Sample(scope, name, summary, variables)


def of_task_executors(executors: Iterable[TaskExecutorInfo]) -> Iterator[Sample]:
    """Process metrics of the TaskExecutors."""
    for info in executors:
        variables = {"host": info.registration.host, "tm_id": info.registration.resource_id}
        yield from of_values("taskmanager", info.metrics, variables)


def of_job(details: ExecutionGraphDetails, host: str, now_ms: int) -> Iterator[Sample]:
    """Metrics of a job, and of its tasks and operators that are placed.

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
