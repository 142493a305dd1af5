"""TaskExecutors that are killed, stopped, lost with their node: the job goes on from its last checkpoint, and its
output is that without faults."""

from __future__ import annotations

import signal

from tests.yarn.faults.sessions import GRACE, FaultSession, SteadyJob, kill
from tests.yarn.private_zookeeper import until


def test_1_killed_under_load(session: FaultSession, job: SteadyJob) -> None:
    epoch = session.epoch()
    (first,) = session.task_executors()
    job.until_disturbed_and_back(lambda: kill(first))
    job.until_checkpoints()
    assert [one.pid for one in session.task_executors()] != [first.pid]
    assert len(session.task_executors()) == 1, "no more than are needed"
    assert session.epoch() == epoch and session.attempts() == 1, "the master has nothing to do with it"
    job.finish()


def test_10_stopped_and_continued(session: FaultSession, job: SteadyJob) -> None:
    (first,) = session.task_executors()
    job.until_disturbed_and_back(lambda: kill(first, signal.SIGSTOP))
    job.until_checkpoints()
    kill(first, signal.SIGCONT)
    until(
        lambda: first.pid not in {one.pid for one in session.task_executors()}, GRACE, "the former one ends"
    )
    job.finish()
