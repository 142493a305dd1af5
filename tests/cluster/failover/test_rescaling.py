"""A running job at other parallelisms: its state goes along, its counts stay exact."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Traced, all_running, environment
from tests.cluster.failover.test_killed_with_state import KEYS, ROWS, Count
from yarrow.cli.main import app
from yarrow.cli.rest_client import RestClient
from yarrow.cli.targets import split_address
from yarrow.datastream import EmbeddedRocksDBStateBackend, MapFunction, RuntimeContext
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.testing.local_job_client import LocalJobClient
from yarrow.testing.loop_thread import LoopThread
from yarrow.testing.mini_cluster import MiniCluster, mini_cluster

#: So many that none of the subtasks is done before the last rescale.
MORE_ROWS = 3 * ROWS
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2) as running:
        yield running


def rescale(cluster: MiniCluster, client: LocalJobClient, parallelism: int) -> None:
    job_id = JobID(str(client.get_job_id()))
    LoopThread.shared().call(
        cluster.cluster.dispatcher.rescale_job(job_id, RescaleRequest(every=parallelism))
    )


def test_up_down_and_up_again(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(200)
    counts = env.from_sequence(1, MORE_ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
    counted: list[tuple[int, int]] = []
    with counts.process(Count()).execute_and_collect() as rows:
        client = rows.get_job_client()
        assert isinstance(client, LocalJobClient)
        wait_until(lambda: all_running(client.get_job_details().result()))
        for parallelism in (3, 1, 4):
            counted.append(next(rows))
            rescale(cluster, client, parallelism)
            details = client.get_job_details().result()
            assert {len(vertex.subtasks) for vertex in details.vertices} <= {parallelism, 1}
        assert [(record.state, record.reason) for record in details.rescales] == [("COMPLETED", "")] * 3
        assert details.exceptions == () and details.restarts == 0
        counted += rows
    assert sorted(counted) == [
        (key, count) for key in range(KEYS) for count in range(1, MORE_ROWS // KEYS + 1)
    ]


def test_by_command_and_by_requirements(cluster: MiniCluster, tmp_path: Path) -> None:
    assert cluster.web_address is not None
    address = cluster.web_address.removeprefix("http://")
    host, port = split_address(address)
    rest = RestClient(host, int(port))
    env = environment(cluster, parallelism=2)
    env.from_sequence(1, 10**15).map(Traced(tmp_path, "rows")).key_by(lambda v: v % KEYS).process(
        Count()
    ).filter(lambda counted: False).print()
    client = cluster.submit(env.get_job_graph("rescaled"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    job = f"/jobs/{client.get_job_id()}"

    def parallelism() -> list[int]:
        return [vertex["parallelism"] for vertex in rest.json("GET", job)["vertices"]]

    done = CliRunner().invoke(app, ["rescale", str(client.get_job_id()), "3", "-m", address])
    assert done.exit_code == 0 and f"Rescaled job {client.get_job_id()}." in done.output, done.output
    assert parallelism() == [3, 3]
    wanted = rest.json("GET", f"{job}/resource-requirements")
    first, second = (vertex["id"] for vertex in rest.json("GET", job)["vertices"])
    assert wanted[first] == {"parallelism": {"lowerBound": 1, "upperBound": 3}}
    for upper in (1, 2):
        # The second comes while the first is under way.
        body = {second: {"parallelism": {"lowerBound": 1, "upperBound": upper}}}
        assert rest.json("PUT", f"{job}/resource-requirements", body) == {}

    def told() -> list[tuple[str, str]]:
        history = rest.json("GET", f"{job}/rescales/history")
        return [(each["terminalState"], each["description"]) for each in history]

    by_requirements = ("COMPLETED", "new resource requirements")
    wait_until(
        lambda: told() == [by_requirements, by_requirements, ("COMPLETED", "rescaling to 3")],
        lambda: str(told()),
    )
    assert parallelism() == [3, 2]
    refused = CliRunner().invoke(app, ["rescale", str(client.get_job_id()), "30000", "-m", address])
    assert refused.exit_code == 1 and "its max parallelism" in str(refused.exception)
    newest = rest.json("GET", f"{job}/rescales/history")[0]
    assert newest["terminalState"] == "FAILED" and "its max parallelism" in newest["failureReason"]
    client.cancel().result()


class Noted(MapFunction[int, int]):
    """Notes each row that it processes, at once: what is processed twice is noted twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._path = Path(self._folder, f"noted-{os.getpid()}-{id(self)}")

    def map(self, value: int) -> int:
        with self._path.open("a") as file:
            file.write(f"{value}\n")
        return value


@pytest.mark.parametrize("interval", [20, 60_000], ids=["checkpoints under way", "no other checkpoint"])
def test_no_row_is_processed_twice(cluster: MiniCluster, tmp_path: Path, interval: int) -> None:
    """Also where a checkpoint is under way, and with state on disk."""
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(interval)
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
    rows.process(Count()).map(lambda counted: counted[1]).map(Noted(tmp_path)).filter(lambda n: False).print()
    client = cluster.submit(env.get_job_graph("noted"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    for parallelism in (3, 1):
        rescale(cluster, client, parallelism)
    details = client.get_job_details().result()
    assert [record.state for record in details.rescales] == ["COMPLETED"] * 2
    client.get_job_execution_result().result()
    noted = [int(line) for path in tmp_path.glob("noted-*") for line in path.read_text().split()]
    assert Counter(noted) == dict.fromkeys(range(1, ROWS // KEYS + 1), KEYS)


def test_more_than_there_can_be_is_refused_and_the_job_runs_on(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster).set_max_parallelism(8)
    env.from_sequence(1, 10**15).map(Traced(tmp_path, "rows")).filter(lambda value: False).print()
    client = cluster.submit(env.get_job_graph("bounded"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    with pytest.raises(Exception, match="its max parallelism, 8"):
        rescale(cluster, client, 9)
    assert all_running(client.get_job_details().result())
    client.cancel().result()
