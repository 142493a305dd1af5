"""A running job at other parallelisms: its state goes along, its counts stay exact."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Traced, all_running, environment, run_fast
from tests.cluster.failover.test_killed_with_state import KEYS, ROWS, Count
from tests.support.shipped_numbering import copied, imported
from yarrow.cli.main import app
from yarrow.client.rest.masters import split_address
from yarrow.client.rest.rest_client import RestClient
from yarrow.datastream import EmbeddedRocksDBStateBackend, MapFunction, RuntimeContext
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import RescaleRequest

#: Seconds for which slots are waited for in a cluster that has too few. Workers of free slots start in less, on a busy
#: machine, too.
PATIENCE = 30.0
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
    counts = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
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
        run_fast(tmp_path)
        counted += rows
    assert sorted(counted) == [(key, count) for key in range(KEYS) for count in range(1, ROWS // KEYS + 1)]


def test_an_operator_that_travels_as_the_jobs_own_files(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(200)
    env.add_python_file(str(copied(tmp_path / "shipped")))
    client_folder = copied(tmp_path / "client").parent
    with imported(client_folder) as numbering:
        keyed = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
        made = numbering.numbered(keyed).map(lambda found: (found[1] % KEYS, found[0]))
        # What the client imports is gone: workers have what was shipped, and nothing else.
        shutil.rmtree(client_folder)
        numbers: list[tuple[int, int]] = []
        with made.execute_and_collect() as rows:
            client = rows.get_job_client()
            assert isinstance(client, LocalJobClient)
            wait_until(lambda: all_running(client.get_job_details().result()))
            for parallelism in (3, 1):
                numbers.append(next(rows))
                rescale(cluster, client, parallelism)
            details = client.get_job_details().result()
            assert [(record.state, record.reason) for record in details.rescales] == [("COMPLETED", "")] * 2
            assert details.exceptions == () and details.restarts == 0
            run_fast(tmp_path)
            numbers += rows
    assert sorted(numbers) == [(key, number) for key in range(KEYS) for number in range(1, ROWS // KEYS + 1)]


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
    run_fast(tmp_path)
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


def rows_of(folder: Path) -> int:
    """How many rows Noted has seen."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("noted-*"))


class Slow(MapFunction[int, int]):
    """Lets a row pass now and then."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._pause = threading.Event()

    def map(self, value: int) -> int:
        self._pause.wait(0.01)
        return value


def endless_counts(cluster: MiniCluster, folder: Path, parallelism: int) -> LocalJobClient:
    """A job that runs at that parallelism."""
    folder.mkdir()
    env = environment(cluster, parallelism)
    rows = env.from_sequence(1, 10**15).map(Slow()).key_by(lambda value: value % KEYS).process(Count())
    rows.map(lambda counted: counted[1]).map(Noted(folder)).filter(lambda n: False).print()
    client = cluster.submit(env.get_job_graph(folder.name))
    wait_until(lambda: all_running(client.get_job_details().result()))
    return client


def marks(client: LocalJobClient) -> tuple[list[str], int, int]:
    """What changes when the tasks of a job are stopped: attempts with their states, restarts and failures."""
    details = client.get_job_details().result()
    tasks = [f"{subtask.attempt_id} {subtask.state}" for v in details.vertices for subtask in v.subtasks]
    return tasks, details.restarts, len(details.exceptions)


@pytest.fixture(scope="module")
def full_cluster() -> Iterator[MiniCluster]:
    """Four slots, and there will never be more."""
    patience = {"slotmanager.number-of-slots.max": 4, "slot.request.timeout": f"{PATIENCE:g} s"}
    with mini_cluster(task_executors=2, slots=2, configuration=patience) as running:
        yield running


def test_a_job_is_not_stopped_for_slots_that_there_cannot_be(
    full_cluster: MiniCluster, tmp_path: Path
) -> None:
    client = endless_counts(full_cluster, tmp_path / "counts", 2)
    before = marks(client)
    with pytest.raises(
        YarrowError,
        match=r"was not rescaled: the job would need 6 slots, and the cluster offers at most 4;.*",
    ):
        rescale(full_cluster, client, 6)
    assert marks(client) == before
    seen = rows_of(tmp_path / "counts")
    wait_until(lambda: rows_of(tmp_path / "counts") > seen)
    (record,) = client.get_job_details().result().rescales
    assert record.state == "FAILED" and "needs 6 slots, has 4; 2 TaskExecutors with 4 slots" in record.reason
    # What it had taken meanwhile is there for others.
    other = endless_counts(full_cluster, tmp_path / "other", 2)
    for job in (other, client):
        job.cancel().result()


def test_a_job_goes_on_while_another_has_its_slots_and_takes_them_when_they_are_free(
    full_cluster: MiniCluster, tmp_path: Path
) -> None:
    client = endless_counts(full_cluster, tmp_path / "counts", 2)
    other = endless_counts(full_cluster, tmp_path / "other", 1)
    began, before = rows_of(tmp_path / "counts"), marks(client)
    with pytest.raises(YarrowError, match=r"would need 4 slots and has 3; no more came within 30 s"):
        rescale(full_cluster, client, 4)
    assert marks(client) == before and rows_of(tmp_path / "counts") > began
    rescaling = threading.Thread(target=rescale, args=(full_cluster, client, 4))
    rescaling.start()
    wait_until(lambda: len(client.get_job_details().result().rescales) == 2)
    assert marks(client) == before
    other.cancel().result()
    rescaling.join()
    details = client.get_job_details().result()
    assert [record.state for record in details.rescales] == ["FAILED", "COMPLETED"]
    # The first two readers have all splits: others may have finished.
    counting = details.vertices[1].subtasks
    assert [subtask.state for subtask in counting] == [ExecutionState.RUNNING] * 4
    assert (details.restarts, len(details.exceptions)) == before[1:]
    client.cancel().result()


def test_a_job_that_is_cancelled_while_it_waits_for_slots_ends_and_says_so(
    full_cluster: MiniCluster, tmp_path: Path
) -> None:
    client = endless_counts(full_cluster, tmp_path / "counts", 2)
    other = endless_counts(full_cluster, tmp_path / "other", 1)
    said: list[str] = []

    def ask() -> None:
        with pytest.raises(YarrowError) as refused:
            rescale(full_cluster, client, 4)
        said.append(str(refused.value))

    rescaling = threading.Thread(target=ask)
    rescaling.start()
    wait_until(lambda: client.get_job_details().result().rescales != ())
    client.cancel().result()
    rescaling.join()
    assert len(said) == 1 and "the job is CANCELLING" in said[0], said
    other.cancel().result()
    # All slots are free again.
    endless_counts(full_cluster, tmp_path / "after", 4).cancel().result()
