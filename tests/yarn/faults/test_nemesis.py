"""The nemesis over YARN and over standalone masters: faults by a seed that is printed. A failure replays with
YARROW_NEMESIS_SEEDS=SEED. The suite's two seeds have every kind of fault between them; `bench/soak --nemesis` runs
many, and for longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.nemesis import Nemesis, Target, make_schedule, needed_kinds
from tests.yarn.faults.conftest import StartSession
from tests.yarn.faults.nemesis_targets import StandaloneTarget, YarnTarget
from tests.yarn.faults.sessions import IMPATIENT, SteadyJob
from tests.yarn.standalone_masters import StandaloneMasters
from tests.yarn.waiting import GRACE
from yarrow.testing.tcp_relay import TcpRelay

SEEDS = [int(seed) for seed in os.environ.get("YARROW_NEMESIS_SEEDS", "1,2").split(",")]
SECONDS = float(os.environ.get("YARROW_NEMESIS_SECONDS", "25"))


def unleash(target: Target, seed: int) -> None:
    # Every other seed ends with a cancel instead of the comparison of output.
    nemesis = Nemesis(target, GRACE)
    nemesis.run(make_schedule(seed, SECONDS, target.kinds()), then_cancel=seed % 2 == 0)
    assert {kind.name for kind in needed_kinds(seed, target.kinds())} <= set(nemesis.hits)


@pytest.mark.parametrize("seed", SEEDS)
def test_nemesis_on_yarn(
    start_session: StartSession, relay: TcpRelay, submitted: list[SteadyJob], seed: int
) -> None:
    session = start_session(f"nemesis-{seed}", relay.address, **IMPATIENT)
    job = session.submit()
    submitted.append(job)
    job.until_running()
    job.until_checkpoints()
    unleash(YarnTarget(session, job, relay), seed)
    session.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_nemesis_on_standalone_masters(
    hadoop: HadoopCluster, storage: str, tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / f"nemesis-{seed}-{os.getpid()}"
    folder.mkdir()
    masters = StandaloneMasters(folder, storage, hadoop.zookeeper_quorum, hadoop.environment(), "4 s")
    # A successor may begin while ZooKeeper is away, and nobody starts another in its place.
    masters.config["high-availability.zookeeper.client.connection-timeout"] = f"{GRACE:g} s"
    masters.start()
    try:
        target = StandaloneTarget(masters, hadoop, folder, f"{storage}/standalone-{seed}")
        unleash(target, seed)
    finally:
        masters.stop()
