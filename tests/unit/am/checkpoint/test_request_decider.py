"""CheckpointRequestDecider alone: which checkpoint begins next, and when."""

from __future__ import annotations

import pytest

from tests.unit.am.checkpoint.simulation import SimulatedTasks, attempt, failure
from yarrow.am.checkpoint.events import Requested
from yarrow.am.checkpoint.failure_manager import CheckpointFailureManager
from yarrow.am.checkpoint.pending import CheckpointState, PendingCheckpoint
from yarrow.am.checkpoint.request_decider import Begin, CheckpointRequestDecider
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.checkpoint_options import SnapshotKind

PERIODIC = Begin(SnapshotKind.CHECKPOINT, None)


class Decided:
    """The part with what it looks at."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock(1_000_000)
        self.tasks = SimulatedTasks(2)
        self.pending: dict[int, PendingCheckpoint] = {}
        whole = CheckpointSettings(**{"interval": 10.0, **settings})  # type: ignore[arg-type]
        self.decider = CheckpointRequestDecider(whole, self.tasks, self.clock, self.pending)
        assert self.decider.decide() is None, "the first interval begins"

    def begun(
        self, kind: SnapshotKind = SnapshotKind.CHECKPOINT, state: CheckpointState = CheckpointState.TASKS
    ) -> PendingCheckpoint:
        """One is under way, as the coordinator would keep it."""
        number = len(self.pending) + 1
        pending = self.pending[number] = PendingCheckpoint(number, kind, self.clock, expires=1e9)
        if state is not CheckpointState.LOCATING:
            pending.machine.transition(state)
        return pending

    def ended(self, pending: PendingCheckpoint) -> None:
        del self.pending[pending.checkpoint_id]
        self.decider.ended(pending)

    def after(self, seconds: float) -> Begin | None:
        self.clock.advance(seconds)
        return self.decider.decide()


def asked(kind: SnapshotKind, tries: int = 0) -> Requested:
    return Requested(request_id="r", kind=kind, tries=tries)


def test_the_interval_asks_for_one_at_a_time() -> None:
    decided = Decided()
    assert decided.after(9.9) is None
    assert decided.after(0.1) == PERIODIC
    first = decided.begun()
    assert decided.after(10) is None and decided.decider.next_time() is None, "one is under way"
    decided.ended(first)
    assert decided.decider.decide() == PERIODIC


def test_the_pause_is_counted_from_the_end_of_the_last() -> None:
    decided = Decided(min_pause=4.0)
    assert decided.after(10) == PERIODIC
    first = decided.begun()
    assert decided.after(9) is None
    decided.ended(first)
    assert decided.after(1) is None
    assert decided.after(3) == PERIODIC


def test_a_savepoint_that_ends_has_no_pause_behind_it() -> None:
    decided = Decided(min_pause=4.0)
    savepoint = decided.begun(SnapshotKind.SAVEPOINT)
    assert decided.after(10) == PERIODIC, "a savepoint takes no room"
    decided.ended(savepoint)
    assert decided.after(10) == PERIODIC


def test_nothing_begins_before_the_barriers_of_the_one_before_are_out() -> None:
    decided = Decided()
    decided.begun(state=CheckpointState.LOCATING)
    decided.decider.request(asked(SnapshotKind.SAVEPOINT))
    assert decided.after(100) is None
    decided.pending[1].machine.transition(CheckpointState.TASKS)
    begin = decided.decider.decide()
    assert begin is not None and begin.kind is SnapshotKind.SAVEPOINT


def test_a_savepoint_overtakes_a_checkpoint_that_has_no_room() -> None:
    decided = Decided()
    decided.begun()
    decided.decider.request(asked(SnapshotKind.CHECKPOINT))
    decided.decider.request(asked(SnapshotKind.SAVEPOINT))
    begin = decided.decider.decide()
    assert begin is not None and begin.kind is SnapshotKind.SAVEPOINT
    assert decided.decider.decide() is None
    assert [request.kind for request in decided.decider.withdraw_requests()] == [SnapshotKind.CHECKPOINT]


def test_what_is_asked_for_again_comes_first_but_not_for_ever() -> None:
    decided = Decided()
    decided.decider.request(asked(SnapshotKind.SAVEPOINT))
    assert decided.decider.request_again(asked(SnapshotKind.SAVEPOINT, tries=3))
    begin = decided.decider.decide()
    assert begin is not None and begin.request is not None and begin.request.tries == 4
    assert not decided.decider.request_again(asked(SnapshotKind.SAVEPOINT, tries=10))


def test_no_other_begins_while_the_job_is_to_end_with_a_savepoint() -> None:
    decided = Decided()
    decided.decider.job_is_to_end()
    assert decided.after(100) is None and "savepoint" in decided.decider.problem()
    decided.decider.job_goes_on()
    assert decided.decider.decide() == PERIODIC and decided.decider.problem() == ""


def test_the_interval_begins_anew_when_all_tasks_run_again() -> None:
    decided = Decided()
    decided.tasks.trouble = "a task restarts"
    assert decided.after(100) is None and decided.decider.next_time() is None
    decided.tasks.trouble = ""
    assert decided.decider.decide() is None
    assert decided.after(9.9) is None
    assert decided.after(0.1) == PERIODIC


def test_the_last_checkpoint_of_the_same_tasks_is_taken_at_once_and_once() -> None:
    decided = Decided()
    decided.tasks.at_end = frozenset({attempt(0), attempt(1)})
    assert decided.decider.decide() == PERIODIC
    assert decided.after(1) is None
    decided.tasks.attempts = [attempt(2)]
    decided.tasks.at_end = frozenset({attempt(2)})
    assert decided.decider.decide() == PERIODIC


@pytest.mark.parametrize("tolerable", [0, 2])
def test_a_job_survives_as_many_failures_in_a_row_as_are_tolerated(tolerable: int) -> None:
    manager = CheckpointFailureManager(tolerable)
    for _ in range(2):
        for _ in range(tolerable):
            assert manager.failed(failure()) is None
        manager.succeeded()
    for _ in range(tolerable):
        assert manager.failed(failure()) is None
    verdict = manager.failed(failure("no disk"))
    assert verdict is not None and "no disk" in verdict.message
    assert f"tolerable-failed-checkpoints: {tolerable}" in verdict.message
