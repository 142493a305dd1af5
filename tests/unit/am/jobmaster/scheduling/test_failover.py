"""Failover: which tasks restart, when, where, and what the job's status and history say meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling, of_kind
from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.details import job_details
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.regions import Subtask, SubtaskGraph
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    Actions,
    ArmCancellationTimeout,
    ArmRestart,
    CancelTasksAction,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
    ResetReaderAction,
    TasksRestarting,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CheckpointsChanged,
    ClientAwaited,
    FailedGlobally,
    IdleSlotsChecked,
    JobCancelled,
    RestartCancellationTimedOut,
    RestartDue,
    SchedulerEvent,
    SlotLost,
    SlotRequestTimedOut,
    TaskExecutorLost,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.settings import FailoverScope, SchedulerMode
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.connector_spec import SourceFunctionOperator
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, ResultPartitionType
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause, TaskExecutionStateUpdate

RUNNING, FINISHED, FAILED, CANCELED = (
    ExecutionState.RUNNING,
    ExecutionState.FINISHED,
    ExecutionState.FAILED,
    ExecutionState.CANCELED,
)
#: A source without a split enumerator: its subtasks are each on their own.
PLAIN = SourceFunctionOperator(function=b"")


def restarting(
    job: JobGraph,
    attempts: int = 100,
    delay: float = 0.0,
    scope: FailoverScope = FailoverScope.REGION,
    mode: SchedulerMode = SchedulerMode.EAGER,
) -> Scheduling:
    backoff = FixedDelayBackoff(FixedDelaySettings(attempts, delay))
    return Scheduling(job, mode, backoff, scope)


def edges(job: JobGraph, *kinds: PartitionerKind, blocking: bool | None = None) -> JobGraph:
    """The job with these partitioners on its edges, in order."""

    def changed(edge: JobEdge, kind: PartitionerKind) -> JobEdge:
        result = edge.result_type
        if blocking is not None:
            result = ResultPartitionType.BLOCKING if blocking else ResultPartitionType.PIPELINED
        return msgspec.structs.replace(edge, partitioner=PartitionerSpec(kind=kind), result_type=result)

    return msgspec.structs.replace(
        job, edges=tuple(changed(edge, kind) for edge, kind in zip(job.edges, kinds, strict=True))
    )


def deployed(actions: Actions) -> list[str]:
    """Titles and attempts of what is started."""
    return [
        f"{execution.title} #{execution.attempt_number}"
        for deploy in of_kind(actions, Deploy)
        for execution in deploy.executions
    ]


def cancelled(actions: Actions) -> int:
    return sum(len(cancel.attempts) for cancel in of_kind(actions, CancelTasksAction))


# Regions.


@pytest.mark.parametrize(
    ("kind", "parallelisms", "regions"),
    [
        (PartitionerKind.FORWARD, (3, 3), 3),
        (PartitionerKind.RESCALE, (4, 2), 2),
        (PartitionerKind.RESCALE, (2, 4), 2),
        (PartitionerKind.REBALANCE, (3, 3), 1),
        (PartitionerKind.KEY_GROUP, (2, 5), 1),
    ],
)
def test_regions_are_what_pipelined_edges_connect(
    kind: PartitionerKind, parallelisms: tuple[int, int], regions: int
) -> None:
    job = edges(linear_job(*map(Stage, parallelisms)), kind)
    subtasks = SubtaskGraph(job)
    assert len({subtasks.region_of(subtask) for subtask in subtasks.all()}) == regions
    cut = SubtaskGraph(edges(job, kind, blocking=True))
    assert len({cut.region_of(subtask) for subtask in cut.all()}) == sum(parallelisms)


def test_members_and_blocking_neighbours_agree_from_both_ends() -> None:
    job = edges(linear_job(Stage(4), Stage(2)), PartitionerKind.RESCALE, blocking=True)
    subtasks = SubtaskGraph(job)
    first, second = (vertex.id for vertex in job.vertices)
    assert [other for _, other in subtasks.blocking_producers(Subtask(second, 1))] == [
        Subtask(first, 2),
        Subtask(first, 3),
    ]
    assert [other for _, other in subtasks.blocking_consumers(Subtask(first, 3))] == [Subtask(second, 1)]


# What restarts.


def test_only_the_failed_region_restarts_and_keeps_its_slot() -> None:
    job = restarting(linear_job(Stage(3, operator=PLAIN), Stage(3)))
    job.running(3)
    allocation = job.execution(0, 1).allocation_id
    actions = job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    assert cancelled(actions) == 1
    assert of_kind(actions, ArmCancellationTimeout) == [ArmCancellationTimeout(1)]
    assert not of_kind(actions, DeclareRequirements)
    assert job.status() is JobStatus.RESTARTING
    (started,) = of_kind(actions, TasksRestarting)
    assert len(started.attempts) == 2
    actions = job.report(CANCELED, job.execution(1, 1))
    assert deployed(actions) == ["vertex 0 (2/3) #1", "vertex 1 (2/3) #1"]
    assert job.execution(0, 1).allocation_id == allocation
    assert job.status() is JobStatus.RUNNING
    assert [job.execution(vertex, 0).attempt_number for vertex in (0, 1)] == [0, 0]
    assert job.execution(0, 0).state is RUNNING


def test_all_to_all_edges_take_everything_along() -> None:
    job = restarting(edges(linear_job(Stage(2, operator=PLAIN), Stage(2)), PartitionerKind.KEY_GROUP))
    job.running(2)
    assert cancelled(job.report(FAILED, job.execution(0, 0), cause=BROKEN)) == 3


def test_a_final_failure_fails_the_job_whatever_its_restart_strategy_says() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)))
    job.running(2)
    job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    assert (job.status(), job.graph.restarts) == (JobStatus.RUNNING, 1)
    final = msgspec.structs.replace(BROKEN, message="a module is missing", is_final=True)
    job.report(FAILED, job.execution(0, 1), cause=final)
    assert job.status() is JobStatus.FAILING and job.graph.failure == final
    assert job.report(CANCELED)[-1] == JobEnded(JobStatus.FAILED)
    assert job.graph.restarts == 1


def test_a_cause_that_only_the_user_mends_is_final_until_the_job_has_a_checkpoint() -> None:
    refused = msgspec.structs.replace(BROKEN, message="a wrong password", needs_user=True)
    begun = restarting(linear_job(Stage(1, operator=PLAIN)))
    begun.handle(CheckpointsChanged(begun.now, False, False, True))
    begun.running(1)
    begun.report(FAILED, begun.execution(0, 0), cause=BROKEN)
    assert (begun.status(), begun.graph.restarts) == (JobStatus.RUNNING, 1), "any other cause is tried again"
    begun.report(RUNNING)
    begun.report(FAILED, begun.execution(0, 0), cause=refused)
    assert begun.status() is JobStatus.FAILED and begun.graph.failure is not None
    assert "a wrong password" in begun.graph.failure.message
    assert "does not restart: it has no checkpoint yet" in begun.graph.failure.stacktrace

    going_on = restarting(linear_job(Stage(1, operator=PLAIN)))
    going_on.handle(CheckpointsChanged(going_on.now, False, False, True))
    going_on.running(1)
    going_on.handle(CheckpointsChanged(going_on.now, False, False))
    going_on.report(FAILED, going_on.execution(0, 0), cause=refused)
    assert (going_on.status(), going_on.graph.restarts) == (JobStatus.RUNNING, 1)


def test_a_job_that_makes_no_checkpoints_goes_by_its_restart_strategy() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)))
    job.running(1)
    revoked = msgspec.structs.replace(BROKEN, message="a right is missing", needs_user=True)
    job.report(FAILED, job.execution(0, 0), cause=revoked)
    assert (job.status(), job.graph.restarts) == (JobStatus.RUNNING, 1)


def test_a_first_checkpoint_that_may_still_complete_counts() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)))
    job.handle(CheckpointsChanged(job.now, True, False, True))
    job.running(1)
    revoked = msgspec.structs.replace(BROKEN, message="a right is missing", needs_user=True)
    actions = job.report(FAILED, job.execution(0, 0), cause=revoked)
    assert job.status() is JobStatus.RESTARTING and not of_kind(actions, Deploy)
    job.handle(CheckpointsChanged(job.now, False, False))
    assert deployed(job.handle(RestartDue(job.now, 1))) == ["vertex 0 (1/1) #1"]


def test_a_job_without_a_restart_strategy_fails_by_the_cause_as_it_is() -> None:
    refused = msgspec.structs.replace(BROKEN, message="a wrong password", needs_user=True)
    job = Scheduling(linear_job(Stage(1, operator=PLAIN)))
    job.running(1)
    job.report(FAILED, job.execution(0, 0), cause=refused)
    assert job.status() is JobStatus.FAILED and job.graph.failure == refused


def test_individual_failover_restarts_what_has_no_edges_alone_and_the_rest_by_regions() -> None:
    graph = linear_job(Stage(2, operator=PLAIN), Stage(2))
    alone = restarting(msgspec.structs.replace(graph, edges=()), scope=FailoverScope.INDIVIDUAL)
    alone.running(2)
    actions = alone.report(FAILED, alone.execution(0, 1), cause=BROKEN)
    assert cancelled(actions) == 0 and deployed(actions) == ["vertex 0 (2/2) #1"]
    connected = restarting(graph, scope=FailoverScope.INDIVIDUAL)
    connected.running(2)
    assert cancelled(connected.report(FAILED, connected.execution(0, 1), cause=BROKEN)) == 1


def test_full_failover_takes_everything_along() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN), Stage(2)), scope=FailoverScope.FULL)
    job.running(2)
    assert cancelled(job.report(FAILED, job.execution(0, 0), cause=BROKEN)) == 3


def test_finished_tasks_of_the_region_run_again() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN), Stage(1)))
    job.running(1)
    job.report(FINISHED, job.execution(0, 0))
    actions = job.report(FAILED, job.execution(1, 0), cause=BROKEN)
    assert deployed(actions) == ["vertex 0 (1/1) #1", "vertex 1 (1/1) #1"]
    job.report(RUNNING)
    assert job.report(FINISHED)[-1] == JobEnded(JobStatus.FINISHED)


@pytest.mark.parametrize(
    "event", [lambda now: CheckpointsChanged(now, False, True), lambda now: ClientAwaited(now, True)]
)
def test_a_restart_that_needs_to_be_global_is(event: Callable[[float], SchedulerEvent]) -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)))
    job.running(2)
    assert job.handle(event(job.now)) == []
    assert cancelled(job.report(FAILED, job.execution(0, 0), cause=BROKEN)) == 1


def test_a_global_failure_restarts_the_job() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)))
    job.running(2)
    actions = job.handle(FailedGlobally(job.now, BROKEN))
    assert cancelled(actions) == 2
    assert len(deployed(job.report(CANCELED))) == 2
    assert job_details(job.graph).exceptions[0].task_name == ""


# Slots.


def test_every_region_with_a_task_in_a_lost_slot_restarts_and_no_other() -> None:
    job = restarting(edges(linear_job(Stage(2, operator=PLAIN), Stage(2)), PartitionerKind.FORWARD))
    job.running(2)
    lost = job.execution(0, 1).allocation_id
    assert lost is not None
    actions = job.handle(SlotLost(job.now, lost, BROKEN))
    assert not of_kind(actions, CancelTasksAction)
    assert not of_kind(actions, DeclareRequirements), "what is lost is replaced: the need is the same"
    assert job.states() == ["RUNNING", "SCHEDULED", "RUNNING", "SCHEDULED"]
    assert job.scheduler.explanation(job.now) == "needs 2 slots and has 1"
    assert deployed(job.offer(1)) == ["vertex 0 (2/2) #1", "vertex 1 (2/2) #1"]


def test_lost_slots_come_back_to_where_they_were() -> None:
    job = restarting(linear_job(Stage(3, operator=PLAIN)))
    job.running(3)
    before = {job.execution(0, index).worker: index for index in range(3)}
    assert len(before) == 3
    slots = job.pool.held_slots()
    for slot in slots:
        job.handle(SlotLost(job.now, slot.allocation_id, BROKEN))
    for slot in reversed(slots):
        job.offer_again(slot, f"new {before[slot.worker]}")
    for index in range(3):
        execution = job.execution(0, index)
        assert execution.worker is not None and execution.worker.worker_id == f"new {index}"


def test_a_lost_task_executor_leaves_the_slots_of_the_others_alone() -> None:
    job = restarting(linear_job(Stage(4, operator=PLAIN)))
    job.start()
    job.offer(2, "one")
    job.offer(2, "two")
    job.report(RUNNING)
    kept = [job.execution(0, index).allocation_id for index in (0, 1)]
    actions = job.handle(TaskExecutorLost(job.now, ResourceID("two"), BROKEN))
    assert not of_kind(actions, DeclareRequirements)
    assert job.states() == ["RUNNING", "RUNNING", "SCHEDULED", "SCHEDULED"]
    assert deployed(job.offer(1, "three")) == ["vertex 0 (3/4) #1"]
    assert deployed(job.offer(1, "three")) == ["vertex 0 (4/4) #1"]
    assert [job.execution(0, index).allocation_id for index in (0, 1)] == kept
    assert len(job_details(job.graph).exceptions) == 1


def test_a_slot_lost_before_its_tasks_were_deployed_is_asked_for_again() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)))
    job.start()
    job.offer(1)
    (held,) = job.pool.held_slots()
    job.handle(SlotLost(job.now, held.allocation_id, BROKEN))
    assert job.status() is JobStatus.RUNNING
    assert len(deployed(job.offer(2))) == 2


def test_slots_that_do_not_come_count_as_a_failure() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)), attempts=1)
    job.start()
    job.offer(1)
    job.handle(SlotRequestTimedOut(job.now, BROKEN))
    assert job.status() is JobStatus.RUNNING and job.graph.restarts == 1
    assert set(job.states()) == {"DEPLOYING", "SCHEDULED"}
    job.handle(SlotRequestTimedOut(job.now, BROKEN))
    assert job.status() is JobStatus.FAILING


# Sources.


def test_a_dead_enumerator_takes_its_readers_along() -> None:
    job = restarting(linear_job(Stage(3)))
    job.running(3)
    first = job.execution(0, 0).allocation_id
    assert first is not None
    assert cancelled(job.handle(SlotLost(job.now, first, BROKEN))) == 2


def test_an_enumerator_that_ends_with_its_subtask_takes_its_readers_along() -> None:
    job = restarting(linear_job(Stage(3)))
    job.running(3)
    actions = job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    assert cancelled(actions) == 2
    assert not of_kind(job.report(CANCELED), ResetReaderAction)
    assert not job.execution(0, 0).enumerator_goes_on


def ended_beside_its_enumerator(job: Scheduling, state: ExecutionState = FAILED) -> Actions:
    """Subtask 0 ends; its worker says that the enumerator lives."""
    update = TaskExecutionStateUpdate(
        attempt_id=job.execution(0, 0).attempt_id,
        state=state,
        timestamp_ms=0,
        cause=BROKEN if state is FAILED else None,
        enumerator_lives=True,
    )
    return job.handle(TasksUpdated(job.now, (update,)))


def test_an_enumerator_outlives_its_subtask_and_is_told_that_it_starts_again() -> None:
    job = restarting(linear_job(Stage(3)))
    job.running(3)
    actions = ended_beside_its_enumerator(job)
    assert cancelled(actions) == 0
    assert [reset.subtask for reset in of_kind(actions, ResetReaderAction)] == [0]
    assert deployed(actions) == ["vertex 0 (1/3) #1"]
    assert job.execution(0, 0).enumerator_goes_on
    assert [job.execution(0, reader).state for reader in (1, 2)] == [RUNNING, RUNNING]


def test_an_enumerator_lost_while_its_subtask_waits_takes_its_readers_along() -> None:
    job = restarting(linear_job(Stage(3)), delay=5)
    job.running(3)
    (armed,) = of_kind(ended_beside_its_enumerator(job), ArmRestart)
    slot = job.execution(0, 0).allocation_id
    assert slot is not None
    assert cancelled(job.handle(SlotLost(job.now, slot, BROKEN))) == 2
    assert not job.handle(RestartDue(job.now, armed.restart_id))
    assert job.graph.restarts == 1


def test_an_enumerator_that_ends_as_its_subtask_is_cancelled_takes_its_readers_along() -> None:
    job = restarting(edges(linear_job(Stage(2), Stage(2)), PartitionerKind.FORWARD))
    job.running(2)
    assert cancelled(job.report(FAILED, job.execution(1, 0), cause=BROKEN)) == 1
    actions = job.report(CANCELED, job.execution(0, 0))
    assert cancelled(actions) == 2
    actions = job.report(CANCELED)
    assert not of_kind(actions, ResetReaderAction) and len(deployed(actions)) == 4
    assert job.graph.restarts == 1


def test_a_region_with_a_cancelled_reader_keeps_the_enumerator() -> None:
    job = restarting(edges(linear_job(Stage(2), Stage(2)), PartitionerKind.FORWARD))
    job.running(2)
    job.report(FAILED, job.execution(1, 0), cause=BROKEN)
    actions = ended_beside_its_enumerator(job, CANCELED)
    assert len(of_kind(actions, ResetReaderAction)) == 1 and len(deployed(actions)) == 2
    assert job.execution(0, 1).state is RUNNING


def test_a_reader_whose_enumerator_has_finished_takes_the_others_along() -> None:
    job = restarting(linear_job(Stage(2)))
    job.running(2)
    job.report(FINISHED, job.execution(0, 0))
    actions = job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    assert not of_kind(actions, ResetReaderAction) and len(deployed(actions)) == 2


def finished_with_its_enumerator(job: Scheduling, *done: str) -> Actions:
    """Subtask 0 ends; its worker names the readers that were done with the enumerator."""
    update = TaskExecutionStateUpdate(
        attempt_id=job.execution(0, 0).attempt_id,
        state=FINISHED,
        timestamp_ms=0,
        finished_readers=tuple(map(ExecutionAttemptID, done)),
    )
    return job.handle(TasksUpdated(job.now, (update,)))


def test_a_reader_that_began_while_its_enumerator_was_ending_takes_the_others_along() -> None:
    job = restarting(edges(linear_job(Stage(3), Stage(3)), PartitionerKind.FORWARD), attempts=1)
    job.running(3)
    done = [job.execution(0, reader).attempt_id for reader in range(3)]
    # Its own region fails when the enumerator has said that all are done, and nobody here knows that.
    job.report(FAILED, job.execution(1, 1), cause=BROKEN)
    assert deployed(job.report(CANCELED, job.execution(0, 1))) == ["vertex 0 (2/3) #1", "vertex 1 (2/3) #1"]
    actions = finished_with_its_enumerator(job, *done)
    assert cancelled(actions) == 5 and job.status() is JobStatus.RESTARTING
    actions = job.report(CANCELED)
    assert not of_kind(actions, ResetReaderAction) and len(deployed(actions)) == 6
    assert job.status() is JobStatus.RUNNING and not job.execution(0, 0).enumerator_goes_on


def test_readers_that_were_done_with_their_enumerator_end_in_peace() -> None:
    job = restarting(linear_job(Stage(2)))
    job.running(2)
    done = [job.execution(0, reader).attempt_id for reader in range(2)]
    assert cancelled(finished_with_its_enumerator(job, *done)) == 0
    assert of_kind(job.report(FINISHED), JobEnded) == [JobEnded(JobStatus.FINISHED)]


def test_a_reader_that_waits_for_its_restart_takes_the_others_along_when_it_is_due() -> None:
    job = restarting(linear_job(Stage(2)), delay=5)
    job.running(2)
    done = [job.execution(0, reader).attempt_id for reader in range(2)]
    (armed,) = of_kind(job.report(FAILED, job.execution(0, 1), cause=BROKEN), ArmRestart)
    assert not finished_with_its_enumerator(job, *done)
    job.clock.advance(5)
    assert len(deployed(job.handle(RestartDue(job.now, armed.restart_id)))) == 2


def test_an_enumerator_that_lives_is_told_which_reader_starts_again() -> None:
    job = restarting(linear_job(Stage(3)))
    job.running(3)
    ended = job.execution(0, 1).attempt_id
    actions = job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    vertex = job.graph.job.vertices[0]
    assert of_kind(actions, ResetReaderAction) == [
        ResetReaderAction(ResourceID("te"), vertex.id, vertex.operators[0].id, 1, ended)
    ]
    assert job.execution(0, 1).attempt_id != ended
    assert [type(action) for action in actions][-2:] == [ResetReaderAction, Deploy]
    assert job.execution(0, 0).state is RUNNING


def test_all_readers_begin_with_a_new_enumerator() -> None:
    job = restarting(linear_job(Stage(2)), scope=FailoverScope.FULL)
    job.running(2)
    job.report(FAILED, job.execution(0, 1), cause=BROKEN)
    actions = job.report(CANCELED, job.execution(0, 0))
    assert not of_kind(actions, ResetReaderAction)
    assert len(deployed(actions)) == 2


# Strategy, status, history.


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_nothing_begins_while_it_is_not_known_from_which_checkpoint(delay: float) -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)), delay=delay)
    job.handle(CheckpointsChanged(job.now, True, False))
    job.running(1)
    for actions in (job.report(FAILED, cause=BROKEN), job.handle(RestartDue(job.now, 1))):
        assert len(of_kind(actions, ArmRestart)) == 1 and not of_kind(actions, Deploy)
    job.handle(CheckpointsChanged(job.now, False, False))
    assert deployed(job.handle(RestartDue(job.now, 1))) == ["vertex 0 (1/1) #1"]


def test_several_tasks_that_do_not_end_in_time_restart_once() -> None:
    job = restarting(linear_job(Stage(2), Stage(2)), attempts=1)
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    assert job.states() == ["FAILED", "CANCELING", "CANCELING", "CANCELING"]
    actions = job.handle(RestartCancellationTimedOut(job.now, 1, BROKEN))
    assert len(of_kind(actions, FreeSlot)) == 2
    assert (job.graph.restarts, job.status()) == (1, JobStatus.RUNNING)
    assert {execution.attempt_number for execution in job.graph.executions()} == {1}
    job.offer(2)
    assert job.states() == ["DEPLOYING"] * 4


def test_a_task_executor_lost_while_several_tasks_are_cancelled_restarts_them_once() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN), Stage(3)), attempts=1)
    job.running(3)
    job.report(FAILED, job.execution(1, 2), cause=BROKEN)
    job.handle(TaskExecutorLost(job.now, ResourceID("te"), BROKEN))
    assert (job.graph.restarts, job.status()) == (1, JobStatus.RUNNING)
    assert {execution.attempt_number for execution in job.graph.executions()} == {1}


def test_the_pause_begins_with_the_failure() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)), delay=3)
    job.running(1)
    actions = job.report(FAILED, cause=BROKEN)
    assert of_kind(actions, ArmRestart) == [ArmRestart(1, 3)]
    assert not of_kind(actions, Deploy)
    assert job.status() is JobStatus.RESTARTING
    job.clock.advance(1)
    assert job.scheduler.explanation(job.now).startswith("restarts in 2.0 s: fixed delay: 100 restarts")
    assert deployed(job.handle(RestartDue(job.now, 1))) == ["vertex 0 (1/1) #1"]
    assert job.handle(RestartDue(job.now, 1)) == []
    assert job_details(job.graph).restarting_ms == 1000


def test_a_burst_of_failures_is_one_restart() -> None:
    job = restarting(linear_job(Stage(20, operator=PLAIN)), attempts=1, delay=3)
    job.running(20)
    arms = [job.report(FAILED, job.execution(0, index), cause=BROKEN) for index in range(20)]
    assert job.graph.restarts == 1
    for (arm,) in (of_kind(actions, ArmRestart) for actions in arms):
        job.handle(RestartDue(job.now, arm.restart_id))
    assert job.status() is JobStatus.RUNNING
    assert set(job.states()) == {"DEPLOYING"}
    (entry,) = job_details(job.graph).exceptions
    assert len(entry.concurrent) == 19
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    assert job.status() is JobStatus.FAILING


def test_what_fails_while_it_is_cancelled_does_not_count() -> None:
    job = restarting(
        edges(linear_job(Stage(2, operator=PLAIN), Stage(2)), PartitionerKind.KEY_GROUP), attempts=1
    )
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    consequence = FailureCause(exception_name="X", message="a consequence", stacktrace="")
    actions: Actions = []
    for vertex, subtask in ((0, 1), (1, 0), (1, 1)):
        actions = job.report(FAILED, job.execution(vertex, subtask), cause=consequence)
    assert len(deployed(actions)) == 4
    assert job.graph.restarts == 1
    (entry,) = job_details(job.graph).exceptions
    assert (entry.cause, entry.task_name) == (BROKEN, "vertex 0 (1/2)")
    assert [other.cause for other in entry.concurrent] == [consequence] * 3


def test_the_job_fails_with_its_last_cause_when_restarts_are_used_up() -> None:
    job = restarting(linear_job(Stage(2, operator=PLAIN)), attempts=1)
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    job.report(RUNNING, job.execution(0, 0))
    last = FailureCause(exception_name="X", message="the last", stacktrace="")
    job.report(FAILED, job.execution(0, 0), cause=last)
    assert job.report(CANCELED)[-1] == JobEnded(JobStatus.FAILED)
    assert job.graph.failure is not None
    assert (job.graph.failure.exception_name, job.graph.failure.message) == ("X", "the last")
    assert job.graph.failure.stacktrace.startswith(
        "X: the last\nThe job had restarted once, and does not again (fixed delay: 1 restarts, each after"
    )
    assert [entry.cause for entry in job_details(job.graph).exceptions] == [BROKEN, last]


def test_the_history_of_attempts_is_bounded() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)))
    job.running(1)
    for _ in range(20):
        job.report(FAILED, cause=BROKEN)
        job.report(RUNNING)
    (vertex,) = job_details(job.graph).vertices
    assert [former.attempt_number for former in vertex.former_attempts] == list(range(4, 20))


# Cancelling.


def test_cancelled_while_tasks_are_cancelled_for_a_restart() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN), Stage(1)))
    job.running(1)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    actions = job.handle(JobCancelled(job.now))
    assert actions == [ArmCancellationTimeout()]
    assert job.handle(JobCancelled(job.now)) == []
    actions = job.report(CANCELED, job.execution(1, 0))
    assert actions[-1] == JobEnded(JobStatus.CANCELED)
    assert job.handle(RestartDue(job.now, 1)) == []
    assert job.offer(1) == [] and job.pool.held == 0


def test_cancelled_while_it_waits_for_its_pause() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)), delay=10)
    job.running(1)
    job.report(FAILED, cause=BROKEN)
    assert job.handle(JobCancelled(job.now))[-1] == JobEnded(JobStatus.CANCELED)
    assert job.handle(RestartDue(job.now, 1)) == []


def test_tasks_that_ignore_their_cancel_cost_their_worker_and_what_else_runs_there() -> None:
    graph = linear_job(Stage(2, operator=PLAIN), Stage(2))
    line = msgspec.structs.replace(graph, edges=())
    job = restarting(line)
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    assert job.execution(0, 0).attempt_number == 1, "a task without edges restarts alone"
    connected = restarting(graph)
    connected.running(2)
    connected.report(FAILED, connected.execution(0, 0), cause=BROKEN)
    held = connected.execution(1, 0).allocation_id
    actions = connected.handle(RestartCancellationTimedOut(connected.now, 1, BROKEN))
    (freed,) = of_kind(actions, FreeSlot)
    assert freed.slot.allocation_id == held
    assert connected.states() == ["SCHEDULED", "RUNNING", "SCHEDULED", "RUNNING"]
    assert connected.handle(RestartCancellationTimedOut(connected.now, 1, BROKEN)) == []
    assert len(deployed(connected.offer(1))) == 2


def test_a_worker_with_threads_of_a_failed_task_is_not_used_again() -> None:
    graph = msgspec.structs.replace(linear_job(Stage(2, operator=PLAIN), Stage(2)), edges=())
    job = restarting(graph)
    job.running(2)
    update = TaskExecutionStateUpdate(
        attempt_id=job.execution(0, 0).attempt_id,
        state=FAILED,
        timestamp_ms=0,
        cause=BROKEN,
        threads_left=("poller",),
    )
    actions = job.handle(TasksUpdated(job.now, (update,)))
    assert not of_kind(actions, Deploy)
    assert job.states() == ["SCHEDULED", "RUNNING", "SCHEDULED", "RUNNING"]
    assert len(deployed(job.offer(1))) == 2
    assert "left the threads poller running" in job_details(job.graph).exceptions[-1].cause.message


# Blocking edges.


def lazy_line(kind: PartitionerKind) -> Scheduling:
    """Two stages of two, the second reads complete results; the first has finished, the second runs."""
    job = restarting(
        edges(linear_job(Stage(2, operator=PLAIN), Stage(2, group="other")), kind, blocking=True)
    )
    job.start()
    job.offer(2, "one")
    job.report(RUNNING, *(job.execution(0, index) for index in range(2)))
    job.report(FINISHED, *(job.execution(0, index) for index in range(2)))
    job.offer(2, "two")
    job.report(RUNNING, *(job.execution(1, index) for index in range(2)))
    return job


def cannot_read(producer: Execution) -> FailureCause:
    """Why a task fails that finds the result of a finished producer gone or corrupt."""
    return msgspec.structs.replace(BROKEN, lost_result=producer.attempt_id)


def test_consumers_restart_alone_while_the_result_is_there() -> None:
    job = lazy_line(PartitionerKind.KEY_GROUP)
    assert job.states() == ["FINISHED", "FINISHED", "RUNNING", "RUNNING"]
    actions = job.report(FAILED, job.execution(1, 0), cause=BROKEN)
    assert deployed(actions) == ["vertex 1 (1/2) #1"]


def test_results_keep_their_slots_until_they_are_read() -> None:
    job = lazy_line(PartitionerKind.KEY_GROUP)
    job.clock.advance(100)
    assert job.handle(IdleSlotsChecked(job.now)) == []
    job.report(FINISHED, job.execution(1, 0))
    job.clock.advance(100)
    assert len(of_kind(job.handle(IdleSlotsChecked(job.now)), FreeSlot)) == 1, (
        "its own; the other reader is not done"
    )


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [
        # The finished reader has what it needs, the running one has lost its input.
        (PartitionerKind.KEY_GROUP, {(0, 0), (1, 1)}),
        # The rows come in another order: what was read of them does not fit any more.
        (PartitionerKind.REBALANCE, {(0, 0), (1, 0), (1, 1)}),
    ],
)
def test_a_lost_result_restarts_its_producer_and_those_who_have_to_read_anew(
    kind: PartitionerKind, restarted: set[tuple[int, int]]
) -> None:
    job = lazy_line(kind)
    job.report(FINISHED, job.execution(1, 0))
    job.report(FAILED, job.execution(1, 1), cause=cannot_read(job.execution(0, 0)))
    found = {(v, s) for v in (0, 1) for s in (0, 1) if job.execution(v, s).attempt_number == 1}
    assert found == restarted
    assert job.execution(1, 1).state is ExecutionState.CREATED, "it waits for its input"
    producer = job.execution(0, 0)
    job.report(RUNNING, producer)
    actions = job.report(FINISHED, producer)
    assert len(deployed(actions)) == len(restarted) - 1


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [
        # The middle gets the rows that it had: who has read what it put out of them is done.
        (PartitionerKind.KEY_GROUP, {(0, 0), (1, 0), (2, 0)}),
        # It gets other rows, each of its subtasks: nothing that was read of it before fits what is read now.
        (PartitionerKind.SHUFFLE, {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)}),
    ],
)
def test_a_region_fed_by_a_partition_that_cannot_be_repeated_takes_its_consumers_along(
    kind: PartitionerKind, restarted: set[tuple[int, int]]
) -> None:
    stages = (Stage(1, group="first", operator=PLAIN), Stage(2), Stage(2, group="last"))
    job = restarting(edges(linear_job(*stages), kind, PartitionerKind.FORWARD, blocking=True))
    job.start()
    for vertex, slots in ((0, 1), (1, 2), (2, 2)):
        job.offer(slots, f"te {vertex}")
        live = [job.execution(vertex, index) for index in range(slots)]
        job.report(RUNNING, *live)
        if vertex < 2:
            job.report(FINISHED, *live)
    job.report(FINISHED, job.execution(2, 1))
    # The first stage's result, and half of what was made of it, are gone.
    job.is_replayed = False
    job.scheduler._note_lost_result(job.execution(0, 0).attempt_id, job.now)
    job.report(FAILED, job.execution(2, 0), cause=cannot_read(job.execution(1, 0)))
    places = [(vertex, index) for vertex, slots in ((0, 1), (1, 2), (2, 2)) for index in range(slots)]
    assert {place for place in places if job.execution(*place).attempt_number == 1} == restarted


def test_the_loss_of_a_finished_producers_worker_is_a_failure_where_the_result_is_needed() -> None:
    job = lazy_line(PartitionerKind.KEY_GROUP)
    lost = job.execution(0, 0).allocation_id
    assert lost is not None
    actions = job.handle(SlotLost(job.now, lost, BROKEN))
    assert cancelled(actions) == 2
    assert job.status() is JobStatus.RESTARTING


def test_a_result_that_everybody_has_read_may_go() -> None:
    job = lazy_line(PartitionerKind.FORWARD)
    lost = job.execution(0, 0).allocation_id
    assert lost is not None
    job.report(FINISHED, job.execution(1, 0))
    job.handle(SlotLost(job.now, lost, BROKEN))
    assert job.status() is JobStatus.RUNNING
    assert job.execution(0, 0).attempt_number == 0


def test_the_work_of_a_restart_does_not_grow_with_the_square_of_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = 400
    job = restarting(linear_job(Stage(tasks // 2), Stage(tasks // 2)))
    job.running(tasks // 2)
    calls = Counter[str]()

    def counted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, call)

    counted(JobScheduler, "_execution")
    counted(SubtaskGraph, "region_of")
    counted(SubtaskGraph, "of_vertex")
    # With the first reader goes the enumerator, and so all readers.
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    for execution in [each for each in job.graph.executions() if each.state is ExecutionState.CANCELING]:
        job.report(CANCELED, execution)
    assert job.graph.restarts == 1 and job.status() is JobStatus.RUNNING
    assert calls["region_of"] < 10 * tasks and calls["_execution"] < 40 * tasks, calls
    # Each call makes a list of all subtasks of a vertex.
    assert calls["of_vertex"] < 20, calls


def test_a_new_attempt_looks_at_no_former_ones_of_other_tasks() -> None:
    class Counting(list[Execution]):
        looked_at = 0

        def __iter__(self) -> Iterator[Execution]:
            for each in super().__iter__():
                Counting.looked_at += 1
                yield each

    tasks = 50
    job = restarting(linear_job(Stage(tasks, operator=PLAIN)), attempts=3 * tasks)
    job.running(tasks)
    vertex = next(iter(job.graph.vertices.values()))
    vertex.former = Counting()
    for _ in range(3):
        for subtask in range(tasks):
            job.report(FAILED, job.execution(0, subtask), cause=BROKEN)
    assert len(vertex.former) == 3 * tasks and Counting.looked_at == 0
