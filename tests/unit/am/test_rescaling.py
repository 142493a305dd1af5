"""Rescaling: what is refused, what the scheduler does, what it goes back to."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.am.scheduling import BROKEN, Scheduling, of_kind
from tests.unit.am.test_failover import PLAIN, cancelled, deployed, edges, restarting
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, parallelism_for_all, rescaled_job
from yarrow.am.jobmaster.scheduler_actions import Deploy, FreeSlot, JobEnded, JobReplaced, RescaleEnded
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.states import ExecutionState, JobStatus
from yarrow.testing.job_graphs import Stage, linear_job

RUNNING, FINISHED, FAILED, CANCELED = (
    ExecutionState.RUNNING,
    ExecutionState.FINISHED,
    ExecutionState.FAILED,
    ExecutionState.CANCELED,
)


def keyed(*parallelism: int) -> JobGraph:
    return edges(linear_job(*map(Stage, parallelism)), *[PartitionerKind.KEY_GROUP] * (len(parallelism) - 1))


def to(job: JobGraph, *parallelism: int) -> JobGraph:
    return rescaled_job(job, {v.id: p for v, p in zip(job.vertices, parallelism, strict=True)})


# What may be.


def test_named_vertices_change_and_the_plan_with_them() -> None:
    job = keyed(2, 2)
    first, second = job.vertices
    job = msgspec.structs.replace(
        job, plan={"nodes": [{"id": first.id, "parallelism": 2}, {"id": "x", "parallelism": 9}]}
    )
    changed = rescaled_job(job, {first.id: 5})
    assert [vertex.parallelism for vertex in changed.vertices] == [5, 2]
    assert [node["parallelism"] for node in changed.plan["nodes"]] == [5, 9]
    assert second.parallelism == 2


@pytest.mark.parametrize("parallelism", [0, 1025])
def test_bounds_are_refused_by_name(parallelism: int) -> None:
    with pytest.raises(RescaleRefusedError, match=r"'vertex 1'.*between 1 and its max parallelism, 1024"):
        to(keyed(2, 2), 2, parallelism)


def test_forward_edges_keep_their_ends_equal() -> None:
    with pytest.raises(RescaleRefusedError, match=r"'vertex 0' and 'vertex 1' are connected by forward\(\)"):
        to(linear_job(Stage(2), Stage(2)), 3, 2)


def test_an_unknown_vertex_is_refused() -> None:
    with pytest.raises(RescaleRefusedError, match="has no vertex nowhere"):
        rescaled_job(keyed(1), {JobVertexID("nowhere"): 2})


def test_what_has_to_be_single_stays_so() -> None:
    single = linear_job(Stage(1, operator=PLAIN), Stage(2), Stage(1))
    job = edges(single, PartitionerKind.REBALANCE, PartitionerKind.GLOBAL)
    assert list(parallelism_for_all(job, 4).values()) == [1, 4, 1]


# The scheduler.


def rescaling(job: Scheduling, *parallelism: int) -> JobGraph:
    """Begins a rescale and ends all tasks; the job before."""
    before = job.graph.job
    actions = job.scheduler.rescale(to(before, *parallelism), job.now)
    assert cancelled(actions) == sum(vertex.parallelism for vertex in before.vertices)
    assert job.graph.status is JobStatus.RESTARTING
    return before


def test_up_takes_more_slots_and_goes_on_counting_attempts() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    rescaling(job, 3, 3)
    actions = job.report(CANCELED)
    assert [len(replaced.job.vertices) for replaced in of_kind(actions, JobReplaced)] == [2]
    assert not of_kind(actions, Deploy)
    assert job.scheduler.explanation(job.now) == "needs 3 slots, has 2 of them"
    assert deployed(job.offer(1)) == [f"vertex {v} ({s}/3) #1" for v in (0, 1) for s in (1, 2, 3)]
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]
    assert job.graph.restarts == 0
    assert job.report(FINISHED)[-1] == JobEnded(JobStatus.FINISHED)


def test_tasks_that_end_with_its_checkpoint_do_not_end_the_job() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    assert not job.scheduler.stop_to_rescale(True)
    assert not of_kind(job.report(FINISHED), JobEnded)
    actions = job.scheduler.rescale(to(job.graph.job, 1, 1), job.now)
    assert len(of_kind(actions, JobReplaced)) == 1 and len(deployed(actions)) == 2
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]
    assert job.report(FINISHED)[-1] == JobEnded(JobStatus.FINISHED)


def test_a_job_that_finished_instead_of_its_checkpoint_ends() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    job.scheduler.stop_to_rescale(True)
    assert not of_kind(job.report(FINISHED), JobEnded)
    assert job.scheduler.stop_to_rescale(False)[-1] == JobEnded(JobStatus.FINISHED)


def test_what_could_not_be_rescaled_starts_as_it_was() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    job.scheduler.stop_to_rescale(True)
    job.report(FINISHED)
    assert len(deployed(job.scheduler.rescale(job.graph.job, job.now))) == 4
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]


def test_down_gives_slots_back() -> None:
    job = restarting(keyed(3, 3))
    job.running(3)
    rescaling(job, 1, 1)
    assert len(deployed(job.report(CANCELED))) == 2
    assert len(of_kind(job.scheduler.check(job.now), FreeSlot)) == 2
    assert job.pool.required == 1


def test_a_failure_before_all_run_goes_back() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    before = rescaling(job, 1, 1)
    job.report(CANCELED)
    job.report(RUNNING, job.execution(0, 0))
    job.report(FAILED, job.execution(1, 0), cause=BROKEN)
    actions = job.report(CANCELED, job.execution(0, 0))
    assert of_kind(actions, JobReplaced) == [JobReplaced(before)]
    assert of_kind(actions, RescaleEnded) == [RescaleEnded(BROKEN)]
    assert len(deployed(actions)) == 4
    assert not of_kind(job.report(RUNNING), RescaleEnded)


def test_slots_that_do_not_come_go_back() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    before = rescaling(job, 4, 4)
    job.report(CANCELED)
    actions = job.scheduler.slots_timed_out(BROKEN, job.now)
    assert of_kind(actions, JobReplaced) == [JobReplaced(before)]
    assert len(deployed(actions)) == 4 and job.pool.waiting == 0


def test_a_failure_after_all_run_is_an_ordinary_one() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    rescaling(job, 1, 1)
    job.report(CANCELED)
    job.report(RUNNING)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    actions = job.report(CANCELED)
    assert not of_kind(actions, JobReplaced)
    assert len(deployed(actions)) == 2


def test_cancelled_during_a_rescale() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    rescaling(job, 1, 1)
    job.scheduler.cancel(job.now)
    assert job.report(CANCELED)[-1] == JobEnded(JobStatus.CANCELED)
