"""The nemesis over a bounded job on YARN: faults by a seed that is printed. A failure replays with
YARROW_NEMESIS_SEEDS=SEED. Odd seeds end with the comparison of output, even ones with a cancel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.nemesis import Nemesis, make_schedule, needed_kinds
from tests.yarn.batch.bounded_jobs import CONFIGURATION_ON_YARN, Output, bounded_session
from tests.yarn.batch.bounded_target import WATCHED_SUMS, BoundedTarget
from tests.yarn.highly_available import ClusterNodes, high_availability, zookeeper_client
from tests.yarn.waiting import GRACE, until

pytestmark = pytest.mark.soak

SEEDS = [int(seed) for seed in os.environ.get("YARROW_NEMESIS_SEEDS", "1,2").split(",")]
SECONDS = float(os.environ.get("YARROW_NEMESIS_SECONDS", "25"))
#: Seconds for a job that begins again: a driver, Spark's application and its executors.
BEGINS_AGAIN = 5 * GRACE


@pytest.mark.parametrize("seed", SEEDS)
def test_nemesis_on_a_bounded_job(
    hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path, output: Output, seed: int
) -> None:
    root = f"/yarrow-bounded-nemesis-{os.getpid()}"
    configuration = {
        **CONFIGURATION_ON_YARN,
        **high_availability(hadoop.zookeeper_quorum, root, f"{hdfs_folder}/ha"),
        "restart-strategy.fixed-delay.attempts": "1000",
        "yarn.application-attempts": "6",
    }
    (tmp_path / "watched_sums.py").write_text(WATCHED_SUMS)
    with (
        bounded_session(hadoop, tmp_path, configuration, f"bounded-{seed}") as application,
        zookeeper_client(hadoop.zookeeper_quorum) as client,
    ):
        target = BoundedTarget(application, output, ClusterNodes(client, f"{root}/{application.id}"))
        nemesis = Nemesis(target, BEGINS_AGAIN)
        nemesis.run(make_schedule(seed, SECONDS, target.kinds()), then_cancel=seed % 2 == 0)
        assert {kind.name for kind in needed_kinds(seed, target.kinds())} <= set(nemesis.hits)
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        until(lambda: not client.exists(f"{root}/{application.id}"), GRACE, "nothing is stored")
        client.delete(root, recursive=True)
