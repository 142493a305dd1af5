"""Standalone masters under faults: one leads, the others stand by, and a job gives each row once whatever happens."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.yarn.private_zookeeper import PrivateZooKeeper, until
from tests.yarn.standalone_masters import GRACE, CountedRows, StandaloneMasters
from yarrow.cli.targets import masters_rest_client
from yarrow.testing.hadoop.cluster import HadoopCluster

pytestmark = [pytest.mark.fault, pytest.mark.slow]

#: Seconds from the death of the leader to all tasks running again: session, slots and start.
BACK = 20.0


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    server = PrivateZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def masters(
    tmp_path: Path, hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> Iterator[Callable[..., StandaloneMasters]]:
    made: list[StandaloneMasters] = []

    def make(quorum: str = "", count: int = 2, **others: str) -> StandaloneMasters:
        folder = tmp_path / f"ha-{len(made)}-{tmp_path.name}"
        folder.mkdir()
        cluster = StandaloneMasters(
            folder, hdfs_folder, quorum or hadoop.zookeeper_quorum, hadoop.environment(), **others
        )
        made.append(cluster)
        cluster.start(count)
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


def test_a_killed_leader_is_replaced(
    masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters()
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 2)
    former = cluster.leader()
    before = cluster.epoch()
    former.kill()
    cluster.until_running(job.job_id, BACK)
    assert cluster.epoch() > before
    checkpoints = cluster.get(f"/jobs/{job.job_id}/checkpoints")
    assert checkpoints["latest"]["restored"]["id"] > 1, "it went on from a checkpoint, not from the beginning"
    cluster.until_checkpoints(job.job_id, 1)
    job.let_go()
    job.client.get_job_execution_result().result(GRACE)
    job.check()
    until(lambda: (cluster.znodes(), cluster.stored_files()) == ([], []), GRACE, "nothing is left of the job")


def test_a_leader_that_was_stopped_finds_itself_fenced(
    masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters()
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 2)
    former = cluster.leader()
    epoch = cluster.epoch()
    former.signal(signal.SIGSTOP)
    until(lambda: cluster.epoch() > epoch, GRACE, "another epoch has begun")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 1)
    restarts = cluster.get(f"/jobs/{job.job_id}/checkpoints")["counts"]["restored"]
    former.signal(signal.SIGCONT)
    until(lambda: former.said("this master leads no more") == 1, GRACE, "the former leader knows")
    done = cluster.completed_checkpoints(job.job_id)
    cluster.until_checkpoints(job.job_id, done + 2)
    assert cluster.get(f"/jobs/{job.job_id}/checkpoints")["counts"]["restored"] == restarts
    assert former.runs and cluster.leader() is not former
    job.let_go()
    job.client.get_job_execution_result().result(GRACE)
    job.check()


def test_a_short_absence_of_zookeeper_restarts_nothing(
    zookeeper: PrivateZooKeeper, masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters(zookeeper.quorum, session_timeout="20 s")
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 2)
    epoch = cluster.epoch()
    zookeeper.stop()
    zookeeper.start()
    # Ids of checkpoints go on being given out.
    done = cluster.completed_checkpoints(job.job_id)
    cluster.until_checkpoints(job.job_id, done + 2)
    assert cluster.epoch() == epoch
    assert cluster.get(f"/jobs/{job.job_id}/checkpoints")["counts"]["restored"] == 0
    job.let_go()
    job.client.get_job_execution_result().result(GRACE)
    job.check()


def test_a_long_absence_of_zookeeper_ends_no_job(
    zookeeper: PrivateZooKeeper, masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters(zookeeper.quorum)
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 2)
    former, epoch = cluster.leader(), cluster.epoch()
    zookeeper.stop()
    until(lambda: former.said("this master leads no more") == 1, GRACE, "the leader has given up")
    zookeeper.start()
    until(lambda: cluster.epoch() > epoch, GRACE, "another epoch has begun")
    cluster.until_running(job.job_id)
    job.let_go()
    job.client.get_job_execution_result().result(GRACE)
    job.check()


def test_a_job_cancelled_during_failover_never_runs_again(
    masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters(count=3)
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    cluster.until_checkpoints(job.job_id, 1)
    cluster.leader().kill()
    # The first answer of the next leader, whatever the job is doing then.
    until(lambda: cluster.status(job.job_id) != "None", GRACE, "another leads")
    masters_rest_client(cluster.settings).json("PATCH", f"/jobs/{job.job_id}")
    second = cluster.leader()
    second.kill()
    until(lambda: cluster.overview().get("taskmanagers") == 1, GRACE, "a third leads")
    cluster.leader()
    until(lambda: cluster.znodes() == [], GRACE, "what is left of the job is removed")
    assert cluster.overview()["jobs-running"] == 0
    assert cluster.overview()["slots-available"] == 2
    last = next(master for master in cluster.masters if master.runs)
    assert not last.said(f"({job.job_id}) is FINISHED")
    assert cluster.status(job.job_id) in ("CANCELED", "None")


def test_masters_in_a_duel_use_each_checkpoint_once(
    masters: Callable[..., StandaloneMasters], tmp_path: Path, hdfs_folder: str
) -> None:
    cluster = masters()
    job = CountedRows(cluster, tmp_path, f"{hdfs_folder}/checkpoints")
    cluster.until_running(job.job_id)
    epochs = [cluster.epoch()]
    for _ in range(3):
        cluster.until_checkpoints(job.job_id, 1)
        stopped = cluster.leader()
        stopped.signal(signal.SIGSTOP)
        until(lambda: cluster.epoch() > epochs[-1], GRACE, "another epoch has begun")
        stopped.signal(signal.SIGCONT)
        cluster.until_running(job.job_id)
        epochs.append(cluster.epoch())
    assert epochs == sorted(set(epochs))
    job.let_go()
    job.client.get_job_execution_result().result(GRACE)
    job.check()
