"""Jobs as REST shows them: lists, details, plan, configuration, failures, results.

Owner: none (pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError

import yarrow.runtime.config.options.pipeline as pipeline_options
import yarrow.runtime.config.options.restart_strategy as restart_options
from yarrow.am.rest.models.accumulators import as_json
from yarrow.am.rest.models.base import QueueStatus
from yarrow.am.rest.models.jobs import (
    ExceptionHistory,
    ExecutionConfiguration,
    JobConfiguration,
    JobDetails,
    JobExceptions,
    JobExecutionResultBody,
    JobResultBody,
    JobSummary,
    JobVertexSummary,
    LegacyException,
    Plan,
    RootException,
    SchedulerDecisions,
)
from yarrow.am.rest.views.io_metrics import io_metrics
from yarrow.am.rest.views.times import aggregate_state, state_counts, tasks_span
from yarrow.common.job_status import JobStatus
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.graph.states import ExecutionState, JobType
from yarrow.runtime.graph.translation.plan import BLOCKING
from yarrow.runtime.rpc.messages import (
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    VertexDetails,
)

#: The entry of a job's configuration that tells where Spark's own pages are. No option has its name.
SPARK_PAGES: Final = "spark-pages"


def job_summary(job: JobOverview, now: int) -> JobSummary:
    """A job in a list."""
    return JobSummary.of(job, duration=_duration(job.start_time, job.end_time, now))


def job_details(job: ExecutionGraphDetails, now: int, application_id: str) -> JobDetails:
    """A job with its vertices; `application_id`: of the application that it belongs to."""
    vertices = [_vertex_summary(vertex, now) for vertex in job.vertices]
    by_state = Counter(vertex.status for vertex in vertices)
    start = job.timestamps.get(JobStatus.INITIALIZING, 0)
    return JobDetails.of(
        job,
        is_stoppable=_is_stoppable(job),
        application_id=application_id,
        spark_pages=_spark_pages(job),
        start_time=start,
        duration=_duration(start, job.end_time, now),
        now=now,
        timestamps={status: job.timestamps.get(status, 0) for status in JobStatus},
        vertices=vertices,
        status_counts={state: by_state[state] for state in ExecutionState},
        plan=job_plan(job),
    )


def _is_stoppable(job: ExecutionGraphDetails) -> bool:
    """Whether a savepoint can be taken now: not of a job that keeps whole results between its vertices."""
    nodes = job.stream_graph.get("nodes", ())
    blocking = any(read["exchange"] == BLOCKING for node in nodes for read in node["inputs"])
    return job.status is JobStatus.RUNNING and job.job_type is JobType.STREAMING and not blocking


def job_plan(job: ExecutionGraphDetails) -> Plan:
    """The plan of a job."""
    return plan_of(job.plan, job.job_id, job.name, job.job_type)


def plan_of(plan: Mapping[str, Any], job_id: str, name: str, job_type: JobType) -> Plan:
    """The plan in a JobGraph, under the job's own id and name; empty if it has none.

    A client made it, so an invalid plan must not break the job's page.
    """
    nodes = plan.get("nodes", [])
    try:
        return Plan.model_validate({"nodes": nodes, "jid": job_id, "name": name, "type": job_type})
    except ValidationError:
        return Plan(jid=job_id, name=name, type=job_type, nodes=[])


def _vertex_summary(vertex: VertexDetails, now: int) -> JobVertexSummary:
    return JobVertexSummary.of(
        vertex,
        status=aggregate_state(vertex.subtasks),
        **tasks_span(vertex.subtasks, now)._asdict(),
        tasks=state_counts(vertex.subtasks),
        metrics=io_metrics(vertex.subtasks),
    )


def _duration(start: int, end: int, now: int) -> int:
    return max(0, (end if end > 0 else now) - start)


def job_configuration(job: ExecutionGraphDetails) -> JobConfiguration:
    """How a job executes; secrets are hidden.

    Flink's page shows each entry of the user's configuration as text, and has no other place for Spark's pages.
    """
    pages = {SPARK_PAGES: path} if (path := _spark_pages(job)) else {}
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
            user_config=settings.to_dict() | pages,
        ),
    )


def _spark_pages(job: ExecutionGraphDetails) -> str:
    """The path of Spark's own pages about a job; empty while there are none."""
    return f"/jobs/{job.job_id}/spark/" if job.has_spark_pages else ""


def _text(settings: Settings, option: EngineOption[Any]) -> str:
    """An option as text; empty when it is not set or cannot be read."""
    try:
        value = settings.get(option)
    except ConfigError:
        return ""
    return "" if value is None else option.type.render(value)


def job_exceptions(
    job: ExecutionGraphDetails, limit: int, labels: Mapping[str, str] | None = None
) -> JobExceptions:
    """The newest `limit` failures with all of the `labels`, newest first, in the forms of Flink 2.x and 1.x."""
    wanted = (labels or {}).items()
    chosen = [entry for entry in job.exceptions if wanted <= entry.labels.items()]
    newest_first = sorted(chosen, key=lambda entry: -entry.timestamp_ms)
    shown, truncated = newest_first[:limit], len(newest_first) > limit
    root = newest_first[0] if newest_first else None
    return JobExceptions(
        root_exception=root.cause.stacktrace if root else None,
        timestamp=root.timestamp_ms if root else None,
        all_exceptions=[LegacyException.of(entry) for entry in shown],
        truncated=truncated,
        exception_history=ExceptionHistory(
            entries=[RootException.of(entry) for entry in shown], truncated=truncated
        ),
    )


_APPLICATION_STATUS = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


def execution_result(result: JobResult, application_id: str) -> JobExecutionResultBody:
    """How a job of an application ended."""
    body = JobResultBody.of(
        result,
        application_status=_APPLICATION_STATUS.get(result.status, "UNKNOWN"),
        accumulator_results={name: as_json(value) for name, value in result.accumulators.items()},
        application_id=application_id,
        failure_cause=result.cause if result.status is JobStatus.FAILED else None,
    )
    return JobExecutionResultBody(status=QueueStatus(id="COMPLETED"), job_execution_result=body)


def scheduler_decisions(found: Iterable[bytes]) -> SchedulerDecisions:
    """Events as the JobMaster has encoded them."""
    return SchedulerDecisions.model_validate({"decisions": [msgspec.json.decode(each) for each in found]})
