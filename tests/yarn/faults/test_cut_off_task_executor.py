"""A TaskExecutor that is cut off from the master, and from nobody else: its peers, HDFS and ZooKeeper hear it. The job
goes on without it, and nothing that it still does counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.support.free_ports import free_port
from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.faults.nemesis_targets import StandaloneTarget
from tests.yarn.standalone_masters import Process, StandaloneMasters
from tests.yarn.waiting import GRACE, until
from yarrow.testing.tcp_relay import Direction, TcpRelay

#: Where master and TaskExecutors are reached by others; they themselves listen elsewhere on loopback.
MASTER_HOST, HOST, LISTEN = "127.0.0.60", "127.0.0.61", "127.0.0.1"


class RelayedCluster:
    """One master, two TaskExecutors of which the second's ways from and to the master are relayed, and a spare."""

    def __init__(self, folder: Path, storage: str, hadoop: HadoopCluster, relays: ExitStack) -> None:
        self.masters = StandaloneMasters(folder, storage, hadoop.zookeeper_quorum, hadoop.environment())
        self._folder, self._environment = folder, hadoop.environment()
        port = free_port()
        self.masters.config |= {
            # The others are heard within that time, also on a busy machine.
            "heartbeat.timeout": "15 s",
            "jobmanager.rpc.address": MASTER_HOST,
            "high-availability.jobmanager.port": str(port),
        }
        self.to_master = relays.enter_context(TcpRelay((LISTEN, port), MASTER_HOST, port))
        rpc = free_port()
        self.from_master = relays.enter_context(TcpRelay((LISTEN, rpc), HOST, rpc))
        slots = [free_port() for _ in range(int(self.masters.config["taskmanager.numberOfTaskSlots"]))]
        for port in slots:
            relays.enter_context(TcpRelay((LISTEN, port), HOST, port))
        data = ",".join(map(str, slots))
        self.relayed = {
            "taskmanager.host": HOST,
            "taskmanager.bind-host": LISTEN,
            "taskmanager.rpc.port": str(rpc),
            "taskmanager.data.bind-port": data,
            "taskmanager.data.port": data,
        }

    def start(self) -> Process:
        """Returns the TaskExecutor that can be cut off, once all are there."""
        self.masters.add_master()
        for others in ({}, self.relayed):
            self.add_task_executor(others)
        self.until_task_executors(2)
        return self.masters.task_executors[1]

    def add_task_executor(self, others: dict[str, str]) -> None:
        role = f"taskmanager-{len(self.masters.task_executors)}"
        process = Process(role, {**self.masters.config, **others}, self._folder, self._environment)
        self.masters.task_executors.append(process)

    def until_task_executors(self, number: int) -> None:
        until(lambda: self.masters.overview().get("taskmanagers") == number, GRACE, f"{number} TaskExecutors")

    def cut(self, victim: Process, direction: Direction) -> None:
        """Nothing passes between the victim and the master, or only one way."""
        own = {one.pid for one in psutil.Process(victim.pid).children(recursive=True)} | {victim.pid}
        assert own & self.to_master.connected_pids(), "it calls the master through the relay"
        # What it calls with, and what it answers with, goes one way; whatever the master says, the other.
        self.to_master.cut(own, direction)
        both = direction == Direction.BOTH
        self.from_master.cut(None, direction if both else Direction.BOTH ^ direction)

    def heal(self) -> None:
        self.to_master.heal()
        self.from_master.heal()


@pytest.fixture
def cluster(hadoop: HadoopCluster, storage: str, tmp_path: Path) -> Iterator[RelayedCluster]:
    with ExitStack() as relays:
        made = RelayedCluster(tmp_path, storage, hadoop, relays)
        try:
            yield made
        finally:
            made.heal()
            made.masters.stop()


@pytest.mark.parametrize(
    "direction",
    [Direction.BOTH, pytest.param(Direction.TO_SERVER, marks=pytest.mark.soak)],
    ids=["both-ways", "the-master-does-not-hear-it"],
)
def test_24_cut_off_from_the_master(
    cluster: RelayedCluster, hadoop: HadoopCluster, tmp_path: Path, storage: str, direction: Direction
) -> None:
    victim = cluster.start()
    folder = tmp_path / "job"
    folder.mkdir()
    target = StandaloneTarget(
        cluster.masters, hadoop, folder, f"{storage}/cut-{direction.name}", parallelism=4
    )
    until(target.runs, GRACE, "the job runs")
    job = target.job
    job.until_checkpoints()
    cluster.cut(victim, direction)
    cluster.add_task_executor({})
    until(lambda: job.count("restored") > 0 and job.runs(), GRACE, "the job runs without it")
    job.until_checkpoints()
    assert victim.runs
    cluster.heal()
    cluster.until_task_executors(3)
    job.until_checkpoints()
    assert job.count("restored") == 1, "its return disturbs nobody"
    target.finish()
