"""What every CheckpointRecoveryStore must keep to, shown on the one in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import (
    CheckpointRecovery,
    CheckpointRecoveryStore,
    RecoveryStoreError,
)
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import RecordsInMemory

JOB = JobID("1" * 32)


def store(recovery: CheckpointRecovery | None = None) -> CheckpointRecoveryStore:
    return (recovery or InMemoryCheckpointRecovery()).of_job(JOB)


def test_ids_rise_over_leaderships() -> None:
    leadership = InMemoryCheckpointRecovery()
    first = store(leadership)
    assert first.next_checkpoint_id() == 1
    first.use_checkpoint_id(1)
    first.use_checkpoint_id(4)
    second = store(leadership.next_leadership())
    assert second.next_checkpoint_id() == 5
    for spent in (1, 3, 4):
        with pytest.raises(RecoveryStoreError, match="not above 4"):
            second.use_checkpoint_id(spent)
    second.use_checkpoint_id(5)


def recorded() -> tuple[CheckpointRecovery, Callable[[], CheckpointRecovery]]:
    records = RecordsInMemory()
    return (
        RecordedCheckpointRecovery(records.next_leadership()),
        lambda: RecordedCheckpointRecovery(records.next_leadership()),
    )


def in_memory() -> tuple[CheckpointRecovery, Callable[[], CheckpointRecovery]]:
    first = InMemoryCheckpointRecovery()
    return first, first.next_leadership


@pytest.mark.parametrize("leaderships", [in_memory, recorded])
def test_ids_that_the_job_may_have_begun_are_known_over_leaderships(
    leaderships: Callable[[], tuple[CheckpointRecovery, Callable[[], CheckpointRecovery]]],
) -> None:
    leadership, following = leaderships()
    first = store(leadership)
    assert list(first.begun_ids()) == []
    # Behind those of an earlier job with the same id.
    first.use_checkpoint_id(7)
    assert list(first.begun_ids()) == [7]
    first.use_checkpoint_id(8)
    second = store(following())
    second.use_checkpoint_id(10)
    assert second.begun_ids() == range(7, 11)
    second.close(terminal=True)
    assert list(second.begun_ids()) == []


def test_a_former_leadership_writes_nothing_any_more() -> None:
    leadership = InMemoryCheckpointRecovery()
    first = store(leadership)
    first.use_checkpoint_id(1)
    first.add(1, "/chk-1")
    second = store(leadership.next_leadership())
    for write in (
        lambda: first.use_checkpoint_id(2),
        lambda: first.add(2, "/chk-2"),
        lambda: first.discard(1),
        lambda: first.note_savepoint(2),
        lambda: first.close(terminal=True),
    ):
        with pytest.raises(RecoveryStoreError, match="a leader of epoch 2"):
            write()
    assert [(each.checkpoint_id, each.path, each.epoch) for each in second.completed()] == [(1, "/chk-1", 1)]
    assert (second.next_checkpoint_id(), second.latest_savepoint_id) == (2, -1)


def test_pointers_are_in_the_order_of_ids_and_never_changed() -> None:
    kept = store()
    kept.add(3, "/chk-3")
    kept.add(2, "/savepoint", owned=False)
    kept.add(3, "/chk-3")
    with pytest.raises(RecoveryStoreError, match="at /chk-3 already"):
        kept.add(3, "/elsewhere")
    assert [(each.checkpoint_id, each.owned) for each in kept.completed()] == [(2, False), (3, True)]
    kept.discard(2)
    kept.discard(2)
    assert [each.checkpoint_id for each in kept.completed()] == [3]


def test_the_latest_savepoint_never_falls_and_all_goes_with_the_job() -> None:
    leadership = InMemoryCheckpointRecovery()
    kept = store(leadership)
    kept.use_checkpoint_id(9)
    kept.note_savepoint(9)
    kept.note_savepoint(5)
    kept.add(8, "/chk-8")
    kept.close(terminal=False)
    again = store(leadership.next_leadership())
    assert (again.latest_savepoint_id, len(again.completed())) == (9, 1)
    again.close(terminal=True)
    again.close(terminal=True)
    assert (again.latest_savepoint_id, again.completed(), again.next_checkpoint_id()) == (-1, (), 1)
