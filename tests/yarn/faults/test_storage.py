"""HDFS that is read-only, restarts, stands still, has no room, and masters that die beside it: checkpoints fail and are
counted while the job runs, no restart begins from nothing, and what is half stored is the old checkpoint or the new."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.faults.sessions import FaultSession, SteadyJob, kill, slot_workers
from tests.yarn.standalone_masters import CountedRows, StandaloneMasters
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.testing.tcp_relay import Direction, TcpRelay

#: Seconds between checkpoints.
INTERVAL = 0.5


@pytest.fixture
def local_job(session: FaultSession, submitted: list[SteadyJob]) -> SteadyJob:
    """With its output on this machine: HDFS is there for its checkpoints alone."""
    started = session.submit({"execution.checkpointing.timeout": "5 s"}, local=True)
    submitted.append(started)
    started.until_running()
    started.until_checkpoints()
    return started


def set_safe_mode(hadoop: HadoopCluster, on: bool) -> None:
    done = hadoop.run("hdfs", "dfsadmin", "-safemode", "enter" if on else "leave")
    assert done.returncode == 0, done.stderr


class Undisturbed:
    """Checkpoints fail, tasks run on; afterwards checkpoints are completed again."""

    def __init__(self, job: SteadyJob) -> None:
        self.job = job
        self.attempts, self.last = job.attempts(), job.last_checkpoint()
        self.failed = job.count("failed")

    def until_failing(self, times: int = 2) -> None:
        until(lambda: self.job.count("failed") >= self.failed + times, GRACE, f"{times} checkpoints fail")

    def check_after(self) -> None:
        self.job.until_checkpoints()
        assert self.job.attempts() == self.attempts, "no task restarted"
        assert self.job.restored_from() == 0
        self.job.finish()


def test_13_read_only(hadoop: HadoopCluster, session: FaultSession, local_job: SteadyJob) -> None:
    course = Undisturbed(local_job)
    set_safe_mode(hadoop, True)
    try:
        course.until_failing()
        until(lambda: session.said("the NameNode is in safe mode") > 0, GRACE, "the log says why")
    finally:
        set_safe_mode(hadoop, False)
    course.check_after()


def test_13_stopped_during_a_recovery(hadoop: HadoopCluster, session: FaultSession, job: SteadyJob) -> None:
    last = job.last_checkpoint()
    first, _ = session.two_task_executors()
    hadoop.kill("namenode")
    # The worker alone: YARN starts no container on a node that must fetch something from HDFS first.
    for worker in slot_workers(first):
        os.kill(worker, signal.SIGKILL)
    until(lambda: "WebHDFS cannot be reached" in json.dumps(job.get("/exceptions")), GRACE, "a restore fails")
    assert not job.runs()
    hadoop.start("namenode")
    hadoop.wait_until_ready("namenode", "datanode")
    job.until_running()
    assert job.restored_from() >= last, "it never begins from nothing"
    job.until_checkpoints()
    job.finish()


#: Only what is stored of a checkpoint names its folder.
POINTER = b"/chk-"


@pytest.mark.parametrize(
    ("direction", "is_stored"),
    [(Direction.TO_SERVER, False), (Direction.TO_CLIENT, True)],
    ids=["not-stored", "stored-without-an-answer"],
)
def test_17_the_master_dies_between_metadata_and_pointer(
    session: FaultSession, job: SteadyJob, relay: TcpRelay, direction: Direction, is_stored: bool
) -> None:
    epoch, master = session.epoch(), session.master()
    relay.cut_at(POINTER, [master.pid], direction)
    until(lambda: relay.is_cut, GRACE, "a pointer is on its way to ZooKeeper")
    half = newest(session, job)
    until(lambda: (half in session.pointers(job.job_id)) == is_stored, GRACE, "ZooKeeper has it, or has not")
    kill(master)
    # What it has sent in vain is lost.
    relay.reset()
    relay.heal()
    until(lambda: session.epoch() > epoch and job.runs(), GRACE, "the job runs under the next master")
    assert job.restored_from() == (half if is_stored else half - 1), "the new one or the old, never neither"
    job.until_checkpoints()
    # Ids go on above whatever was begun: nothing is written over.
    assert job.last_checkpoint() > half
    # One that nothing points to goes, one that is pointed to when newer ones have taken its place.
    until(lambda: not is_there(session, job, half), GRACE, f"checkpoint {half} is removed")
    job.finish()


def newest(session: FaultSession, job: SteadyJob) -> int:
    """Id of the newest checkpoint whose metadata is whole, whoever knows of it."""
    folder = f"{session.storage}/checkpoints/{job.job_id}"
    files = file_system_for(folder)
    found = [0]
    for entry in files.list(folder):
        _, _, number = entry.name.partition("chk-")
        try:
            if number.isdigit() and any(one.name == "_metadata" for one in files.list(entry.path)):
                found.append(int(number))
        except (FileNotFoundError, FileSystemError):
            continue
    return max(found)


def is_there(session: FaultSession, job: SteadyJob, checkpoint_id: int) -> bool:
    path = f"{session.storage}/checkpoints/{job.job_id}/chk-{checkpoint_id}"
    return exists(file_system_for(path), path)


@pytest.mark.soak
def test_14_the_data_node_is_lost(hadoop: HadoopCluster, local_job: SteadyJob) -> None:
    course = Undisturbed(local_job)
    hadoop.kill("datanode")
    course.until_failing()
    assert local_job.last_checkpoint() <= course.last + 1, "none is called complete"
    hadoop.start("datanode")
    hadoop.wait_until_ready("datanode")
    course.check_after()


@pytest.mark.soak
def test_19_hdfs_stands_still(hadoop: HadoopCluster, session: FaultSession, local_job: SteadyJob) -> None:
    course = Undisturbed(local_job)
    hadoop.kill("namenode", signal.SIGSTOP)
    try:
        course.until_failing()
    finally:
        hadoop.kill("namenode", signal.SIGCONT)
    hadoop.wait_until_ready("namenode")
    local_job.until_checkpoints()
    until(lambda: stray_checkpoints(session, local_job) == [], GRACE, "what came late is removed")
    course.check_after()


def stray_checkpoints(session: FaultSession, job: SteadyJob) -> list[str]:
    """Folders of checkpoints that are neither completed nor the one being taken."""
    folder = f"{session.storage}/checkpoints/{job.job_id}"
    last = job.last_checkpoint()
    known = {f"chk-{number}" for number in session.pointers(job.job_id)}
    found = [entry.name for entry in file_system_for(folder).list(folder) if entry.name.startswith("chk-")]
    return [name for name in found if name not in known and int(name[4:]) < last]


@pytest.mark.soak
def test_20_no_room_and_no_folder(hadoop: HadoopCluster, session: FaultSession, local_job: SteadyJob) -> None:
    course = Undisturbed(local_job)
    folder = urlsplit(f"{session.storage}/checkpoints").path
    assert hadoop.run("hdfs", "dfsadmin", "-setQuota", "1", folder).returncode == 0
    try:
        course.until_failing(3)
        assert "quota" in json.dumps(local_job.get("/checkpoints"))
    finally:
        assert hadoop.run("hdfs", "dfsadmin", "-clrQuota", folder).returncode == 0
    local_job.until_checkpoints()
    # The folder goes, with everything in it: the next checkpoints are whole ones again.
    files = file_system_for(session.storage)
    files.delete(f"{session.storage}/checkpoints/{local_job.job_id}", recursive=True)
    course.check_after()


@pytest.mark.soak
def test_20_no_permission(hadoop: HadoopCluster, storage: str, tmp_path: Path) -> None:
    """Of another user than the one that HDFS forbids nothing."""
    folder = f"{storage}/theirs"
    for command in (("-mkdir", "-p", folder), ("-chmod", "777", folder)):
        assert hadoop.run("hdfs", "dfs", *command).returncode == 0
    masters = StandaloneMasters(
        tmp_path, folder, hadoop.zookeeper_quorum, {**hadoop.environment(), "HADOOP_USER_NAME": "somebody"}
    )
    try:
        masters.start(masters=1)
        tolerant = {"execution.checkpointing.tolerable-failed-checkpoints": "1000"}
        job = CountedRows(masters, tmp_path, f"{folder}/checkpoints", **tolerant)
        job.until_running()
        job.until_checkpoints()
        attempts = job.attempts()
        own = f"{folder}/checkpoints/{job.job_id}"
        assert hadoop.run("hdfs", "dfs", "-chmod", "500", own).returncode == 0
        failed = job.count("failed")
        until(lambda: job.count("failed") >= failed + 5, GRACE, "checkpoints fail")
        # When they began, since a busy machine tells late of failures. The next one follows at once where one began
        # late: that shortens the time over all of them by one interval at most.
        begun = sorted(one["trigger_timestamp"] for one in job.get("/checkpoints")["history"])
        assert len(begun) >= 5
        assert begun[-1] - begun[0] > (len(begun) - 2.5) * 1000 * INTERVAL, (
            f"nobody tries again at once: {begun}"
        )
        assert "Permission denied" in json.dumps(job.get("/checkpoints"))
        assert hadoop.run("hdfs", "dfs", "-chmod", "755", own).returncode == 0
        job.until_checkpoints()
        assert job.attempts() == attempts, "no task restarted"
        job.finish()
        masters.until_nothing_is_stored()
    finally:
        masters.stop()
