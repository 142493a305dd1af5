"""TaskExecutors that are killed, stopped, lost with their node: the job goes on from its last checkpoint, and its
output is that without faults."""

from __future__ import annotations

import contextlib
import json
import signal

import pytest

from tests.support.hadoop.containers import ContainerProcess
from tests.yarn.faults.conftest import StartSession, start_job
from tests.yarn.faults.sessions import (
    FaultSession,
    SteadyJob,
    Survivor,
    exchanges_by_tls,
    kill,
    victim_and_survivor,
)
from tests.yarn.waiting import GRACE, until


def test_1_killed_under_load(session: FaultSession, submitted: list[SteadyJob]) -> None:
    # The checkpoint that it is restored from is read when it is the last one no more.
    job = start_job(session, submitted, {"execution.checkpointing.num-retained": "1000"})
    assert exchanges_by_tls(*session.two_task_executors())
    epoch, attempts = session.epoch(), session.attempts()
    first, survivor = victim_and_survivor(session, job)
    job.until_disturbed_and_back(lambda: kill(first))
    job.found_what_was_kept()
    job.until_checkpoints()
    survivor.check()
    (failure, *_) = job.get("/exceptions")["exceptionHistory"]["entries"]
    assert failure["stacktrace"]
    assert first.pid not in pids(session)
    assert len(session.task_executors()) == 2, "no more than are needed"
    assert session.epoch() == epoch and session.attempts() == attempts, "the master has nothing to do with it"
    job.finish()


def test_10_stopped_and_continued(session: FaultSession, job: SteadyJob) -> None:
    first, survivor = victim_and_survivor(session, job)
    job.until_disturbed_and_back(lambda: kill(first, signal.SIGSTOP))
    job.until_checkpoints()
    survivor.check()
    # YARN may have ended its container meanwhile: it was given back.
    with contextlib.suppress(ProcessLookupError):
        kill(first, signal.SIGCONT)
    until(lambda: first.pid not in pids(session), GRACE, "the former one ends")
    job.finish()


def test_5_its_node_is_lost(session: FaultSession, job: SteadyJob) -> None:
    epoch = session.epoch()
    away = on_another_node_than_the_master(session, job)
    node = session.node_of(away.container)
    others = [one for one in session.task_executors() if session.node_of(one.container) != node]
    survivor = Survivor(session, job, others[0]) if others else None
    # Its containers live on without it: who is replaced has to end by itself.
    job.until_disturbed_and_back(lambda: session.hadoop.kill(node))
    until(lambda: away.pid not in pids(session), GRACE, "the former one ends")
    assert node not in {session.node_of(one.container) for one in session.two_task_executors()}
    if survivor is not None:
        survivor.check()
    assert session.epoch() == epoch
    job.until_checkpoints()
    job.finish()


@pytest.mark.soak
def test_5_its_node_is_back_at_once(session: FaultSession, job: SteadyJob) -> None:
    away = on_another_node_than_the_master(session, job)
    node = session.node_of(away.container)

    def lose_and_bring_back() -> None:
        session.hadoop.kill(node)
        session.hadoop.start(node)

    # The node knows nothing of the container, has removed its files and leaves its process alone.
    job.until_disturbed_and_back(lose_and_bring_back)
    until(lambda: away.pid not in pids(session), GRACE, "the former one ends")
    assert len(session.task_executors()) == 2
    job.until_checkpoints()
    job.finish()


def on_another_node_than_the_master(session: FaultSession, job: SteadyJob) -> ContainerProcess:
    """A TaskExecutor, put there if need be: while the master's node is stopped, nothing starts on it."""
    masters = session.node_of(session.master().container)

    def away() -> list[ContainerProcess]:
        found = session.two_task_executors()
        return [one for one in found if session.node_of(one.container) != masters]

    if not away():
        (found, _) = session.two_task_executors()
        # A moment only, or YARN takes the node for lost.
        session.hadoop.kill(masters, signal.SIGSTOP)
        try:
            job.until_disturbed_and_back(lambda: replace(session, found, masters))
        finally:
            session.hadoop.kill(masters, signal.SIGCONT)
    return away()[0]


def replace(session: FaultSession, found: ContainerProcess, stopped: str) -> None:
    """Kills a TaskExecutor on a node that stands still, and lets that go on once there is another."""
    before = pids(session)
    kill(found)
    until(lambda: bool(pids(session) - before), GRACE, "another TaskExecutor starts")
    session.hadoop.kill(stopped, signal.SIGCONT)


def pids(session: FaultSession) -> set[int]:
    return {one.pid for one in session.task_executors()}


def test_8_more_memory_than_its_container_has(session: FaultSession) -> None:
    program = session.folder / "hog.py"
    program.write_text(HOG)
    asked = containers_so_far(session)
    job_id = session.commands.ok("run", "-d", "-yid", session.application, *RESTARTS_TWICE, "hog.py").job
    job = SteadyJob(session, job_id, session.folder, "")
    until(lambda: job.state() == "FAILED", GRACE, "the job fails once its restarts are used up")
    causes = [entry["stacktrace"] for entry in job.get("/exceptions")["exceptionHistory"]["entries"]]
    assert len(causes) >= 3
    # By its own measure or by YARN's, whichever is there in time.
    assert all("may use 1024 MB" in text or "than its limit of 1024 MB" in text for text in causes), causes
    assert all("aise taskmanager.memory.process.size (-ytm)" in text for text in causes), causes
    assert (
        session.said("used more memory than its limit of 1024 MB. Raise taskmanager.memory.process.size") > 0
    )
    # One for each time; and one that is given back, if the job's end comes after the question for it.
    assert containers_so_far(session) - asked <= 4
    until(lambda: session.task_executors() == [], GRACE, "nobody is left")
    until(lambda: session.znodes() == [], GRACE, "nothing of the job is left in ZooKeeper")


RESTARTS_TWICE = ("-Drestart-strategy.fixed-delay.attempts=2", "-Dparallelism.default=1")
HOG = """
import time
from yarrow.datastream import StreamExecutionEnvironment

kept = []

def hog(number):
    kept.append(b"x" * (100 << 20))
    time.sleep(0.02)
    return number

env = StreamExecutionEnvironment.get_execution_environment()
env.from_sequence(1, 10**6).map(hog).print()
env.execute("hog")
"""


def containers_so_far(session: FaultSession) -> int:
    """How many containers the masters have asked YARN for."""
    return session.said("asked YARN for a container")


@pytest.mark.soak
def test_2_a_burst_of_kills(session: FaultSession, job: SteadyJob) -> None:
    asked, killed, most = containers_so_far(session), set[int](), 0
    while len(killed) < 20:
        found = session.task_executors()
        most = max(most, len([one for one in found if one.pid not in killed]))
        for one in found:
            if one.pid not in killed:
                kill(one)
                killed.add(one.pid)
    job.until_running()
    assert most <= 2 and containers_so_far(session) - asked <= 22, "no more than are needed"
    job.until_checkpoints()
    job.finish()


@pytest.mark.soak
def test_9_fewer_containers_than_asked_for(start_session: StartSession, submitted: list[SteadyJob]) -> None:
    big = {"taskmanager.memory.process.size": "2688m", "taskmanager.numberOfTaskSlots": "1"}
    session = start_session("few-containers", **big, **{"slot.request.timeout": "40 s"})
    # Four fit: two on each node, wherever its master and that of the shared session are.
    job = session.submit({"parallelism.default": "6"})
    submitted.append(job)
    until(lambda: len(session.task_executors()) == 4, GRACE, "what fits is there")
    ran = False

    def has_failed() -> bool:
        nonlocal ran
        ran = ran or job.runs()
        return job.state() == "FAILED"

    # It restarts with what there is, and says each time what it waits for.
    until(lambda: "has not granted" in str((job.get() or {}).get("waiting-for")), GRACE, "a reason is given")
    until(
        lambda: has_failed() or "slot.request.timeout" in json.dumps(job.get("/exceptions")),
        GRACE,
        "it gives up",
    )
    assert not ran, "never with fewer than it needs"
    if job.state() != "FAILED":
        job.cancel()
    until(lambda: len(session.task_executors()) == 0, GRACE, "what was granted is given back")
    another = session.submit({"parallelism.default": "2"})
    submitted.append(another)
    another.until_running()
    another.until_checkpoints()
    another.finish()
