"""CheckpointCoordinator: when checkpoints begin, what they wait for and how they end."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.am.checkpoint.simulation import Simulation, failure, list_state, names, of
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    DoubtSettled,
    FailJob,
    JobEndEvent,
    LocationFailed,
    MetadataFailed,
    Notify,
    PrepareLocation,
    Refused,
    SettleDoubt,
    StoreMetadata,
    Succeeded,
    TasksRestart,
    TriggerCoordinators,
    TriggerTasks,
    Wake,
)
from yarrow.am.checkpoint.pending import CheckpointState
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint, CheckpointMetrics, CheckpointNotice
from yarrow.runtime.snapshot.handles import (
    OperatorStateMode,
)


def begun(simulation: Simulation) -> list[int]:
    return [action.checkpoint_id for action in simulation.actions if isinstance(action, PrepareLocation)]


def test_a_checkpoint_goes_through_all_its_phases() -> None:
    simulation = Simulation()
    source = OperatorID(f"{1:032x}")
    simulation.tasks.coordinators = (source,)
    assert simulation.handle(Wake()) == []
    assert names(simulation.after(10)) == ["PrepareLocation"]
    (ask,) = simulation.located(1)
    assert isinstance(ask, TriggerCoordinators) and ask.coordinators == (source,)
    (trigger,) = simulation.acknowledge_coordinator(1, source)
    assert isinstance(trigger, TriggerTasks) and trigger.attempts == (simulation.tasks.attempts[0],)
    assert simulation.acknowledge(1, 0) == []
    assert simulation.acknowledge(1, 0) == [], "an acknowledgement that is repeated"
    (store,) = simulation.acknowledge(1, 1)
    assert isinstance(store, StoreMetadata)
    assert store.metadata.operators[0].coordinator is not None
    (notify,) = simulation.stored(1)
    assert notify == Notify(1, CheckpointNotice.COMPLETED, 1)
    latest = simulation.coordinator.store.latest
    assert latest is not None and latest.pointer == "/chk-1"
    statistics = simulation.coordinator.statistics
    assert statistics.metrics()["lastCheckpointMetadataSize"] == 1001 and statistics.last_path == "/chk-1"


def test_nothing_is_acknowledged_to_another_phase() -> None:
    simulation = Simulation()
    simulation.tasks.coordinators = (OperatorID(f"{1:032x}"),)
    simulation.after(10)
    assert simulation.acknowledge_coordinator(1, OperatorID(f"{1:032x}")) == []
    simulation.located(1)
    assert simulation.acknowledge(1, 0) == []
    (pending,) = simulation.coordinator.pending
    assert pending.state is CheckpointState.COORDINATORS and len(pending.missing_tasks) == 2


def test_no_interval_takes_none_and_a_request_takes_one() -> None:
    simulation = Simulation(interval=None)
    assert simulation.after(1000) == []
    assert simulation.coordinator.next_wake() is None
    assert names(simulation.request()) == ["PrepareLocation"]
    assert names(of(simulation.complete(1), Succeeded)) == ["Succeeded"]


def test_the_interval_counts_from_begin_to_begin() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.clock.advance(4)
    simulation.complete(1)
    assert simulation.after(5.9) == []
    assert names(simulation.after(0.2)) == ["PrepareLocation"]


def test_min_pause_counts_from_the_end() -> None:
    simulation = Simulation(min_pause=8.0)
    simulation.after(10)
    simulation.after(6)
    simulation.complete(1)
    assert simulation.after(7.9) == []
    assert names(simulation.after(0.2)) == ["PrepareLocation"]


def test_no_more_run_at_once_than_are_allowed() -> None:
    simulation = Simulation(max_concurrent=2)
    simulation.after(10)
    simulation.located(1)
    simulation.after(10)
    simulation.located(2)
    assert simulation.after(100) == []
    assert begun(simulation) == [1, 2]
    assert simulation.request() == [], "one that is asked for waits for its turn"
    for number in range(2):
        simulation.acknowledge(1, number)
    assert "PrepareLocation" in names(simulation.stored(1))


def test_a_later_one_that_completes_takes_older_ones_along() -> None:
    simulation = Simulation(max_concurrent=2)
    simulation.after(10)
    simulation.located(1)
    simulation.after(10)
    actions = simulation.complete(2)
    assert Notify(1, CheckpointNotice.ABORTED, 2) in actions
    assert names(of(actions, (DiscardLocation, FailJob))) == ["DiscardLocation"]


def test_a_later_checkpoint_that_completes_leaves_a_savepoint_under_way() -> None:
    simulation = Simulation(max_concurrent=2)
    simulation.request(kind=SnapshotKind.SAVEPOINT)
    simulation.located(1)
    simulation.after(10)
    actions = simulation.complete(2)
    assert of(actions, (DiscardLocation, Refused)) == []
    assert [pending.checkpoint_id for pending in simulation.coordinator.pending] == [1]
    for number in range(2):
        simulation.acknowledge(1, number)
    assert names(of(simulation.stored(1), Succeeded)) == ["Succeeded"]


def test_time_out_aborts_by_name_and_late_parts_are_deleted() -> None:
    simulation = Simulation(timeout=30.0, tolerable_failures=1)
    simulation.after(10)
    simulation.located(1)
    simulation.acknowledge(1, 0, "/shared/a")
    actions = simulation.after(30)
    assert Notify(1, CheckpointNotice.ABORTED, -1) in actions
    (discard,) = of(actions, DiscardLocation)
    assert isinstance(discard, DiscardLocation) and discard.shared == ("/shared/a",)
    record = simulation.coordinator.statistics.record(1)
    assert record is not None
    assert "vertex 0 (2)" in record.failure_message and "checkpointing.timeout" in record.failure_message
    (late,) = of(simulation.acknowledge(1, 1, "/shared/b"), DiscardLocation)
    assert isinstance(late, DiscardLocation)
    assert (late.location.directory, late.shared) == ("/chk-1", ("/shared/b",))


def failure_of_expired(simulation: Simulation) -> str:
    simulation.after(30)
    record = simulation.coordinator.statistics.record(1)
    assert record is not None and "expired before completing" in record.failure_message
    return record.failure_message


def test_one_that_expires_says_why_storage_is_tried_again_for_what_is_missing() -> None:
    simulation = Simulation(timeout=30.0)
    simulation.after(10)
    simulation.located(1)
    assert simulation.decline(1, 0, "no datanode", still_tried=True) == []
    assert simulation.decline(1, 1, "in safe mode", still_tried=True) == []
    simulation.decline(1, 0, "standby", still_tried=True)
    assert len(simulation.coordinator.pending) == 1, "it may succeed yet"
    text = failure_of_expired(simulation)
    assert "not acknowledged by vertex 0 (1), vertex 0 (2)" in text
    assert text.endswith("the JobMaster retries checkpoint storage, whose last error was: standby")
    assert simulation.decline(1, 1, "in safe mode", still_tried=True) == [], "it was given up"


def test_what_storage_said_before_it_took_a_part_is_not_why_one_expires() -> None:
    simulation = Simulation(timeout=30.0)
    simulation.after(10)
    simulation.located(1)
    simulation.decline(1, 0, "no datanode", still_tried=True)
    simulation.acknowledge(1, 0)
    simulation.decline(1, 1, "no datanode", still_tried=True)
    simulation.decline(1, 1, "", still_tried=True)
    assert failure_of_expired(simulation).endswith("not acknowledged by vertex 0 (2)")


@pytest.mark.parametrize("step", ["LOCATING", "STORING"])
def test_one_that_expires_in_the_master_says_why_storage_is_tried_again_there(step: str) -> None:
    simulation = Simulation(timeout=30.0)
    simulation.after(10)
    if step == "STORING":
        simulation.located(1)
        for number in range(2):
            simulation.acknowledge(1, number)
    simulation.retried = {1: "in safe mode", 2: "another's"}
    text = failure_of_expired(simulation)
    assert text.endswith(
        f"its state was {step}; the JobMaster retries checkpoint storage, whose last error was: in safe mode"
    )


def test_the_part_of_an_enumerator_that_comes_late_is_deleted_too() -> None:
    simulation = Simulation(timeout=30.0, tolerable_failures=1)
    source = OperatorID(f"{1:032x}")
    simulation.tasks.coordinators = (source,)
    simulation.after(10)
    simulation.located(1)
    simulation.after(30)
    (late,) = simulation.acknowledge_coordinator(1, source)
    assert isinstance(late, DiscardLocation) and late.location.directory == "/chk-1"
    # Who declines late may have begun files, or made the folder again.
    assert simulation.decline(1, 0, "no space") == [late]


def test_a_decline_aborts_and_one_too_many_fails_the_job() -> None:
    simulation = Simulation(tolerable_failures=1)
    simulation.after(10)
    simulation.located(1)
    assert of(simulation.decline(1, 1, "disk on fire"), FailJob) == []
    simulation.after(10)
    simulation.located(2)
    (fail,) = of(simulation.decline(2, 1, "disk on fire"), FailJob)
    assert isinstance(fail, FailJob)
    assert "disk on fire" in fail.cause.message and "tolerable-failed-checkpoints: 1" in fail.cause.message


def test_a_success_forgets_failures() -> None:
    simulation = Simulation(tolerable_failures=1)
    for checkpoint_id in (1, 2, 3):
        simulation.after(10)
        if checkpoint_id == 2:
            simulation.complete(2)
        else:
            simulation.located(checkpoint_id)
            assert of(simulation.decline(checkpoint_id), FailJob) == []


def test_a_decline_of_who_takes_no_part_changes_nothing() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    assert simulation.decline(1, 7) == []
    simulation.acknowledge(1, 0)
    assert simulation.decline(1, 0) == [], "it has acknowledged"
    assert simulation.decline(5) == []


def test_tasks_that_are_not_running_pause_checkpoints() -> None:
    simulation = Simulation()
    simulation.tasks.trouble = "vertex 0 (1/2) is DEPLOYING, not RUNNING"
    assert simulation.after(100) == []
    (refused,) = simulation.request()
    assert isinstance(refused, Refused) and "DEPLOYING" in refused.cause.message
    simulation.tasks.trouble = ""
    simulation.handle(Wake())
    assert simulation.after(9.9) == []
    assert names(simulation.after(0.2)) == ["PrepareLocation"]
    simulation.tasks.trouble = "vertex 0 (1/2) is FAILED, not RUNNING"
    actions = simulation.located(1)
    assert names(actions) == ["DiscardLocation"], "it never began, and counts as no failure"


def test_a_restart_aborts_what_is_pending_and_ids_go_on() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    actions = simulation.handle(TasksRestart("a worker died"))
    assert names(actions) == ["Notify", "DiscardLocation"]
    assert simulation.acknowledge(1, 0) != [] and simulation.coordinator.pending == ()
    simulation.after(10)
    assert begun(simulation) == [1, 2]


def test_what_is_written_while_it_is_aborted_is_deleted_afterwards() -> None:
    simulation = Simulation()
    simulation.after(10)
    actions = simulation.handle(TasksRestart("a worker died"))
    assert actions == [], "its folder is still being made"
    assert names(simulation.located(1)) == ["DiscardLocation"]
    simulation.after(10)
    simulation.located(2)
    for number in range(2):
        simulation.acknowledge(2, number)
    assert simulation.coordinator.later_may_complete, "nor may tasks begin that fail in this moment"
    assert names(simulation.handle(TasksRestart("again"))) == [], "sinks keep what a master may find"
    assert simulation.coordinator.in_doubt, "a master that came now would find what is just being stored"
    assert names(simulation.stored(2)) == ["SettleDoubt"], "its pointer goes before its files"
    assert names(simulation.handle(DoubtSettled(2))) == ["Notify", "DiscardLocation"]
    assert (simulation.coordinator.later_may_complete, simulation.coordinator.store.latest) == (False, None)


def test_a_storage_that_fails_fails_the_checkpoint_alone() -> None:
    simulation = Simulation(tolerable_failures=5)
    simulation.after(10)
    assert simulation.handle(LocationFailed(1, failure("/full: no space"))) == []
    simulation.after(10)
    simulation.located(2)
    for number in range(2):
        simulation.acknowledge(2, number)
    actions = simulation.handle(MetadataFailed(2, failure("/full: no space")))
    assert names(actions) == ["Notify", "DiscardLocation"]
    assert simulation.coordinator.statistics.statistics().counts.failed == 2


def test_a_checkpoint_whose_pointer_is_refused_goes_with_its_files_and_is_not_the_jobs_fault() -> None:
    simulation = Simulation(tolerable_failures=0)
    simulation.after(10)
    simulation.located(1)
    for number in range(2):
        simulation.acknowledge(1, number, "/shared/a")
    refused = MetadataFailed(1, failure("another leads"), counts=False, pointer="/written")
    actions = simulation.handle(refused)
    assert names(actions) == ["Notify", "DiscardLocation"], "no FailJob"
    (discard,) = of(actions, DiscardLocation)
    assert isinstance(discard, DiscardLocation)
    assert (discard.location.directory, discard.shared) == ("/written", ("/shared/a",))
    assert simulation.coordinator.store.latest is None and not simulation.coordinator.in_doubt


def test_a_checkpoint_in_doubt_keeps_its_files_until_nobody_can_find_it() -> None:
    simulation = Simulation(tolerable_failures=0)
    simulation.after(10)
    simulation.complete(1, "/shared/old")
    simulation.after(10)
    simulation.located(2)
    simulation.acknowledge(2, 0, "/shared/old", "/shared/new")
    simulation.acknowledge(2, 1)
    doubted = MetadataFailed(2, failure("connection lost"), counts=False, pointer="/chk-2", in_doubt=True)
    actions = simulation.handle(doubted)
    assert actions == [SettleDoubt(2)], "tasks are not told that it is aborted: another master may restore it"
    assert simulation.coordinator.in_doubt
    assert simulation.acknowledge(2, 0, "/shared/new") == [], "what comes late deletes nothing"
    simulation.after(10)
    # The next one needs neither file, but the one in doubt does.
    assert [action for action in of(simulation.complete(3), Discard) if action.dropped.shared] == []  # type: ignore[union-attr]
    (discard,) = of(simulation.handle(DoubtSettled(2)), DiscardLocation)
    assert isinstance(discard, DiscardLocation)
    assert (discard.location.directory, discard.shared) == ("/chk-2", ("/shared/new", "/shared/old"))
    assert not simulation.coordinator.in_doubt


def test_one_in_doubt_that_was_aborted_while_it_was_written() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    for number in range(2):
        simulation.acknowledge(1, number)
    simulation.handle(TasksRestart("a worker died"))
    actions = simulation.handle(
        MetadataFailed(1, failure("connection lost"), counts=False, pointer="/chk-1", in_doubt=True)
    )
    assert names(actions) == ["SettleDoubt"] and simulation.coordinator.in_doubt
    assert names(simulation.handle(DoubtSettled(1))) == ["Notify", "DiscardLocation"]


def test_metadata_bear_the_latest_savepoint() -> None:
    simulation = Simulation()
    simulation.request(SnapshotKind.SAVEPOINT)
    simulation.complete(1)
    simulation.after(10)
    simulation.complete(2)
    stores = [action for action in simulation.actions if isinstance(action, StoreMetadata)]
    assert [store.metadata.latest_savepoint_id for store in stores] == [msgspec.UNSET, 1]


def test_savepoints_run_beside_checkpoints_and_are_no_point_of_return() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    (prepare,) = simulation.request(SnapshotKind.SAVEPOINT)
    assert prepare == PrepareLocation(2, SnapshotKind.SAVEPOINT, "/sp")
    actions = simulation.complete(2)
    assert names(actions) == ["Succeeded"], "nobody commits because of a savepoint that the job outlives"
    assert simulation.coordinator.store.latest is None
    assert [pending.checkpoint_id for pending in simulation.coordinator.pending] == [1]


def test_a_savepoint_that_stops_the_job_ends_all_others() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    actions = simulation.request(SnapshotKind.SAVEPOINT_SUSPEND)
    assert names(actions) == ["Notify", "DiscardLocation", "PrepareLocation"]
    (refused,) = simulation.request(SnapshotKind.SAVEPOINT)
    assert isinstance(refused, Refused) and "ends the job is under way" in refused.cause.message
    assert simulation.after(100) == []
    actions = simulation.complete(2)
    assert names(actions) == ["Notify", "Succeeded"]
    latest = simulation.coordinator.store.latest
    assert latest is not None and (latest.checkpoint_id, latest.owned) == (2, False)
    assert simulation.after(100) == []


def test_a_stop_that_fails_lets_checkpoints_go_on() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.complete(1)
    simulation.request(SnapshotKind.SAVEPOINT_TERMINATE)
    simulation.located(2)
    actions = simulation.decline(2)
    assert of(actions, FailJob) == [] and len(of(actions, Refused)) == 1
    simulation.after(10)
    assert begun(simulation) == [1, 2, 3]


def test_barriers_begin_in_the_order_of_ids() -> None:
    simulation = Simulation()
    simulation.request(SnapshotKind.SAVEPOINT)
    assert simulation.request(SnapshotKind.SAVEPOINT) == [], "the first has no folder yet"
    assert simulation.after(20) == []
    assert names(simulation.located(1)) == ["TriggerTasks", "PrepareLocation"]


def test_subtasks_that_have_finished_are_told_in_the_metadata() -> None:
    simulation = Simulation()
    simulation.tasks.finished = {JobVertexID(f"{2:032x}"): (0,)}
    simulation.after(10)
    simulation.located(1)
    simulation.acknowledge(1, 0, finished=True)
    (store,) = simulation.acknowledge(1, 1)
    assert isinstance(store, StoreMetadata)
    first, second = store.metadata.operators
    assert first.finished_subtasks == (0,) and not first.fully_finished
    assert second.finished_subtasks == (0,) and second.fully_finished


def test_the_final_checkpoint_does_not_wait_for_the_interval() -> None:
    simulation = Simulation(interval=3600.0)
    simulation.handle(Wake())
    simulation.tasks.at_end = frozenset(simulation.tasks.attempts[:1])
    assert simulation.handle(Wake()) == []
    simulation.tasks.at_end = frozenset(simulation.tasks.attempts)
    assert names(simulation.handle(Wake())) == ["PrepareLocation"]
    simulation.located(1)
    simulation.decline(1)
    assert simulation.after(10) == [], "it is not taken again and again"


def test_ended_jobs_take_no_more() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.located(1)
    simulation.request(SnapshotKind.SAVEPOINT)
    actions = simulation.handle(JobEndEvent("the job is CANCELLING"))
    assert len(of(actions, Refused)) == 1
    assert simulation.after(1000) == [] and simulation.coordinator.next_wake() is None


@pytest.mark.parametrize("retained", [1, 3])
def test_completed_ones_are_kept_by_number(retained: int) -> None:
    simulation = Simulation(retained=retained)
    for checkpoint_id in range(1, 6):
        simulation.after(10)
        actions = simulation.complete(checkpoint_id)
        dropped = [
            action.dropped.checkpoint.checkpoint_id for action in actions if isinstance(action, Discard)
        ]
        assert dropped == ([checkpoint_id - retained] if checkpoint_id > retained else [])
    kept = [checkpoint.checkpoint_id for checkpoint in simulation.coordinator.store.all]
    assert kept == list(range(6 - retained, 6))


def test_a_task_that_is_not_ready_is_no_failure() -> None:
    simulation = Simulation(tolerable_failures=0)
    simulation.after(10)
    simulation.located(1)
    actions = simulation.decline(1, 0, not_ready=True)
    assert of(actions, Notify) and not of(actions, FailJob)
    simulation.after(10)
    simulation.located(2)
    assert of(simulation.decline(2, None), FailJob), "an enumerator that broke is one"


@pytest.mark.parametrize("mode", list(OperatorStateMode))
def test_a_union_list_of_a_partly_ended_operator_fails_the_checkpoint(mode: OperatorStateMode) -> None:
    simulation = Simulation(tasks=2, tolerable_failures=5)
    vertex = simulation.first_without_enumerator()
    states = {vertex.operators[0].id: list_state(mode)}

    def acknowledged(number: int) -> list[Action]:
        simulation.after(10)
        simulation.located(number)
        found: list[Action] = []
        for task in simulation.tasks.attempts:
            found = simulation.handle(
                AcknowledgeCheckpoint(
                    job_id=simulation.job.job_id,
                    checkpoint_id=number,
                    attempt_id=task,
                    states=states,
                    metrics=CheckpointMetrics(),
                )
            )
        return found

    assert of(acknowledged(1), StoreMetadata)
    simulation.stored(1)
    simulation.tasks.attempts.pop()
    simulation.tasks.finished = {vertex.id: (1,)}
    actions = acknowledged(2)
    assert bool(of(actions, StoreMetadata)) == (mode is not OperatorStateMode.UNION)
    record = simulation.coordinator.statistics.record(2)
    assert record is not None
    if mode is OperatorStateMode.UNION:
        assert f"operator '{vertex.operators[0].name}' has a union list state" in record.failure_message


def test_a_savepoint_that_meets_a_task_which_is_not_ready_begins_anew() -> None:
    simulation = Simulation()
    simulation.request(SnapshotKind.SAVEPOINT_SUSPEND)
    simulation.located(1)
    actions = simulation.decline(1, 0, not_ready=True)
    assert not of(actions, Refused), "nothing went wrong but the moment"
    assert begun(simulation) == [1, 2]
    for number in range(2, 20):
        simulation.located(number)
        actions = simulation.decline(number, 0, not_ready=True)
        if of(actions, Refused):
            break
    (refused,) = of(actions, Refused)
    assert isinstance(refused, Refused) and refused.request.tries == 10 and number == 11, "but not for ever"
