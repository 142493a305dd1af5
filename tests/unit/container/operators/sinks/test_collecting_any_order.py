"""execute_and_collect: each row comes once, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.sinks.collecting_job import Job
from yarrow.runtime.data.checkpoint_options import SnapshotKind

STEPS: dict[str, Callable[[Job], None]] = {
    "read": lambda job: job.read(3),
    "deliver one": lambda job: job.deliver(1),
    "lose the answer": lambda job: job.lose_answer(),
    "deliver": lambda job: job.deliver(),
    "fetch": lambda job: job.fetch(),
    "cut": lambda job: job.cut(),
    "complete": lambda job: job.completes(),
    "complete unheard": lambda job: job.completes(notify=False),
    "lose what was fetched": lambda job: job.lose_fetched(),
    "new master": lambda job: job.new_master(),
    "restart": lambda job: job.start(job.parallelism),
    "at 1": lambda job: job.rescale(1),
    "at 2": lambda job: job.rescale(2),
    "at 3": lambda job: job.rescale(3),
    "back to 1": lambda job: job.replace(1),
    "back to 3": lambda job: job.replace(3),
    "new master at 1": lambda job: job.new_master(1),
    "new master at 2": lambda job: job.new_master(2),
    "end of 0": lambda job: job.end(0),
    "end of 1": lambda job: job.end(1),
}


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=40))
# The client has all rows of a subtask, and nobody has told it that a checkpoint covers them.
@example(steps=["read", "deliver", "fetch", "end of 0", "deliver", "cut", "complete unheard", "new master"])
@settings(max_examples=150, deadline=None)
def test_each_row_comes_once_whatever_happens(parallelism: int, steps: list[str]) -> None:
    job = Job(parallelism)
    for step in steps:
        STEPS[step](job)
        assert len(set(job.got)) == len(job.got)
        covered = job.complete.position if job.complete else 0
        assert all(row < covered for row in job.got)
    job.read(2)
    end = job.position
    job.finish()
    assert sorted(job.got) == list(range(end))


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@given(
    before=st.lists(st.sampled_from(sorted(STEPS)), max_size=20),
    after=st.lists(st.sampled_from(sorted(STEPS)), max_size=20),
    drain=st.booleans(),
)
# The client misses the master that gives up the second stream.
@example(
    before=["at 2", "read", "deliver", "fetch", "new master at 1", "at 3", "new master at 2"],
    after=[],
    drain=False,
)
@settings(max_examples=100, deadline=None)
def test_each_row_comes_once_over_the_clients_before_and_behind_a_savepoint(
    parallelism: int, before: list[str], after: list[str], drain: bool
) -> None:
    job = Job()
    for step in before:
        STEPS[step](job)
    savepoint = job.stop(SnapshotKind.SAVEPOINT_TERMINATE if drain else SnapshotKind.SAVEPOINT_SUSPEND)
    following = Job(parallelism, savepoint=savepoint, collect_id="d")
    for step in after:
        STEPS[step](following)
    following.read(2)
    end = following.position
    following.finish()
    assert sorted([*job.got, *following.got]) == list(range(end))
