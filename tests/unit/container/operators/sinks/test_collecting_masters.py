"""execute_and_collect: rows come once though masters die and parallelisms are given up."""

from __future__ import annotations

import pytest

from tests.unit.container.operators.sinks.collecting_job import Job


def test_what_a_dead_master_had_taken_comes_from_the_next() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut()
    job.completes()
    job.read(2)
    job.deliver()
    # Taken by the master, which dies before the client has fetched it.
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 3, 4]


def test_what_the_client_has_is_not_handed_out_again_by_the_next_master() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.cut()
    job.completes()
    job.read(2)
    job.deliver()
    job.fetch()
    assert job.got == [0, 1, 2]
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("former", [False, True], ids=["rescale fails", "master dies"])
def test_rows_of_a_parallelism_that_is_given_up_are_void(former: bool) -> None:
    job = Job(1)
    job.read(2)
    job.deliver()
    job.rescale(2)
    job.read(2)
    job.deliver()
    job.fetch()
    if former:
        job.new_master(1)
    else:
        job.replace(1)
    job.read(4)
    job.finish()
    assert sorted(job.got) == list(range(6))


def test_rows_of_an_attempt_of_which_the_client_has_not_heard_are_not_taken_for_those_of_another() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.new_master()
    # In another order, as inputs are read; the client does not ask while this master lives.
    job.subtasks[0].take_rows(["c", "a", "b"], None)
    job.deliver()
    job.cut()
    job.completes(notify=False)
    job.new_master()
    job.finish()
    assert job.got == ["c", "a", "b"]


def test_without_exactly_once_what_came_of_a_checkpoint_comes_once() -> None:
    job = Job(exactly_once=False)
    job.read(2)
    job.deliver()
    job.fetch()
    job.cut()
    job.completes()
    job.read(1)
    job.deliver()
    job.fetch()
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 2, 3]
