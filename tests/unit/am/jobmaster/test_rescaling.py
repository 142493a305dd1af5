"""Rescaling: what is refused, what the scheduler does, what it goes back to."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling, of_kind
from tests.unit.am.jobmaster.scheduling.test_failover import PLAIN, cancelled, deployed, edges, restarting
from tests.unit.am.jobmaster.scheduling.test_slot_pool import offer
from yarrow.am.jobmaster.rescaling import RescaleRefusedError, parallelism_for_all, rescaled_job
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    Actions,
    CancelTasksAction,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
    JobReplaced,
    RescaleEnded,
    RescaleSlotsAnswered,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    IdleSlotsChecked,
    JobCancelled,
    JobFailed,
    RescaleBegun,
    RescaleSlotsFailed,
    RescaleSlotsReleased,
    RescaleSlotsWanted,
    SlotLost,
    SlotRequestTimedOut,
    TaskExecutorLost,
    TasksStopForRescale,
)
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, JobVertexID, ResourceID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.states import ExecutionState

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
    actions = job.handle(RescaleBegun(job.now, to(before, *parallelism)))
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
    assert job.scheduler.explanation(job.now) == "needs 3 slots and has 2"
    assert deployed(job.offer(1)) == [f"vertex {v} ({s}/3) #1" for v in (0, 1) for s in (1, 2, 3)]
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]
    assert job.graph.restarts == 0
    assert job.report(FINISHED)[-1] == JobEnded(JobStatus.FINISHED)


def test_tasks_that_end_with_its_checkpoint_do_not_end_the_job() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    assert not job.handle(TasksStopForRescale(job.now, True))
    assert not of_kind(job.report(FINISHED), JobEnded)
    actions = job.handle(RescaleBegun(job.now, to(job.graph.job, 1, 1)))
    assert len(of_kind(actions, JobReplaced)) == 1 and len(deployed(actions)) == 2
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]
    assert job.report(FINISHED)[-1] == JobEnded(JobStatus.FINISHED)


def test_a_job_that_finished_instead_of_its_checkpoint_ends() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    job.handle(TasksStopForRescale(job.now, True))
    assert not of_kind(job.report(FINISHED), JobEnded)
    assert job.handle(TasksStopForRescale(job.now, False))[-1] == JobEnded(JobStatus.FINISHED)


def test_what_could_not_be_rescaled_starts_as_it_was() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    job.handle(TasksStopForRescale(job.now, True))
    job.report(FINISHED)
    assert len(deployed(job.handle(RescaleBegun(job.now, job.graph.job)))) == 4
    assert of_kind(job.report(RUNNING), RescaleEnded) == [RescaleEnded(None)]


def test_down_gives_slots_back() -> None:
    job = restarting(keyed(3, 3))
    job.running(3)
    rescaling(job, 1, 1)
    assert len(deployed(job.report(CANCELED))) == 2
    assert len(of_kind(job.handle(IdleSlotsChecked(job.now)), FreeSlot)) == 2
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
    actions = job.handle(SlotRequestTimedOut(job.now, BROKEN))
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
    job.handle(JobCancelled(job.now))
    assert job.report(CANCELED)[-1] == JobEnded(JobStatus.CANCELED)


# The slots, before anything is stopped.

HELD = RescaleSlotsAnswered(None)


def answers(actions: Actions) -> list[str]:
    """Why slots are not waited for any more."""
    return [
        each.failure.message for each in of_kind(actions, RescaleSlotsAnswered) if each.failure is not None
    ]


def waiting_for_slots(job: Scheduling, *parallelism: int) -> JobGraph:
    """A job of parallelism 2 that runs, and wishes to be another one for which it lacks slots."""
    job.running(2)
    following = to(job.graph.job, *parallelism)
    actions = job.handle(RescaleSlotsWanted(job.now, following))
    assert not of_kind(actions, RescaleSlotsAnswered) and not of_kind(actions, CancelTasksAction)
    assert job.graph.status is JobStatus.RUNNING and job.graph.all_running
    return following


def test_what_is_lacking_is_asked_for_while_the_job_goes_on() -> None:
    job = restarting(keyed(2, 2))
    following = waiting_for_slots(job, 4, 4)
    assert job.pool.required == 4 and job.scheduler.slots_for_rescale == 4
    assert job.scheduler.explanation(job.now) == ""
    assert job.offer(1) == []
    # They are not given up, and not used either, while the last one is waited for.
    assert job.handle(IdleSlotsChecked(job.now + 1000)) == []
    assert of_kind(job.offer(1, "other"), RescaleSlotsAnswered) == [HELD]
    assert job.pool.held == 4 and job.graph.all_running
    # No more are taken than that.
    assert job.accepted(ResourceID("third"), offer("more", 0)) == ()
    job.handle(RescaleBegun(job.now, following))
    actions = job.report(CANCELED)
    assert len(deployed(actions)) == 8
    assert job.pool.required == 4 and job.pool.waiting == 0
    assert job.handle(RescaleSlotsReleased(job.now)) == []


def test_slots_count_in_all_groups_together() -> None:
    job = restarting(edges(linear_job(Stage(2, group="a"), Stage(1, group="b")), PartitionerKind.KEY_GROUP))
    job.running(3)
    following = to(job.graph.job, 1, 2)
    assert job.handle(RescaleSlotsWanted(job.now, following)) == [HELD]
    job.handle(RescaleBegun(job.now, following))
    assert len(deployed(job.report(CANCELED))) == 3


def test_fewer_slots_are_never_waited_for() -> None:
    job = restarting(keyed(3, 3))
    job.running(3)
    assert job.handle(RescaleSlotsWanted(job.now, to(job.graph.job, 1, 1))) == [HELD]
    assert job.handle(RescaleSlotsReleased(job.now)) == []
    assert job.pool.held == 3


def test_slots_that_do_not_come_leave_the_job_alone() -> None:
    job = restarting(keyed(2, 2))
    waiting_for_slots(job, 4, 4)
    job.offer(1)
    assert answers(job.handle(RescaleSlotsFailed(job.now, "the queue is full"))) == ["the queue is full"]
    actions = job.handle(RescaleSlotsReleased(job.now))
    assert of_kind(actions, DeclareRequirements) == [DeclareRequirements(2)]
    assert [freed.slot.allocation_id for freed in of_kind(actions, FreeSlot)] == ["a2"]
    assert job.accepted(ResourceID("te"), offer("late", 7)) == ()
    assert job.graph.all_running and job.graph.restarts == 0
    assert job.handle(RescaleSlotsFailed(job.now, "again")) == [] and job.scheduler.slots_for_rescale == 0


def test_a_failure_while_slots_are_waited_for_takes_them_and_ends_the_wait() -> None:
    job = restarting(keyed(2, 2))
    waiting_for_slots(job, 4, 4)
    job.offer(1, "other")
    lost = AllocationID("a0")
    actions = job.handle(SlotLost(job.now, lost, BROKEN))
    assert answers(actions) == ["the job failed while it waited for slots: broken"]
    actions = job.report(CANCELED)
    assert len(deployed(actions)) == 4 and not of_kind(actions, JobReplaced)
    assert job.pool.required == 2 and job.graph.restarts == 1
    assert job.handle(RescaleSlotsReleased(job.now)) == []


def test_a_slot_that_is_lost_while_others_are_waited_for_is_waited_for_again() -> None:
    job = restarting(keyed(2, 2))
    waiting_for_slots(job, 4, 4)
    job.offer(1, "other")
    assert job.handle(TaskExecutorLost(job.now, ResourceID("other"), BROKEN)) == []
    assert job.pool.required == 4 and job.pool.held == 2 and job.graph.all_running
    assert not of_kind(job.offer(1), RescaleSlotsAnswered)
    assert of_kind(job.offer(1), RescaleSlotsAnswered) == [HELD]


@pytest.mark.parametrize("how", ["cancelled", "failed for good"])
def test_the_end_of_the_job_ends_the_wait(how: str) -> None:
    job = restarting(keyed(2, 2))
    waiting_for_slots(job, 4, 4)
    job.offer(1)
    if how == "cancelled":
        assert answers(job.handle(JobCancelled(job.now))) == ["the job is CANCELLING"]
    else:
        assert answers(job.handle(JobFailed(job.now, BROKEN))) == ["the job is FAILING"]
    actions = job.report(CANCELED)
    assert (
        len(of_kind(actions, FreeSlot)) + len(of_kind(job.handle(RescaleSlotsReleased(job.now)), FreeSlot))
        == 3
    )
    assert of_kind(actions, DeclareRequirements)[-1:] == [DeclareRequirements(0)]
    assert job.pool.required == 0
    assert job.graph.machine.is_terminal


def test_a_job_that_does_not_run_waits_for_no_slots() -> None:
    job = restarting(keyed(2, 2))
    job.running(2)
    job.handle(JobCancelled(job.now))
    assert job.handle(RescaleSlotsWanted(job.now, to(job.graph.job, 4, 4))) == [HELD]
    assert job.pool.required == 2
