"""REST's answers about an ended job, by path, as an archive of the job keeps them.

Owner: any thread; pure. The bodies equal those that the paths themselves send. The paths are Flink's choice:
those that a HistoryServer shows of a job. Metrics, logs and TaskExecutors end with the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from yarrow.am.dispatcher.job_archive import EndedJob
from yarrow.am.rest.models import checkpoints as models
from yarrow.am.rest.models.jobs import JobAccumulators, JobPlan, JobsOverview
from yarrow.am.rest.models.rescaling import RescalesHistory
from yarrow.am.rest.models.vertices import AttemptAccumulators, SubtasksAccumulators
from yarrow.am.rest.views import jobs, vertices
from yarrow.am.rest.views.late_records import late_records
from yarrow.am.rest.views.rescaling import rescale_details_of
from yarrow.runtime.rpc.messages import VertexDetails


def answers(job: EndedJob, exceptions: int) -> dict[str, str]:
    """JSON bodies by path; `exceptions`: most failures in them (web.exception-history-size)."""
    bodies = (*_of_job(job, exceptions), *_of_checkpoints(job), *_of_rescales(job), *_of_vertices(job))
    return {path: body.model_dump_json(by_alias=True) for path, body in bodies}


def _of_job(job: EndedJob, exceptions: int) -> Iterator[tuple[str, BaseModel]]:
    base = f"/jobs/{job.overview.job_id}"
    yield "/jobs/overview", JobsOverview(jobs=[jobs.job_summary(job.overview, job.now)])
    yield base, jobs.job_details(job.details, job.now, job.details.job_id)
    yield f"{base}/plan", JobPlan(plan=jobs.job_plan(job.details))
    yield f"{base}/config", jobs.job_configuration(job.details)
    yield f"{base}/exceptions", jobs.job_exceptions(job.details, exceptions)
    yield f"{base}/accumulators", JobAccumulators.model_validate(job.details)
    yield f"{base}/late-records", late_records(job.details)


def _of_checkpoints(job: EndedJob) -> Iterator[tuple[str, BaseModel]]:
    base = f"/jobs/{job.overview.job_id}/checkpoints"
    yield base, models.CheckpointStatisticsBody.model_validate(job.checkpoints)
    yield f"{base}/config", models.CheckpointConfigurationBody.model_validate(job.checkpoints.configuration)
    for record in job.records:
        details = f"{base}/details/{record.id}"
        yield details, models.checkpoint_body(record)
        for vertex in record.vertices:
            yield (
                f"{details}/subtasks/{vertex.vertex_id}",
                models.TaskCheckpointDetails.model_validate(vertex),
            )


def _of_rescales(job: EndedJob) -> Iterator[tuple[str, BaseModel]]:
    base = f"/jobs/{job.overview.job_id}/rescales"
    newest_first = [
        rescale_details_of(job.details, number) for number in reversed(range(len(job.details.rescales)))
    ]
    yield f"{base}/history", RescalesHistory(newest_first)
    for rescale in newest_first:
        yield f"{base}/details/{rescale.rescale_uuid}", rescale


def _of_vertices(job: EndedJob) -> Iterator[tuple[str, BaseModel]]:
    for vertex in job.details.vertices:
        base = f"/jobs/{job.overview.job_id}/vertices/{vertex.vertex_id}"
        yield base, vertices.vertex_details(vertex, job.now)
        yield f"{base}/subtasktimes", vertices.vertex_times(vertex, job.now)
        yield f"{base}/taskmanagers", vertices.vertex_task_managers(vertex, job.now)
        yield f"{base}/accumulators", vertices.vertex_accumulators(vertex)
        yield f"{base}/subtasks/accumulators", SubtasksAccumulators.model_validate(vertex)
        yield from _of_attempts(base, vertex, job.now)


def _of_attempts(base: str, vertex: VertexDetails, now: int) -> Iterator[tuple[str, BaseModel]]:
    for attempt in vertex.subtasks:
        yield f"{base}/subtasks/{attempt.subtask}", vertices.attempt_details(attempt, now)
    for attempt in (*vertex.subtasks, *vertex.former_attempts):
        one = f"{base}/subtasks/{attempt.subtask}/attempts/{attempt.attempt_number}"
        yield one, vertices.attempt_details(attempt, now)
        yield f"{one}/accumulators", AttemptAccumulators.model_validate(attempt)
