"""Checkpoints on WebHDFS and in a database: workers killed under a job, which goes on from them; savepoints."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.embedded.test_savepoints import rest, until_completed
from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.cluster.failover.programs import Trace, Traced, environment
from tests.cluster.failover.test_killed_with_state import KEYS, Count
from tests.support.sqlite_storage import SCHEME, SQLiteStorage
from tests.unit.runtime.fs.fake_webhdfs import fake_webhdfs
from yarrow.common.configuration import Configuration
from yarrow.datastream import CustomCheckpointStorage, StreamExecutionEnvironment
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import RestoreError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.fs.webhdfs_sessions import close_sessions
from yarrow.runtime.snapshot.custom_storage import StorageContext
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.snapshot_folders import dispose_savepoint

pytestmark = pytest.mark.cluster
ROCKSDB = {
    "state.backend.type": "rocksdb",
    "state.backend.rocksdb.memory.fixed-per-slot": "16 mb",
    "execution.checkpointing.incremental": "true",
}


#: More than pass, however slow storage is, until the workers have been killed.
ROWS = 30_000


class Held(Traced):
    """Slow until there is a file `killed`."""

    def map(self, value: int) -> int:
        return value if (Path(self._folder) / "killed").exists() else super().map(value)


@pytest.fixture
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=2) as running:
        yield running


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    with fake_webhdfs(tmp_path) as url:
        yield url
    close_sessions()


def counted(
    cluster: MiniCluster,
    folder: Path,
    settings: dict[str, str],
    storage: CustomCheckpointStorage | None = None,
) -> StreamExecutionEnvironment:
    """A job that appends counts to a file; slow enough to be killed."""
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(50)
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    if storage is not None:
        env.get_checkpoint_config().set_checkpoint_storage(storage)
    traced = env.from_sequence(1, ROWS).uid("numbers").map(Held(folder, "rows")).uid("rows")
    counts = traced.key_by(lambda value: value % KEYS).process(Count()).uid("counts")
    path = str(folder / "told")

    def tell(found: tuple[int, int]) -> tuple[int, int]:
        if found[1] >= ROWS // KEYS:
            with open(path, "a") as file:
                file.write(f"{found[0]} {found[1]}\n")
        return found

    counts.map(tell).uid("told").print()
    return env


def told(folder: Path) -> dict[str, str]:
    return dict(line.split() for line in (folder / "told").read_text().splitlines())


EXACT = {str(key): str(ROWS // KEYS) for key in range(KEYS)}


def killed_and_finished(
    cluster: MiniCluster, folder: Path, env: StreamExecutionEnvironment
) -> LocalJobClient:
    """Runs the job; both its workers are killed, one after the other, when checkpoints are complete."""
    client = cluster.submit(env.get_job_graph("counted"))
    trace = Trace(folder)
    for attempt in (0, 1):
        wait_until(lambda attempt=attempt: trace.pid("rows", attempt, attempt) > 0)  # type: ignore[misc]
        until_completed(cluster, client, 2 * attempt + 1)
        trace.kill("rows", attempt, attempt)
    (folder / "killed").touch()
    client.get_job_execution_result().result()
    assert list(folder.glob("rows-*-2")), "both kills struck"
    assert rest(cluster, f"/jobs/{client.get_job_id()}/checkpoints")["counts"]["restored"] >= 2
    assert told(folder) == EXACT
    return client


@pytest.mark.parametrize("backend", [{}, ROCKSDB], ids=["heap", "rocksdb"])
def test_killed_over_webhdfs(
    cluster: MiniCluster, hdfs: str, tmp_path: Path, backend: dict[str, str]
) -> None:
    settings = {"execution.checkpointing.dir": f"{hdfs}/chk", **backend}
    settings["execution.checkpointing.data-inline-threshold"] = "1b"
    client = killed_and_finished(cluster, tmp_path, counted(cluster, tmp_path, settings))
    # A worker that was writing as the job ended removes its file, and then the folder goes.
    wait_until(lambda: not (tmp_path / "chk" / str(client.get_job_id())).exists())
    assert (tmp_path / "chk").is_dir()


def test_a_savepoint_over_webhdfs_is_restored_and_disposed_of(
    cluster: MiniCluster, hdfs: str, tmp_path: Path
) -> None:
    settings = {
        "execution.checkpointing.dir": f"{hdfs}/chk",
        "execution.checkpointing.savepoint-dir": f"{hdfs}/sp",
    }
    client = cluster.submit(counted(cluster, tmp_path, settings).get_job_graph("first"))
    until_completed(cluster, client)
    path = client.stop_with_savepoint(False, None).result()
    assert path.startswith(f"{hdfs}/sp/savepoint-") and open_snapshot(path).metadata.kind.stops_job
    (tmp_path / "killed").touch()
    again = {**settings, "execution.state-recovery.path": path}
    client = cluster.submit(counted(cluster, tmp_path, again).get_job_graph("second"))
    client.get_job_execution_result().result()
    assert told(tmp_path) == EXACT
    dispose_savepoint(path)
    assert list((tmp_path / "sp").iterdir()) == []


def test_what_a_killed_worker_has_not_told_goes_with_the_job_that_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.db"
    context = StorageContext(job_id=JobID("a" * 32), settings={}, directory=str(file), inline_threshold=1)
    storage = SQLiteStorage().checkpoint_storage(context)
    location = storage.begin(1, SnapshotKind.CHECKPOINT)
    (tmp_path / "data").write_bytes(b"shared")
    worker = SQLiteStorage().worker_storage(context)
    worker.open_output(location).write_shared_file(str(tmp_path / "data"))
    storage.clean_up()
    assert rows(file) == (1, 1), "a checkpoint is there that may hold it"
    storage.discard(location)
    assert rows(file) == (0, 1)
    storage.clean_up()
    assert rows(file) == (0, 0)


@pytest.mark.parametrize("backend", [{}, ROCKSDB], ids=["heap", "rocksdb"])
def test_killed_over_a_database(cluster: MiniCluster, tmp_path: Path, backend: dict[str, str]) -> None:
    file = tmp_path / "checkpoints.db"
    settings = {
        "execution.checkpointing.dir": str(file),
        "execution.checkpointing.data-inline-threshold": "1b",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **backend,
    }
    storage = CustomCheckpointStorage("tests.support.sqlite_storage:SQLiteStorage")
    env = counted(cluster, tmp_path, settings, storage)
    client = killed_and_finished(cluster, tmp_path, env)
    job = f"/jobs/{client.get_job_id()}/checkpoints"
    assert rest(cluster, f"{job}/config")["checkpoint_storage"] == storage.get_factory()
    assert rest(cluster, job)["latest"]["completed"]["external_path"].startswith(SCHEME)
    # What a checkpoint was writing when the job ended goes when it has been written.
    wait_until(lambda: rows(file) == (0, 0))
    # One that is retained is restored by its name, by a job that claims it.
    (tmp_path / "told").unlink()
    (tmp_path / "killed").unlink()
    client = cluster.submit(counted(cluster, tmp_path, settings, storage).get_job_graph("cancelled"))
    until_completed(cluster, client)
    client.cancel().result()
    assert client.get_job_execution_result().exception() is not None
    wait_until(lambda: rows(file)[0] == 1)
    retained = rest(cluster, f"/jobs/{client.get_job_id()}/checkpoints")["latest"]["completed"][
        "external_path"
    ]
    (tmp_path / "killed").touch()
    settings |= {"execution.state-recovery.path": retained, "execution.state-recovery.claim-mode": "CLAIM"}
    client = cluster.submit(counted(cluster, tmp_path, settings, storage).get_job_graph("claims"))
    client.get_job_execution_result().result()
    assert told(tmp_path) == EXACT
    wait_until(lambda: rows(file) == (0, 0))


def rows(file: Path) -> tuple[int, int]:
    """Checkpoints and pieces in the database."""
    # A transaction of a busy machine holds the database for a while.
    with closing(sqlite3.connect(file, timeout=DEADLINE)) as connection:
        (checkpoints,) = connection.execute("SELECT count(*) FROM checkpoints").fetchone()
        (pieces,) = connection.execute("SELECT count(*) FROM pieces").fetchone()
    return checkpoints, pieces


def test_a_storage_that_cannot_be_loaded_is_named_at_submission(cluster: MiniCluster, tmp_path: Path) -> None:
    for name, why in (
        ("no_such_module:Storage", "cannot be loaded.*install the module"),
        ("pathlib:Path", "has no method checkpoint_storage"),
        ("tests.support.sqlite_storage:SQLiteStorage", "absolute path, not .*"),
    ):
        env = counted(cluster, tmp_path, {}, CustomCheckpointStorage(name))
        with pytest.raises(RestoreError, match=why):
            cluster.submit(env.get_job_graph("refused"))
