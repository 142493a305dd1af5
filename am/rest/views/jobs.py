"""Jobs as REST shows them: lists, details, plan, configuration, failures, results.

Owner: none (pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

import yarrow.runtime.config.options.pipeline as pipeline_options
import yarrow.runtime.config.options.restart_strategy as restart_options
from yarrow.am.rest.models.jobs import (
    ExceptionHistory,
    ExceptionInfo,
    ExecutionConfiguration,
    FailureBody,
    JobAccumulators,
    JobConfiguration,
    JobDetails,
    JobExceptions,
    JobExecutionResultBody,
    JobResultBody,
    JobSummary,
    JobVertexSummary,
    LegacyException,
    Plan,
    QueueStatus,
    RootException,
    SchedulerDecisions,
    TaskCounts,
)
from yarrow.am.rest.views.accumulators import as_json, user_accumulators
from yarrow.am.rest.views.io_metrics import io_metrics
from yarrow.am.rest.views.times import aggregate_state, state_counts, tasks_span
from yarrow.common.job_status import JobStatus
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.graph.plan import BLOCKING
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    ExceptionEntry,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    VertexDetails,
)


def job_summary(job: JobOverview, now: int) -> JobSummary:
    """A job in a list."""
    return JobSummary(
        jid=job.job_id,
        name=job.name,
        state=job.status,
        start_time=job.start_time,
        end_time=job.end_time,
        duration=_duration(job.start_time, job.end_time, now),
        last_modification=job.last_modification,
        tasks=TaskCounts(**{name: job.tasks.get(name, 0) for name in TaskCounts.model_fields}),
        waiting_for=job.waiting_for,
    )


def job_details(job: ExecutionGraphDetails, now: int, application_id: str) -> JobDetails:
    """A job with its vertices; `application_id`: of the application that it belongs to."""
    vertices = [_vertex_summary(vertex, now) for vertex in job.vertices]
    by_state = Counter(vertex.status for vertex in vertices)
    start = job.timestamps.get(JobStatus.INITIALIZING, 0)
    return JobDetails(
        jid=job.job_id,
        name=job.name,
        is_stoppable=_is_stoppable(job),
        application_id=application_id,
        state=job.status,
        start_time=start,
        end_time=job.end_time,
        duration=_duration(start, job.end_time, now),
        max_parallelism=job.max_parallelism,
        now=now,
        timestamps={status: job.timestamps.get(status, 0) for status in JobStatus},
        vertices=vertices,
        status_counts={state: by_state[state] for state in ExecutionState},
        plan=job_plan(job),
        stream_graph=job.stream_graph,
        waiting_for=job.waiting_for,
    )


def _is_stoppable(job: ExecutionGraphDetails) -> bool:
    """Whether a savepoint can be taken now: not of a job that keeps whole results between its vertices."""
    nodes = job.stream_graph.get("nodes", ())
    blocking = any(read["exchange"] == BLOCKING for node in nodes for read in node["inputs"])
    return job.status is JobStatus.RUNNING and not blocking


def job_plan(job: ExecutionGraphDetails) -> Plan:
    """The plan of a job."""
    return plan_of(job.plan, job.job_id, job.name)


def plan_of(plan: Mapping[str, Any], job_id: str, name: str) -> Plan:
    """The plan in a JobGraph, under the job's own id and name; empty if it has none.

    A client made it, so an invalid plan must not break the job's page.
    """
    nodes = plan.get("nodes", [])
    try:
        return Plan.model_validate({"nodes": nodes, "jid": job_id, "name": name})
    except ValidationError:
        return Plan(jid=job_id, name=name, nodes=[])


def _vertex_summary(vertex: VertexDetails, now: int) -> JobVertexSummary:
    span = tasks_span(vertex.subtasks, now)
    return JobVertexSummary(
        id=vertex.vertex_id,
        slot_sharing_group_id=vertex.slot_sharing_group,
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=aggregate_state(vertex.subtasks),
        start_time=span.start,
        end_time=span.end,
        duration=span.duration,
        tasks=state_counts(vertex.subtasks),
        metrics=io_metrics(vertex.subtasks),
    )


def _duration(start: int, end: int, now: int) -> int:
    return max(0, (end if end > 0 else now) - start)


def job_configuration(job: ExecutionGraphDetails) -> JobConfiguration:
    """How a job executes; secrets are hidden."""
    settings = Settings(job.configuration)
    parallelism = _text(settings, pipeline_options.DEFAULT_PARALLELISM)
    reuse = _text(settings, pipeline_options.OBJECT_REUSE)
    return JobConfiguration(
        jid=job.job_id,
        name=job.name,
        execution_config=ExecutionConfiguration(
            execution_mode="PIPELINED",
            restart_strategy=_text(settings, restart_options.TYPE)
            or "Cluster level default restart strategy",
            job_parallelism=int(parallelism) if parallelism.isdigit() else 1,
            object_reuse_mode=reuse.lower() == "true",
            user_config=settings.to_dict(),
        ),
    )


def _text(settings: Settings, option: EngineOption[Any]) -> str:
    """An option as text; empty when it is not set or cannot be read."""
    try:
        value = settings.get(option)
    except ConfigError:
        return ""
    return "" if value is None else option.type.render(value)


def job_accumulators(job: ExecutionGraphDetails) -> JobAccumulators:
    """Accumulators of a job, merged over its subtasks."""
    return JobAccumulators(user_task_accumulators=user_accumulators(job.accumulators))


def job_exceptions(
    job: ExecutionGraphDetails, limit: int, labels: Mapping[str, str] | None = None
) -> JobExceptions:
    """The newest `limit` failures with all of the `labels`, newest first, in the forms of Flink 2.x and 1.x."""
    wanted = (labels or {}).items()
    chosen = [entry for entry in job.exceptions if wanted <= failure_labels(entry).items()]
    newest_first = sorted(chosen, key=lambda entry: -entry.timestamp_ms)
    shown, truncated = newest_first[:limit], len(newest_first) > limit
    root = newest_first[0] if newest_first else None
    return JobExceptions(
        root_exception=root.cause.stacktrace if root else None,
        timestamp=root.timestamp_ms if root else None,
        all_exceptions=[_legacy_exception(entry) for entry in shown],
        truncated=truncated,
        exception_history=ExceptionHistory(
            entries=[
                RootException(
                    **_exception(entry).model_dump(),
                    concurrent_exceptions=[_exception(other) for other in entry.concurrent],
                )
                for entry in shown
            ],
            truncated=truncated,
        ),
    )


def _exception(entry: ExceptionEntry) -> ExceptionInfo:
    return ExceptionInfo(
        exception_name=entry.cause.exception_name,
        stacktrace=entry.cause.stacktrace,
        timestamp=entry.timestamp_ms,
        task_name=entry.task_name or None,
        endpoint=entry.endpoint or None,
        location=entry.endpoint or None,
        task_manager_id=entry.resource_id or None,
        failure_labels=failure_labels(entry),
    )


def failure_labels(entry: ExceptionEntry) -> dict[str, str]:
    """What is known of a failure beside its text."""
    return {"operator": entry.cause.operator_name} if entry.cause.operator_name else {}


def _legacy_exception(entry: ExceptionEntry) -> LegacyException:
    return LegacyException(
        exception=entry.cause.stacktrace,
        task=entry.task_name or None,
        location=entry.endpoint or None,
        endpoint=entry.endpoint or None,
        timestamp=entry.timestamp_ms,
        task_manager_id=entry.resource_id or None,
    )


_APPLICATION_STATUS = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


def execution_result(result: JobResult, application_id: str) -> JobExecutionResultBody:
    """How a job of an application ended."""
    cause = result.cause
    body = JobResultBody.model_validate(
        {
            "id": result.job_id,
            "name": result.name,
            "application_status": _APPLICATION_STATUS.get(result.status, "UNKNOWN"),
            "accumulator_results": {name: as_json(value) for name, value in result.accumulators.items()},
            "net_runtime": result.net_runtime_ms,
            "application_id": application_id,
            "start_time": result.start_time,
            "end_time": result.end_time,
        }
    )
    if cause is not None and result.status is JobStatus.FAILED:
        body.failure_cause = FailureBody(exception_class=cause.exception_name, stack_trace=cause.stacktrace)
    return JobExecutionResultBody(status=QueueStatus(id="COMPLETED"), job_execution_result=body)


def scheduler_decisions(found: Iterable[bytes]) -> SchedulerDecisions:
    """Events as the JobMaster has encoded them."""
    return SchedulerDecisions.model_validate({"decisions": [msgspec.json.decode(each) for each in found]})
