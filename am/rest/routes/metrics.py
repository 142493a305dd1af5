"""Paths about metrics: of the control plane, TaskExecutors, jobs, vertices and subtasks.

Owner: the event loop of the REST server. Without `get` a path lists names, with it values. The aggregating
paths compute what `agg` names (all without it) over what `jobs`, `subtasks` or `taskmanagers` chooses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Query

from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.metrics import AggregatedMetric, MetricBody
from yarrow.am.rest.routes.cluster_access import (
    Access,
    JobIdPath,
    ResourceIdPath,
    SubtaskPath,
    VertexIdPath,
    attempt_of,
    refusals,
)
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.views.vertices import told_metrics
from yarrow.runtime.common.ids import is_hex_id
from yarrow.runtime.metrics.aggregation import aggregate
from yarrow.runtime.metrics.job_metrics import job_manager_metrics, job_metrics
from yarrow.runtime.metrics.process_metrics import process_metrics
from yarrow.runtime.metrics.scopes import metric_text

router = flink_router("Metrics")

Get = Annotated[str | None, Query(alias="get", description="Names of metrics, separated by commas.")]
Agg = Annotated[
    str | None, Query(alias="agg", description="Of min, max, avg, sum, skew, separated by commas.")
]
_AGGREGATES = ("min", "max", "avg", "sum", "skew")
_WATERMARK = "currentInputWatermark"
#: The only metric that is no number, and its value before the first checkpoint with a path.
EXTERNAL_PATH, NO_PATH = "lastCheckpointExternalPath", "n/a"
#: More subtasks than a vertex can have.
_MAX_SUBTASK = 32768


def _names(text: str | None) -> list[str] | None:
    names = [name for name in (text or "").split(",") if name]
    return names or None


def _metrics(values: Mapping[str, float], get: str | None) -> list[MetricBody]:
    wanted = _names(get)
    if wanted is None:
        return [MetricBody(id=name) for name in sorted(values)]
    return _texts({name: metric_text(values[name]) for name in wanted if name in values}, get)


def _texts(values: Mapping[str, str], get: str | None) -> list[MetricBody]:
    wanted = _names(get)
    if wanted is None:
        return [MetricBody(id=name) for name in sorted(values)]
    return [MetricBody(id=name, value=values[name]) for name in wanted if name in values]


def _aggregates(
    maps: Sequence[Mapping[str, float]], get: str | None, agg: str | None
) -> list[AggregatedMetric]:
    chosen = _names(agg) or list(_AGGREGATES)
    unknown = [name for name in chosen if name not in _AGGREGATES]
    if unknown:
        raise BadRequestError(f"agg names {', '.join(unknown)}: expected some of {', '.join(_AGGREGATES)}")
    wanted = _names(get)
    if wanted is None:
        return [AggregatedMetric(id=name) for name in sorted({name for each in maps for name in each})]
    found = []
    for name in wanted:
        values = [each[name] for each in maps if name in each and math.isfinite(each[name])]
        if values:
            numbers = aggregate(values)
            found.append(AggregatedMetric(id=name, **{each: getattr(numbers, each) for each in chosen}))
    return found


def _chosen_ids(text: str | None, what: str, hexadecimal: bool) -> set[str] | None:
    names = _names(text)
    if names is None:
        return None
    if hexadecimal and not all(is_hex_id(name.lower()) for name in names):
        raise BadRequestError(
            f"{what} must be ids of 32 hexadecimal digits, separated by commas, not {text!r}"
        )
    return {name.lower() for name in names} if hexadecimal else set(names)


def _chosen_subtasks(text: str | None) -> set[int] | None:
    """`0-2,5`: single subtasks and ranges."""
    parts = _names(text)
    if parts is None:
        return None
    chosen: set[int] = set()
    for part in parts:
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip(), re.ASCII)
        if match is None:
            raise BadRequestError(f"subtasks has {part!r}: expected numbers and ranges such as 0-2,5")
        first = int(match[1])
        chosen.update(range(first, min(int(match[2] or first), _MAX_SUBTASK) + 1))
    return chosen


@router.get("/jobmanager/metrics", responses=refusals(400), response_model_exclude_none=True)
async def job_manager_metric_values(access: Access, get: Get = None) -> list[MetricBody]:
    """Metrics of the control plane."""
    overview = await access.services.dispatcher.request_overview()
    return _metrics(job_manager_metrics(overview) | process_metrics(access.services.memory_limit), get)


@router.get("/taskmanagers/metrics", responses=refusals(400), response_model_exclude_none=True)
async def task_managers_metrics(
    access: Access,
    get: Get = None,
    agg: Agg = None,
    chosen: Annotated[
        str | None, Query(alias="taskmanagers", description="Ids of TaskExecutors, separated by commas.")
    ] = None,
) -> list[AggregatedMetric]:
    """Metrics over TaskExecutors."""
    ids = _chosen_ids(chosen, "taskmanagers", hexadecimal=False)
    executors = await access.task_executors()
    maps = [info.metrics for info in executors if ids is None or info.registration.resource_id in ids]
    return _aggregates(maps, get, agg)


@router.get(
    "/taskmanagers/{taskmanagerid}/metrics", responses=refusals(400, 404), response_model_exclude_none=True
)
async def task_manager_metric_values(
    access: Access, resource_id: ResourceIdPath, get: Get = None
) -> list[MetricBody]:
    """Metrics of a TaskExecutor's processes together."""
    return _metrics((await access.task_executor(resource_id)).metrics, get)


@router.get("/jobs/metrics", responses=refusals(400), response_model_exclude_none=True)
async def jobs_metrics(
    access: Access,
    get: Get = None,
    agg: Agg = None,
    chosen: Annotated[
        str | None, Query(alias="jobs", description="Ids of jobs, separated by commas.")
    ] = None,
) -> list[AggregatedMetric]:
    """Metrics over jobs."""
    ids = _chosen_ids(chosen, "jobs", hexadecimal=True)
    jobs = await access.all_jobs()
    maps = [job_metrics(job, access.now()) for job in jobs if ids is None or job.job_id in ids]
    return _aggregates(maps, get, agg)


@router.get("/jobs/{jobid}/metrics", responses=refusals(400, 404), response_model_exclude_none=True)
async def job_metric_values(access: Access, job_id: JobIdPath, get: Get = None) -> list[MetricBody]:
    """Metrics of a job; one of them is a text."""
    job = await access.job(job_id)
    values = {name: metric_text(value) for name, value in job_metrics(job, access.now()).items()}
    return _texts({**values, EXTERNAL_PATH: job.last_checkpoint_path or NO_PATH}, get)


_VERTEX = "/jobs/{jobid}/vertices/{vertexid}"


@router.get(f"{_VERTEX}/metrics", responses=refusals(400, 404), response_model_exclude_none=True)
async def vertex_metrics(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, get: Get = None
) -> list[MetricBody]:
    """Metrics of all subtasks, as `<subtask>.<metric>` and `<subtask>.<operator>.<metric>`."""
    vertex = await access.vertex(job_id, vertex_id)
    return _metrics(_numbered(told_metrics(vertex)), get)


def _numbered(metrics: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    return {
        f"{subtask}.{name}": value for subtask, values in metrics.items() for name, value in values.items()
    }


@router.get(f"{_VERTEX}/watermarks", responses=refusals(400, 404), response_model_exclude_none=True)
async def vertex_watermarks(access: Access, job_id: JobIdPath, vertex_id: VertexIdPath) -> list[MetricBody]:
    """The watermark of each subtask's input (epoch milliseconds)."""
    vertex = await access.vertex(job_id, vertex_id)
    return [
        MetricBody(id=f"{subtask}.{_WATERMARK}", value=metric_text(metrics[_WATERMARK]))
        for subtask, metrics in told_metrics(vertex).items()
        if _WATERMARK in metrics
    ]


@router.get(f"{_VERTEX}/jm-operator-metrics", responses=refusals(400, 404), response_model_exclude_none=True)
async def coordinator_metrics(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, get: Get = None
) -> list[MetricBody]:
    """Metrics of the vertex's operators in the control plane: they have none."""
    await access.vertex(job_id, vertex_id)
    return _metrics({}, get)


@router.get(f"{_VERTEX}/subtasks/metrics", responses=refusals(400, 404), response_model_exclude_none=True)
async def subtasks_metrics(
    access: Access,
    job_id: JobIdPath,
    vertex_id: VertexIdPath,
    get: Get = None,
    agg: Agg = None,
    chosen: Annotated[
        str | None, Query(alias="subtasks", description="Subtasks and ranges of them, such as 0-2,5.")
    ] = None,
) -> list[AggregatedMetric]:
    """Metrics over subtasks."""
    subtasks = _chosen_subtasks(chosen)
    vertex = await access.vertex(job_id, vertex_id)
    told = told_metrics(vertex)
    maps = [metrics for subtask, metrics in told.items() if subtasks is None or subtask in subtasks]
    return _aggregates(maps, get, agg)


@router.get(
    f"{_VERTEX}/subtasks/{{subtaskindex}}/metrics",
    responses=refusals(400, 404),
    response_model_exclude_none=True,
)
async def subtask_metrics(
    access: Access, job_id: JobIdPath, vertex_id: VertexIdPath, subtask: SubtaskPath, get: Get = None
) -> list[MetricBody]:
    """Metrics of one subtask, as `<metric>` and `<operator>.<metric>`."""
    vertex = await access.vertex(job_id, vertex_id)
    present = attempt_of(vertex, subtask, None)
    return _metrics(told_metrics(vertex)[present.subtask], get)
