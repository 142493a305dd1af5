"""Every kind of state at parallelism 2, 3, 1 and 4 in turn, with both backends: exact states and exact output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import KEYS, ROWS, allow, build, expected_output, is_running, wait_at
from tests.cluster.savepoints.checked_states import check_states
from yarrow.common import JobStatus
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.testing.transactional_files import CommittedFiles

pytestmark = pytest.mark.cluster

BACKENDS = ["hashmap", "rocksdb"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 4}
    with mini_cluster(task_executors=2, slots=2, configuration=fixed) as running:
        yield running


def submitted(
    cluster: MiniCluster,
    folder: Path,
    parallelism: int,
    due: int,
    backend: str,
    restored: str = "",
    sink_folder: Path | None = None,
    **settings: str,
) -> LocalJobClient:
    """The job at a parallelism, from a savepoint where one is named."""
    keys = {
        "state.backend.type": backend,
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "parallelism.default": str(parallelism),
        **settings,
    }
    if restored:
        keys["execution.state-recovery.path"] = restored
    env = cluster.get_execution_environment(keys)
    build(env, folder, due=due, sink_folder=sink_folder)
    client = cluster.submit(env.get_job_graph(f"all kinds at {parallelism}"))
    wait_until(lambda: is_running(client))
    return client


def output_of(folder: Path) -> list[object]:
    files = CommittedFiles(folder / "sink")
    assert files.committed_twice() == []
    return sorted(files.rows(), key=repr)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_kinds_of_state_at_parallelism_2_3_1_4(
    cluster: MiniCluster, tmp_path: Path, backend: str
) -> None:
    due = SystemClock().epoch_ms() + 3_600_000
    path = ""
    for stage, parallelism in enumerate((2, 3, 1)):
        limit = (15, 30, 45)[stage]
        allow(tmp_path, limit)
        client = submitted(cluster, tmp_path, parallelism, due, backend, path)
        wait_at(tmp_path, limit)
        path = client.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
        assert client.get_job_status().result() is JobStatus.FINISHED
        check_states(path, limit, due)
    allow(tmp_path, ROWS)
    client = submitted(cluster, tmp_path, 4, due, backend, path)
    client.get_job_execution_result().result()
    assert output_of(tmp_path) == expected_output(fired=False)


def test_processing_time_timers_fire_once_wherever_they_were_restored(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    due = SystemClock().epoch_ms() + 2_000
    allow(tmp_path, 20)
    client = submitted(cluster, tmp_path, 2, due, "hashmap")
    wait_at(tmp_path, 20)
    path = client.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
    allow(tmp_path, 40)
    client = submitted(cluster, tmp_path, 3, due, "rocksdb", path)
    wait_at(tmp_path, 40)
    wait_until(lambda: len(list(tmp_path.glob("fired-*"))) == KEYS)
    path = client.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
    check_states(path, 40, due, fired=True)
    allow(tmp_path, ROWS)
    submitted(cluster, tmp_path, 1, due, "hashmap", path).get_job_execution_result().result()
    assert output_of(tmp_path) == expected_output(fired=True)


def test_two_jobs_from_one_savepoint_harm_neither_it_nor_each_other(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    due = SystemClock().epoch_ms() + 3_600_000
    allow(tmp_path, 20)
    client = submitted(cluster, tmp_path, 2, due, "rocksdb")
    wait_at(tmp_path, 20)
    path = client.trigger_savepoint(f"{tmp_path}/savepoints").result()
    client.cancel().result()
    wait_until(lambda: client.get_job_status().result().is_globally_terminal_state())
    before = {file: file.read_bytes() for file in Path(path).iterdir()}
    jobs = {}
    for name, backend in (("a", "hashmap"), ("b", "rocksdb")):
        folder = tmp_path / name
        allow(folder, ROWS)
        (tmp_path / "sink").rename(folder / "sink") if name == "b" else _copy(tmp_path, folder)
        jobs[name] = submitted(cluster, folder, 2, due, backend, path)
    for name, job in jobs.items():
        job.get_job_execution_result().result()
        assert output_of(tmp_path / name) == expected_output(fired=False)
    assert {file: file.read_bytes() for file in Path(path).iterdir()} == before


def _copy(source: Path, target: Path) -> None:
    """The sink's files: the second job commits into its own."""
    import shutil

    shutil.copytree(source / "sink", target / "sink")
