"""Standalone masters under faults: one leads, the others stand by, and a job gives each row once whatever happens."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.private_zookeeper import PrivateZooKeeper
from tests.yarn.standalone_masters import CountedRows, RowsLostForGood, StandaloneMasters
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.stored_files import KEPT_FILE

pytestmark = [pytest.mark.fault, pytest.mark.slow]

Start = Callable[..., tuple[StandaloneMasters, CountedRows]]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    server = PrivateZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start(
    tmp_path: Path, hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> Iterator[Start]:
    """Starts masters and the job, which runs and has completed checkpoints then; of the job nothing stays."""
    started: list[StandaloneMasters] = []
    with ExitStack() as left:

        def begin(quorum: str = "", masters: int = 2, **others: str) -> tuple[StandaloneMasters, CountedRows]:
            folder = tmp_path / f"ha-{tmp_path.name}"
            folder.mkdir()
            cluster = StandaloneMasters(
                folder, hdfs_folder, quorum or hadoop.zookeeper_quorum, hadoop.environment(), **others
            )
            left.callback(cluster.stop)
            cluster.start(masters)
            started.append(cluster)
            job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
            job.until_running()
            job.until_checkpoints()
            return cluster, job

        yield begin
        for cluster in started:
            cluster.until_nothing_is_stored()


def test_a_killed_leader_is_replaced(start: Start, tmp_path: Path, hdfs_folder: str) -> None:
    cluster, job = start(masters=3)
    before = cluster.epoch()
    for master in cluster.masters:
        # Whoever is asked: one that stands by passes on what the leader says.
        overview = cluster.ask_master(master, "/overview")
        assert (overview["taskmanagers"], overview["jobs-running"]) == (1, 1)
    cluster.leader().kill()
    job.until_running()
    assert cluster.epoch() > before
    assert job.restored_from() > 1, "it went on from a checkpoint, not from the beginning"
    job.until_checkpoints(1)
    job.finish()
    # The job below takes the slots. The next leader keeps the checkpoint of a job that failed for good.
    lost = RowsLostForGood(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    lost.until_running()
    lost.until_checkpoints()
    lost.fail()
    second = cluster.epoch()
    cluster.leader().kill()
    until(lambda: cluster.epoch() > second and bool(cluster.overview()), GRACE, "the third master leads")
    cluster.until_nothing_is_stored()
    files = file_system_for(lost.checkpoints)
    assert exists(files, f"{lost.checkpoints}/{KEPT_FILE}")
    kept = [each.path for each in files.list(lost.checkpoints) if "/chk-" in each.path]
    assert kept and exists(files, f"{kept[-1]}/_metadata"), "the user begins again from there"


def test_leaders_that_were_stopped_find_themselves_fenced(start: Start) -> None:
    cluster, job = start()
    former, epochs = cluster.leader(), [cluster.epoch()]
    former.signal(signal.SIGSTOP)
    until(lambda: cluster.epoch() > epochs[-1], GRACE, "another epoch has begun")
    epochs.append(cluster.epoch())
    job.until_running()
    job.until_checkpoints(1)
    restarts = job.count("restored")
    former.signal(signal.SIGCONT)
    until(lambda: former.said("this master leads no more") > 0, GRACE, "the former leader knows")
    job.until_checkpoints()
    assert job.count("restored") == restarts
    assert former.runs and cluster.leader() is not former
    # In a duel: they are back before their successor has the job running.
    for _ in range(2):
        former = cluster.leader()
        former.signal(signal.SIGSTOP)
        until(lambda: cluster.epoch() > epochs[-1], GRACE, "another epoch has begun")
        former.signal(signal.SIGCONT)
        job.until_running()
        epochs.append(cluster.epoch())
        job.until_checkpoints(1)
    assert epochs == sorted(set(epochs))
    job.finish()


def test_a_short_absence_of_zookeeper_restarts_nothing(zookeeper: PrivateZooKeeper, start: Start) -> None:
    # Time for a server to start on a busy machine.
    cluster, job = start(zookeeper.quorum, session_timeout="60 s")
    epoch = cluster.epoch()
    zookeeper.stop()
    zookeeper.start()
    # Ids of checkpoints go on being given out.
    job.until_checkpoints()
    assert cluster.epoch() == epoch
    assert job.count("restored") == 0
    job.finish()


@pytest.mark.soak
def test_a_long_absence_of_zookeeper_ends_no_job(zookeeper: PrivateZooKeeper, start: Start) -> None:
    cluster, job = start(zookeeper.quorum)
    former, epoch = cluster.leader(), cluster.epoch()
    zookeeper.stop()
    until(lambda: former.said("this master leads no more") > 0, GRACE, "the leader has given up")
    zookeeper.start()
    until(lambda: cluster.epoch() > epoch, GRACE, "another epoch has begun")
    job.until_running()
    job.finish()


def test_a_job_cancelled_during_failover_never_runs_again(start: Start) -> None:
    cluster, job = start(masters=3)
    cluster.leader().kill()
    # The first answer of the next leader, whatever the job is doing then.
    until(lambda: job.state() != "", GRACE, "another leads")
    job.cancel()
    cluster.leader().kill()
    until(lambda: cluster.overview().get("taskmanagers") == 1, GRACE, "a third leads")
    cluster.leader()
    until(lambda: cluster.znodes() == [], GRACE, "what is left of the job is removed")
    until(lambda: cluster.overview().get("slots-available") == 2, GRACE, "its slots are free")
    assert cluster.overview()["jobs-running"] == 0
    last = next(master for master in cluster.masters if master.runs)
    assert not last.said(f"({job.job_id}) is FINISHED")
    assert job.state() in ("CANCELED", "")
