"""Masters that are killed, stopped, lost with their node, and cancelled in between: the next attempt takes up the job
from its last completed checkpoint, the former one can do nothing, and its container goes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from tests.support.hadoop.containers import ContainerProcess
from tests.yarn.faults.conftest import StartSession
from tests.yarn.faults.sessions import MASTER, SKEIN_MASTER, FaultSession, SteadyJob, kill
from tests.yarn.faults.test_coordination import written_once
from tests.yarn.highly_available import stored_files
from tests.yarn.waiting import GRACE, until
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.yarn.applications import application_of, rest_of
from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.job_graph import JobGraph, UserCode
from yarrow.testing.tcp_relay import TcpRelay


def lives(process: ContainerProcess) -> bool:
    return os.path.exists(f"/proc/{process.pid}")


@pytest.mark.parametrize("half", [MASTER, SKEIN_MASTER])
def test_3_killed(
    session: FaultSession, job: SteadyJob, half: str, record_property: Callable[..., None]
) -> None:
    epoch, attempts, last = session.epoch(), session.attempts(), job.last_checkpoint()
    (victim,) = session.processes(half)
    (other,) = session.processes(SKEIN_MASTER if half == MASTER else MASTER)
    former = {one.pid for one in session.task_executors()}
    ended = followed(session, job)
    kill(victim)
    follows = until(lambda: not lives(other), GRACE, "the other half of the container ends")
    back = follows + until(lambda: session.epoch() > epoch and job.runs(), GRACE, "the job runs again")
    record_property("the other half ends after", follows)
    record_property("all tasks run after", back)
    print(f"\n{half}: the other half ended after {follows:.1f} s, all tasks run after {back:.1f} s")
    assert session.attempts() == attempts + 1
    assert job.restored_from() >= last, "it went on from its last checkpoint"
    until(
        lambda: not former & {one.pid for one in session.task_executors()}, GRACE, "no orphan of the attempt"
    )
    assert len(session.processes(MASTER)) == len(session.processes(SKEIN_MASTER)) == 1
    job.until_checkpoints()
    job.finish()
    until(ended.done, GRACE, "the client that waited for it all the time is told")
    assert str(ended.result().get_job_id()) == job.job_id
    until(lambda: session.znodes() == [], GRACE, "nothing of the job is left in ZooKeeper")


def followed(session: FaultSession, job: SteadyJob) -> CompletableFuture[JobExecutionResult]:
    """The end of the job, as an attached `yarrow run` waits for it."""
    config = Settings({**session.commands.configuration, "yarn.application.id": session.application})
    graph = JobGraph(
        job_id=JobID(job.job_id),
        name="steady",
        vertices=(),
        edges=(),
        user_code=UserCode(python_version=sys.version_info[:2]),
    )
    client = RemoteJobClient(rest_of(config, application_of(config)), graph)
    assert client.get_job_status().result().name == "RUNNING"
    return client.get_job_execution_result()


def test_28_cancelled_while_its_master_restarts(session: FaultSession, job: SteadyJob) -> None:
    epoch = session.epoch()
    kill(session.master())
    until(lambda: session.epoch() > epoch and job.state() != "", GRACE, "another attempt leads")
    # The first that it is asked for, whatever the job is doing; and once more.
    job.cancel()
    job.cancel_again()
    until(lambda: job.state() == "CANCELED", GRACE, "the job is cancelled")
    until(lambda: session.znodes() == [], GRACE, "nothing of the job is left in ZooKeeper")
    epoch = session.epoch()
    kill(session.master())
    until(lambda: session.epoch() > epoch and session.get("/overview") is not None, GRACE, "a third leads")
    overview = session.get("/overview")
    assert overview["jobs-running"] == 0 and job.state() in ("", "CANCELED")
    assert session.znodes() == []


@pytest.mark.soak
def test_10_stopped_and_continued(session: FaultSession, job: SteadyJob) -> None:
    epoch, last = session.epoch(), job.last_checkpoint()
    (master,), (skein,) = session.processes(MASTER), session.processes(SKEIN_MASTER)
    # Both halves, as when their host hangs: YARN hears nothing, and starts another attempt.
    for one in (master, skein):
        kill(one, signal.SIGSTOP)
    until(lambda: session.epoch() > epoch, GRACE, "another attempt leads")
    for one in (skein, master):
        if lives(one):
            kill(one, signal.SIGCONT)
    until(job.runs, GRACE, "the job runs again")
    assert job.restored_from() >= last
    until(lambda: not lives(master) and not lives(skein), GRACE, "the former master has ended")
    job.until_checkpoints()
    job.finish()


def test_6_its_node_is_cut_off_and_comes_back(session: FaultSession, job: SteadyJob, relay: TcpRelay) -> None:
    """YARN and ZooKeeper do not hear the master, and start the next attempt beside it."""
    epoch, last = session.epoch(), job.last_checkpoint()
    before = session.get("/overview")
    orphan, skein = session.master(), session.processes(SKEIN_MASTER)[-1]
    node = session.node_of(orphan.container)
    session.hadoop.kill(node)
    relay.cut([orphan.pid])
    # Skein's half would end the container as soon as the ResourceManager no longer knows the attempt.
    kill(skein, signal.SIGSTOP)
    try:
        until(lambda: session.epoch() > epoch and job.runs(), GRACE, "another attempt leads")
        assert job.restored_from() >= last
        after = session.get("/overview")
        assert after["yarn-attempt"] == before["yarn-attempt"] + 1
        assert after["yarn-max-attempts"] == before["yarn-max-attempts"] + 1, (
            "YARN does not count the lost one"
        )
        job.until_checkpoints()
        assert lives(orphan), "two masters at once"
        epoch, attempts = session.epoch(), job.attempts()
        executors = [one.pid for one in of_this_attempt(session)]
        pointers = session.pointers(job.job_id)
    finally:
        kill(skein, signal.SIGCONT)
        relay.heal()
        session.hadoop.start(node)
    until(lambda: not lives(orphan) and not lives(skein), GRACE, "the former master has ended")
    job.until_checkpoints()
    assert min(session.pointers(job.job_id)) >= min(pointers), "no checkpoint of the former one came back"
    assert (session.epoch(), job.attempts()) == (epoch, attempts), "its return disturbs nobody"
    assert [one.pid for one in of_this_attempt(session)] == executors, "it has released no container"
    written_once(session, job)
    job.finish()


def of_this_attempt(session: FaultSession) -> list[ContainerProcess]:
    """The TaskExecutors in containers that the present attempt was given."""
    attempt = session.master().container.rpartition("_")[0]
    return [one for one in session.task_executors() if one.container.startswith(f"{attempt}_")]


@pytest.mark.soak
def test_7_the_resource_manager_restarts(session: FaultSession, job: SteadyJob) -> None:
    epoch, before = session.epoch(), job.attempts()
    containers = {one["id"] for one in session.hadoop.containers(session.application)}
    session.hadoop.kill("resourcemanager")
    job.until_checkpoints()
    session.hadoop.start("resourcemanager")
    session.hadoop.wait_until_ready()
    job.until_checkpoints()
    assert session.epoch() == epoch and job.attempts() == before, "nobody noticed"
    assert {one["id"] for one in session.hadoop.containers(session.application)} == containers
    # Containers are asked for and come as before.
    first, _ = session.two_task_executors()
    job.until_disturbed_and_back(lambda: kill(first))
    assert len(session.task_executors()) == 2
    job.finish()


@pytest.mark.soak
def test_4_all_attempts_are_used_up(
    start_session: StartSession, submitted: list[SteadyJob], request: pytest.FixtureRequest
) -> None:
    session = start_session("two-attempts", **{"yarn.application-attempts": "2"})
    job = session.submit(
        {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    )
    job.until_running()
    job.until_checkpoints()
    epoch = session.epoch()
    kill(session.master())
    until(lambda: session.epoch() > epoch and job.runs(), GRACE, "the second attempt leads")
    overview = session.get("/overview")
    assert overview["yarn-attempt"] == overview["yarn-max-attempts"] == 2
    assert session.said("attempt 2 of 2, the last") == 1
    assert "the last: YARN starts no other" in session.commands.ok("list", "-yid", session.application).err
    job.until_checkpoints()
    kill(session.master())
    until(session.has_ended, GRACE, "the application has ended")
    assert session.hadoop.application(session.application)["finalStatus"] == "FAILED"
    kept = session.znodes()
    assert any(node.startswith("jobs/") for node in kept) and any(
        node.startswith("checkpoints/") for node in kept
    ), "high availability keeps what it needs"
    assert any("/job-graphs/" in path for path in stored_files(f"{session.storage}/ha/{session.application}"))
    path = session.pointers(job.job_id)[max(session.pointers(job.job_id))]
    assert file_system_for(path).status(f"{path}/_metadata").size > 0
    session.nodes.remove()
