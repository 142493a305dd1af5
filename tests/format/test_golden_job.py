"""The golden savepoint and native checkpoint of a job with every kind of state: read and restored for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.savepoints.all_kinds import ROWS, allow, build, expected_output
from tests.cluster.savepoints.checked_states import check_states
from tests.format.golden_snapshots import SAVEPOINT, native_checkpoint, savepoint
from tests.format.make_golden_savepoint import DUE, LIMIT
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.snapshot.handles import RocksDBSnapshot
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.testing.transactional_files import CommittedFiles


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 4}
    with mini_cluster(task_executors=2, slots=2, configuration=fixed) as running:
        yield running


def run_to_the_end(cluster: MiniCluster, folder: Path, path: str, parallelism: int, backend: str) -> None:
    allow(folder, ROWS)
    env = cluster.get_execution_environment(
        {
            "state.backend.type": backend,
            "parallelism.default": str(parallelism),
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.dir": f"{folder}/new",
            "execution.state-recovery.path": path,
        }
    )
    build(env, folder, due=DUE)
    cluster.submit(env.get_job_graph("golden")).get_job_execution_result().result()
    assert sorted(CommittedFiles(folder / "sink").rows(), key=repr) == expected_output(fired=False)


def test_the_savepoint_is_read_value_by_value() -> None:
    check_states(str(SAVEPOINT / "savepoint"), LIMIT, DUE)


def test_the_native_checkpoint_is_read_value_by_value(tmp_path: Path) -> None:
    path = native_checkpoint(tmp_path)
    native = [
        keyed
        for operator in open_snapshot(path).metadata.operators
        for subtask in operator.subtasks.values()
        for keyed in subtask.keyed
        if isinstance(keyed, RocksDBSnapshot)
    ]
    assert len(native) == 4 and any(each.shared for each in native)
    check_states(path, LIMIT, DUE)


@pytest.mark.cluster
@pytest.mark.parametrize(("parallelism", "backend"), [(1, "hashmap"), (2, "rocksdb"), (3, "hashmap")])
def test_the_savepoint_restores(cluster: MiniCluster, tmp_path: Path, parallelism: int, backend: str) -> None:
    run_to_the_end(cluster, tmp_path, savepoint(tmp_path), parallelism, backend)


@pytest.mark.cluster
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_native_checkpoint_restores(cluster: MiniCluster, tmp_path: Path, parallelism: int) -> None:
    run_to_the_end(cluster, tmp_path, native_checkpoint(tmp_path), parallelism, "rocksdb")
