"""execute_and_collect: subtasks whose input has ended wait for the client, and for nobody who is gone."""

from __future__ import annotations

from tests.unit.container.operators.sinks.collecting_job import Job


def test_a_subtask_that_had_ended_sends_what_is_left() -> None:
    job = Job()
    job.read(2)
    job.end(0)
    job.cut()
    job.completes()
    job.start(1)
    job.finish()
    assert job.got == [0, 1]


def test_a_subtask_whose_input_has_ended_waits_until_the_client_has_its_rows() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    assert job.done == set(), "they are with the master alone"
    job.fetch()
    assert job.done == set(), "they may come again, from a checkpoint that does not cover them"
    job.cut()
    job.completes()
    job.deliver()
    assert job.done == set(), "the client does not know that they are covered"
    job.fetch()
    assert job.done == {0} and job.got == [0, 2, 1, 3]


def test_rows_of_a_subtask_whose_input_has_ended_outlive_a_master() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    job.cut()
    job.completes()
    job.new_master()
    assert job.ending == {0} and job.done == set()
    job.read(2)
    job.finish()
    assert sorted(job.got) == list(range(6))


def test_nobody_waits_for_a_client_that_is_gone_when_nothing_else_is_left() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    job.end(1)
    job.deliver()
    assert job.done == set()
    job.buffer.release()
    job._look()
    assert job.done == {0, 1}


def test_a_subtask_that_starts_again_waits_anew() -> None:
    job = Job()
    job.read(2)
    job.end(0)
    job.deliver()
    job.buffer.release()
    job.buffer.restarts(0)
    job.start(1)
    job.read(2)
    job.end(0)
    job.deliver()
    assert job.done == set()


def test_without_exactly_once_a_subtask_waits_for_its_client_and_for_no_checkpoint() -> None:
    job = Job(exactly_once=False)
    job.read(2)
    job.end(0)
    job.deliver()
    assert job.done == set()
    job.fetch()
    assert job.done == {0} and job.got == [0, 1]
