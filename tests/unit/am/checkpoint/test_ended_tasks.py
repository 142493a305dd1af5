"""Tasks that end while a checkpoint is under way: which count as ended in it, and who gets the trigger instead."""

from __future__ import annotations

import pytest

from tests.unit.am.checkpoint.simulation import Simulation, attempt, list_state, names, of
from yarrow.am.checkpoint.events import Action, FailJob, Refused, StoreMetadata, Succeeded, TriggerTasks, Wake
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint, CheckpointMetrics
from yarrow.runtime.snapshot.handles import (
    OperatorStateMode,
)

STOPS = [SnapshotKind.SAVEPOINT, SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE]


def finished_in(actions: list[Action]) -> list[tuple[int, ...]]:
    (store,) = of(actions, StoreMetadata)
    assert isinstance(store, StoreMetadata)
    return [operator.finished_subtasks for operator in store.metadata.operators]


@pytest.mark.parametrize("ends_first", [False, True])
@pytest.mark.parametrize("kind", STOPS)
def test_a_task_that_ends_before_its_barrier_counts_as_ended(kind: SnapshotKind, ends_first: bool) -> None:
    simulation = Simulation()
    simulation.request(kind)
    simulation.located(1)
    if ends_first:
        assert simulation.finish(1) == []
        actions = simulation.acknowledge(1, 0)
    else:
        assert simulation.acknowledge(1, 0) == []
        actions = simulation.finish(1)
    assert finished_in(actions) == [(1,)]
    assert names(of(simulation.stored(1), (Succeeded, Refused))) == ["Succeeded"]
    record = simulation.coordinator.statistics.record(1)
    assert record is not None and record.num_acknowledged_subtasks == 2


def test_one_of_the_interval_counts_it_as_ended_too() -> None:
    simulation = Simulation(tolerable_failures=0)
    simulation.after(10)
    simulation.located(1)
    simulation.acknowledge(1, 0)
    assert simulation.finish(0, 1) == [], "it has acknowledged"
    assert finished_in(simulation.finish(1)) == [(1,)]


@pytest.mark.parametrize("latest", [1, 2])
def test_a_task_that_has_cut_and_whose_part_is_missing_is_not_counted_as_ended(latest: int) -> None:
    simulation = Simulation(tolerable_failures=0)
    simulation.request(SnapshotKind.SAVEPOINT)
    simulation.located(1)
    simulation.acknowledge(1, 0)
    actions = simulation.finish(1, latest)
    assert names(actions) == ["Notify", "DiscardLocation", "PrepareLocation"], "it is asked for again"


def test_a_task_has_ended_for_the_later_of_two_and_has_cut_for_the_earlier() -> None:
    simulation = Simulation(max_concurrent=2)
    simulation.after(10)
    simulation.located(1)
    simulation.after(10)
    simulation.located(2)
    for checkpoint_id in (1, 2):
        simulation.acknowledge(checkpoint_id, 0)
    actions = simulation.finish(1, 1)
    assert finished_in(actions) == [(1,)]
    assert [pending.checkpoint_id for pending in simulation.coordinator.pending] == [2]


def test_who_hears_no_barrier_any_more_gets_the_trigger_once() -> None:
    simulation = Simulation(tasks=4)
    tasks = simulation.tasks
    # The first two are sources; the third reads both, the fourth reads the third.
    tasks.producers = {attempt(2): frozenset({attempt(0), attempt(1)}), attempt(3): frozenset({attempt(2)})}
    simulation.after(10)
    simulation.located(1)
    assert simulation.finish(1) == [], "the other source sends a barrier"
    (trigger,) = simulation.finish(0)
    assert isinstance(trigger, TriggerTasks) and trigger.attempts == (attempt(2),)
    assert simulation.handle(Wake()) == []
    simulation.acknowledge(1, 2)
    assert simulation.handle(Wake()) == [], "its barrier is on the way"
    assert finished_in(simulation.finish(3)) == [(0, 1, 3)]


def test_a_task_at_the_end_of_its_input_gets_the_trigger() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    simulation.acknowledge(1, 0)
    # As GraphParticipants do for one that waits for its last checkpoint.
    simulation.tasks.producers = {attempt(1): frozenset()}
    (trigger,) = simulation.handle(Wake())
    assert isinstance(trigger, TriggerTasks) and trigger.attempts == (attempt(1),)


def test_a_task_that_ends_while_enumerators_are_asked_gets_no_trigger() -> None:
    simulation = Simulation(tasks=3)
    source = OperatorID(f"{1:032x}")
    simulation.tasks.coordinators = (source,)
    simulation.tasks.producers = {attempt(2): frozenset({attempt(0)})}
    simulation.after(10)
    simulation.located(1)
    assert simulation.finish(0) == []
    (trigger,) = simulation.acknowledge_coordinator(1, source)
    assert isinstance(trigger, TriggerTasks) and trigger.attempts == (attempt(2),)
    simulation.acknowledge(1, 1)
    assert finished_in(simulation.acknowledge(1, 2)) == [(0,)]


def test_all_end_while_enumerators_are_asked() -> None:
    simulation = Simulation()
    source = OperatorID(f"{1:032x}")
    simulation.tasks.coordinators = (source,)
    simulation.after(10)
    simulation.located(1)
    simulation.finish(0)
    simulation.finish(1)
    assert finished_in(simulation.acknowledge_coordinator(1, source)) == [(0, 1)]


def test_who_wants_no_checkpoints_with_ended_tasks_gets_none() -> None:
    simulation = Simulation(after_tasks_finish=False, tolerable_failures=0)
    simulation.request(SnapshotKind.SAVEPOINT)
    simulation.located(1)
    actions = simulation.finish(1)
    (refused,) = of(actions, Refused)
    assert isinstance(refused, Refused) and "checkpoints-after-tasks-finish is false" in refused.cause.message
    assert not of(actions, FailJob) and simulation.coordinator.pending == ()


def test_the_union_list_of_an_operator_that_ends_partly_meanwhile_fails_the_checkpoint() -> None:
    simulation = Simulation(tolerable_failures=5)
    vertex = simulation.first_without_enumerator()
    simulation.request(SnapshotKind.SAVEPOINT)
    simulation.located(1)
    simulation.handle(
        AcknowledgeCheckpoint(
            job_id=simulation.job.job_id,
            checkpoint_id=1,
            attempt_id=attempt(0),
            states={vertex.operators[0].id: list_state(OperatorStateMode.UNION)},
            metrics=CheckpointMetrics(),
        )
    )
    (refused,) = of(simulation.finish(1), Refused)
    assert isinstance(refused, Refused) and "has a union list state" in refused.cause.message
