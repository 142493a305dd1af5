"""execute_and_collect: rows before a savepoint and behind it come once, to the right client."""

from __future__ import annotations

import pytest

from tests.unit.container.operators.sinks.collecting_job import Job
from yarrow.runtime.data.checkpoint_options import SnapshotKind


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE])
def test_rows_before_a_savepoint_that_stops_the_job_are_its_own_clients_and_nobody_elses(
    kind: SnapshotKind,
) -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.read(2)
    savepoint = job.stop(kind)
    following = Job(savepoint=savepoint, collect_id="d")
    following.read(2)
    following.finish()
    assert [*job.got, *following.got] == list(range(7))


def test_rows_that_do_not_leave_before_the_job_stops_are_for_the_next_client() -> None:
    job = Job()
    job.read(1)  # is under way, so that the following wait
    job.read(2)
    savepoint = job.stop()
    following = Job(savepoint=savepoint, collect_id="d")
    following.finish()
    assert (job.got, following.got) == ([0], [1, 2])


def test_a_job_that_goes_on_from_the_savepoint_that_was_to_stop_it_has_all_its_rows() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut(SnapshotKind.SAVEPOINT_SUSPEND)
    job.completes()
    # Before the job has ended, and before the client has fetched anything.
    job.new_master()
    job.read(1)
    job.finish()
    assert job.got == list(range(4))


def test_nothing_leaves_while_a_savepoint_is_to_stop_the_job_and_all_does_when_it_is_given_up() -> None:
    job = Job()
    job.read(1)
    job.read(2)
    job.cut(SnapshotKind.SAVEPOINT_SUSPEND)
    job.deliver()
    job.fetch()
    assert job.subtasks[0]._own.sent == 1
    job.subtasks[0].notify_checkpoint_aborted(job.number)
    job.finish()
    assert job.got == [0, 1, 2]


def test_a_savepoint_that_the_job_outlives_holds_what_its_client_has_not() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut(SnapshotKind.SAVEPOINT)
    savepoint = job.taken[-1]
    job.finish()
    following = Job(savepoint=savepoint, collect_id="d")
    following.finish()
    assert job.got == following.got == [0, 1, 2]
