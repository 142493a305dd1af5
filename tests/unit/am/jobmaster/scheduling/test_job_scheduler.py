"""JobScheduler: from CREATED to FINISHED, FAILED and CANCELED."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling, of_kind
from yarrow.am.jobmaster.details import job_details, job_overview, job_result
from yarrow.am.jobmaster.links.deployment import EncodedGraph, build_deployments
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    ArmCancellationTimeout,
    CancelTasksAction,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CancellationTimedOut,
    IdleSlotsChecked,
    JobCancelled,
    SlotLost,
    TaskExecutorLost,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.settings import SchedulerMode
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, JobMasterID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import TaskExecutionStateUpdate

RUNNING, FINISHED, FAILED, CANCELED = (
    ExecutionState.RUNNING,
    ExecutionState.FINISHED,
    ExecutionState.FAILED,
    ExecutionState.CANCELED,
)


def test_eager_asks_for_all_slots_and_deploys_when_all_are_there() -> None:
    job = Scheduling(linear_job(Stage(2), Stage(3)))
    assert job.start() == [DeclareRequirements(3)]
    assert job.graph.status is JobStatus.RUNNING
    assert job.offer(2) == []
    assert set(job.states()) == {"SCHEDULED"}
    (deploy,) = job.offer(1)
    assert isinstance(deploy, Deploy) and len(deploy.executions) == 5
    assert set(job.states()) == {"DEPLOYING"}


def test_subtasks_of_one_index_share_a_slot() -> None:
    job = Scheduling(linear_job(Stage(3), Stage(3), Stage(2)))
    job.start()
    job.offer(3)
    for subtask in range(3):
        allocations = {job.execution(v, subtask).allocation_id for v in (0, 1, 2) if (v, subtask) != (2, 2)}
        assert len(allocations) == 1


def test_groups_do_not_share() -> None:
    job = Scheduling(linear_job(Stage(2), Stage(2, group="other")))
    assert job.start() == [DeclareRequirements(4)]


def test_the_job_finishes_with_its_last_task_and_gives_all_slots_back() -> None:
    job = Scheduling(linear_job(Stage(1), Stage(2)))
    job.running(2)
    assert job.report(FINISHED, job.execution(0, 0), job.execution(1, 0)) == []
    actions = job.report(FINISHED, job.execution(1, 1))
    assert actions[0] == DeclareRequirements(0)
    assert [type(action) for action in actions[1:-1]] == [FreeSlot] * 2
    assert actions[-1] == JobEnded(JobStatus.FINISHED)
    result = job_result(job.graph)
    assert (result.status, result.cause) == (JobStatus.FINISHED, None)


def test_the_first_failure_cancels_the_rest_and_is_the_cause() -> None:
    job = Scheduling(linear_job(Stage(2), Stage(2)))
    job.running(2)
    actions = job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    assert job.graph.status is JobStatus.FAILING
    (cancel,) = of_kind(actions, CancelTasksAction)
    assert len(cancel.attempts) == 3
    assert of_kind(actions, ArmCancellationTimeout)
    second = BROKEN.__class__(exception_name="X", message="a consequence", stacktrace="")
    assert job.report(FAILED, job.execution(1, 1), cause=second) == []
    actions = job.report(CANCELED)
    assert actions[-1] == JobEnded(JobStatus.FAILED)
    result = job_result(job.graph)
    assert result.cause == BROKEN
    history = job_details(job.graph).exceptions
    assert [(entry.cause.message, entry.task_name) for entry in history] == [
        ("broken", "vertex 0 (2/2)"),
        ("a consequence", "vertex 1 (2/2)"),
    ]


def test_cancel_before_any_slot_came() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.start()
    assert job.handle(JobCancelled(job.now)) == [DeclareRequirements(0), JobEnded(JobStatus.CANCELED)]
    assert job.offer(2) == []
    assert job.pool.held == 0


def test_cancel_waits_for_the_tasks() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    actions = job.handle(JobCancelled(job.now))
    assert [type(action) for action in actions] == [CancelTasksAction, ArmCancellationTimeout]
    assert job.states() == ["CANCELING"] * 2
    assert job.handle(JobCancelled(job.now)) == []
    # One was quicker than the cancel.
    job.report(FINISHED, job.execution(0, 0))
    assert job.report(CANCELED)[-1] == JobEnded(JobStatus.CANCELED)


def test_tasks_that_do_not_end_are_given_up_with_their_workers() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    job.handle(JobCancelled(job.now))
    job.report(CANCELED, job.execution(0, 0))
    actions = job.handle(CancellationTimedOut(job.now, "too late"))
    freed = of_kind(actions, FreeSlot)
    assert freed[0].cause == "too late"
    assert freed[0].slot.allocation_id == job.execution(0, 1).allocation_id
    assert actions[-1] == JobEnded(JobStatus.CANCELED)
    assert job.handle(CancellationTimedOut(job.now, "again")) == []


def test_a_lost_slot_fails_its_tasks_once_and_cancels_the_others() -> None:
    job = Scheduling(linear_job(Stage(2), Stage(2)))
    job.running(2)
    allocation = job.execution(0, 0).allocation_id
    assert allocation is not None
    actions = job.handle(SlotLost(job.now, allocation, BROKEN))
    (cancel,) = of_kind(actions, CancelTasksAction)
    assert set(cancel.attempts) == {job.execution(0, 1).attempt_id, job.execution(1, 1).attempt_id}
    assert len(job_details(job.graph).exceptions) == 1
    assert job.handle(SlotLost(job.now, AllocationID("unknown"), BROKEN)) == []


def test_a_lost_task_executor_fails_a_job_that_lived_there_alone() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    actions = job.handle(TaskExecutorLost(job.now, ResourceID("te"), BROKEN))
    assert actions.count(JobEnded(JobStatus.FAILED)) == 1
    assert not of_kind(actions, CancelTasksAction)


def test_a_task_executor_lost_while_cancelling_ends_the_cancelling() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    job.handle(JobCancelled(job.now))
    actions = job.handle(TaskExecutorLost(job.now, ResourceID("te"), BROKEN))
    assert JobEnded(JobStatus.CANCELED) in actions


def test_a_task_cancelled_by_its_worker_fails_the_job() -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    job.report(CANCELED)
    assert job.graph.status is JobStatus.FAILED
    assert job.graph.failure is not None and "not by the JobMaster" in job.graph.failure.message


def test_late_and_doubled_reports_change_nothing() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    first = job.execution(0, 0)
    job.report(FINISHED, first)
    for state in (RUNNING, FAILED, FINISHED, CANCELED, ExecutionState.INITIALIZING):
        assert job.report(state, first, cause=BROKEN) == []
    assert job.states() == ["FINISHED", "RUNNING"]


def test_slots_without_tasks_go_back_after_their_timeout() -> None:
    job = Scheduling(linear_job(Stage(1, group="first"), Stage(2)))
    job.running(3)
    job.report(FINISHED, job.execution(0, 0))
    job.report(FINISHED, job.execution(1, 1))
    job.clock.advance(49)
    assert job.handle(IdleSlotsChecked(job.now)) == []
    job.clock.advance(1)
    actions = job.handle(IdleSlotsChecked(job.now))
    assert actions[0] == DeclareRequirements(1)
    assert [type(action) for action in actions[1:]] == [FreeSlot] * 2


def test_the_slot_of_a_source_coordinator_outlives_its_first_reader() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    job.report(FINISHED, job.execution(0, 0))
    job.clock.advance(100)
    assert job.handle(IdleSlotsChecked(job.now)) == []


def test_lazy_starts_what_reads_complete_results_later() -> None:
    line = linear_job(Stage(2), Stage(2), Stage(3, blocking=True))
    job = Scheduling(line, SchedulerMode.LAZY_FROM_SOURCES)
    assert job.start() == [DeclareRequirements(2)]
    (deploy,) = of_kind(job.offer(2), Deploy)
    assert len(deploy.executions) == 4
    deployments = build_deployments(job.graph, JobMasterID("jm"), EncodedGraph(b""), deploy.executions)
    (deployment,) = deployments.values()
    assert len(deployment.placements) == 2
    job.report(RUNNING, *deploy.executions)
    for execution in deploy.executions[:-1]:
        assert not of_kind(job.report(FINISHED, execution), Deploy)
    # Two slots are idle now and used again, a third is asked for.
    assert job.report(FINISHED, deploy.executions[-1]) == [DeclareRequirements(3)]
    (deploy,) = of_kind(job.offer(1), Deploy)
    assert [execution.vertex.name for execution in deploy.executions] == ["vertex 2"] * 3


def test_what_the_job_waits_for_is_said() -> None:
    job = Scheduling(linear_job(Stage(4)))
    assert job.scheduler.explanation(job.now) == ""
    job.start()
    job.offer(1)
    assert job.scheduler.explanation(job.now) == "needs 4 slots and has 1"
    job.offer(3)
    assert job.scheduler.explanation(job.now) == ""


def test_deployments_are_one_for_each_task_executor_and_agree_on_placements() -> None:
    job = Scheduling(linear_job(Stage(3), Stage(3)))
    job.start()
    job.offer(2, "one")
    job.offer(1, "two")
    executions = list(job.graph.executions())
    deployments = build_deployments(job.graph, JobMasterID("jm"), EncodedGraph(b"graph"), executions)
    assert sum(len(deployment.tasks) for deployment in deployments.values()) == 6
    placements = {deployment.placements for deployment in deployments.values()}
    assert len(placements) == 1
    for execution in executions:
        assert execution.worker is not None
        deployment = next(iter(deployments.values()))
        placed = {p.vertex_id: p.subtasks for p in deployment.placements}[execution.vertex.id]
        placement = placed[execution.subtask]
        assert placement.attempt_id == execution.attempt_id
        assert deployment.workers[placement.worker] == execution.worker


def test_accumulators_that_do_not_merge_do_not_keep_the_job_from_ending() -> None:
    job = Scheduling(linear_job(Stage(2)))
    job.running(2)
    parts: list[dict[str, Any]] = [{"rows": 2, "odd": 1}, {"rows": 3, "odd": [1]}]
    for subtask, values in enumerate(parts):
        update = TaskExecutionStateUpdate(
            attempt_id=job.execution(0, subtask).attempt_id,
            state=FINISHED,
            timestamp_ms=0,
            accumulators=values,
        )
        job.handle(TasksUpdated(job.now, (update,)))
    result = job_result(job.graph)
    assert result.status is JobStatus.FINISHED
    assert result.accumulators["rows"] == 5
    assert "'odd' is int in one subtask and list in another" in result.accumulators["odd"]


def test_a_new_attempt_replaces_only_an_ended_one() -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    execution = job.execution(0, 0)
    with pytest.raises(ValueError, match="has not ended"):
        job.graph.next_attempt(execution)
    job.report(FAILED, cause=BROKEN)
    following = job.graph.next_attempt(execution)
    assert (following.attempt_number, following.subtask) == (1, 0)
    assert job.graph.execution(execution.attempt_id) is None
    (vertex,) = job_details(job.graph).vertices
    assert [attempt.attempt_number for attempt in vertex.former_attempts] == [0]
    assert job_overview(job.graph).tasks["created"] == 1


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(ExecutionState))), max_size=80), st.booleans()
)
def test_counts_agree_and_an_ended_job_stays_ended(
    reports: list[tuple[int, ExecutionState]], cancels: bool
) -> None:
    job = Scheduling(linear_job(Stage(2), Stage(4)))
    job.start()
    job.offer(4)
    executions = list(job.graph.executions())
    ended = []
    for number, (index, state) in enumerate(reports):
        ended += of_kind(job.report(state, executions[index], cause=BROKEN), JobEnded)
        if cancels and number == len(reports) // 2:
            ended += of_kind(job.handle(JobCancelled(job.now)), JobEnded)
        tasks = job_overview(job.graph).tasks
        assert tasks["total"] == 6 == sum(tasks.values()) - tasks["total"]
        assert job.graph.live == sum(not execution.state.is_terminal for execution in executions)
    assert len(ended) == (1 if job.graph.machine.is_terminal else 0)
    if job.graph.machine.is_terminal:
        assert job.pool.held == 0
