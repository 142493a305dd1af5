"""A session with a spare TaskExecutor: whoever is killed is followed by it, a rescale that lacks containers waits while
the job runs, and files of each format go to HDFS and back. One session and one job serve all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.faults.conftest import StartSession, start_job
from tests.yarn.faults.sessions import FaultSession, SteadyJob, kill, resource_id
from tests.yarn.waiting import GRACE, until

#: Four containers of this size fit on the two nodes, wherever masters are: two for the job, the spare, and another.
BIG = {"taskmanager.memory.process.size": "2688m"}
FITS, TOO_MANY = 4, 6
#: A program of the user's; its folder is behind it.
FORMATS = Path(__file__).with_name("formats_on_storage.py")


@pytest.fixture(scope="module")
def session(hadoop: HadoopCluster, start_session: StartSession) -> Iterator[FaultSession]:
    """In place of the shared one."""
    spare = {"slotmanager.redundant-taskmanager-num": "1", "slot.request.timeout": "20 s"}
    made = start_session("spare", **BIG, **spare)
    (made.folder / "formats.py").write_text(FORMATS.read_text())
    yield made
    hadoop.bring_back()
    made.stop()


@pytest.fixture
def job(session: FaultSession, submitted: list[SteadyJob]) -> SteadyJob:
    """The exchange's TLS is asserted where there is no spare."""
    return start_job(session, submitted)


def used(job: SteadyJob) -> set[str]:
    """TaskExecutors that subtasks of the job run on; a reader that found no split left has finished on one for good."""
    return {one["taskmanager-id"] for one in job.subtasks() if one["status"] == "RUNNING"}


def test_a_spare_task_executor_and_a_rescale_that_waits(session: FaultSession, job: SteadyJob) -> None:
    until(lambda: len(session.task_executors()) == 3, GRACE, "a spare beside the two of the job")
    running = {resource_id(one): one for one in session.task_executors()}
    victim = min(used(job))
    job.until_disturbed_and_back(lambda: kill(running[victim]))
    until(lambda: used(job) == set(running) - {victim}, GRACE, "the spare took its place")
    until(lambda: len(session.task_executors()) == 3, GRACE, "there is another spare")
    job.until_checkpoints()

    attempts = job.attempts()
    asked = session.ask("PATCH", f"/jobs/{job.job_id}/rescaling?parallelism={TOO_MANY}")["request-id"]

    def outcome() -> dict[str, Any]:
        """Empty while it goes on."""
        return (job.get(f"/rescaling/{asked}") or {}).get("operation") or {}

    until(lambda: len(session.task_executors()) == FITS, GRACE, "what fits is there")
    job.until_checkpoints()
    assert job.runs() and job.attempts() == attempts, "it runs on while it waits"
    until(lambda: bool(outcome().get("failure-cause")), GRACE, "the rescale gives up")
    assert job.runs() and job.attempts() == attempts, "and as if nobody had asked"

    session.ask("PATCH", f"/jobs/{job.job_id}/rescaling?parallelism={FITS}")
    until(lambda: job.runs() and len(used(job)) == FITS, GRACE, "it runs with what there is")
    job.until_checkpoints()
    job.finish()


def test_files_of_each_format_on_hdfs(session: FaultSession) -> None:
    folder = f"{session.storage}/formats"
    printed = session.commands.ok("run", "-yid", session.application, "formats.py", folder).out
    for name in ("avro", "csv", "json", "orc", "parquet", "text"):
        assert f"{name} SAME" in printed
    until(lambda: session.znodes() == [], GRACE, "nothing of its jobs is left in ZooKeeper")
