"""A savepoint stays whole when its job fails afterwards and goes back behind it, to a checkpoint of its own."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.common import JobStatus
from yarrow.common.serialization import Encoder
from yarrow.datastream import MapFunction, RuntimeContext
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.cluster

ROWS = 30_000


class SlowUntilAsked(MapFunction[int, int]):
    """Lets a thousand rows a second pass until there is a file `fast`; fails once for each file `fail`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._pause = threading.Event()

    def map(self, value: int) -> int:
        if not (self._folder / "fast").exists():
            self._pause.wait(0.001)
        if (self._folder / "fail").exists():
            (self._folder / "fail").unlink()
            raise RuntimeError("asked for")
        return value


def submitted(cluster: MiniCluster, folder: Path, kind: str, restored: str = "") -> LocalJobClient:
    """Without checkpoints of its own the job goes back to its beginning; the one that restores takes them."""
    settings = {
        "execution.checkpointing.interval": "100 ms" if restored else "1 h",
        "execution.checkpointing.dir": f"{folder}/chk",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    if restored:
        settings["execution.state-recovery.path"] = restored
    env = cluster.get_execution_environment(settings).set_parallelism(1)
    numbers = env.from_sequence(1, ROWS).uid("numbers").map(SlowUntilAsked(str(folder))).uid("slow")
    if kind == "files":
        sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
        numbers.map(str).uid("text").sink_to(sink).uid("sink")
    else:
        numbers.sink_to(TransactionalFiles(str(folder / "out"))).uid("sink")
    return cluster.submit(env.get_job_graph(kind))


def rows(folder: Path, kind: str) -> list[int]:
    if kind == "transactions":
        return sorted(CommittedFiles(folder / "out").rows())
    files = [file for file in (folder / "out").rglob("part-*") if not file.name.startswith(".")]
    return sorted(int(line) for file in files for line in file.read_text().splitlines())


def taken(client: LocalJobClient, folder: Path) -> str:
    """A savepoint, taken as soon as all tasks run."""
    found: list[str] = []

    def take() -> bool:
        with suppress(CheckpointFailedError):
            found.append(client.trigger_savepoint(str(folder)).result())
        return bool(found)

    wait_until(take)
    return found[0]


@pytest.mark.parametrize("kind", ["transactions", "files"])
def test_a_savepoint_restores_after_its_job_went_back_behind_it(tmp_path: Path, kind: str) -> None:
    with mini_cluster(task_executors=1, slots=1) as cluster:
        client = submitted(cluster, tmp_path, kind)
        taken(client, tmp_path / "sp")
        # Rows of a sink that is open when the savepoint is taken.
        wait_until(lambda: any(file.is_file() for file in (tmp_path / "out").rglob("*")))
        savepoint = taken(client, tmp_path / "sp")
        (tmp_path / "fail").touch()
        wait_until(lambda: not (tmp_path / "fail").exists())
        taken(client, tmp_path / "sp")
        client.cancel().result()
        wait_until(lambda: client.get_job_status().result() is JobStatus.CANCELED)
        (tmp_path / "fast").touch()
        submitted(cluster, tmp_path, kind, savepoint).get_job_execution_result().result()
    assert rows(tmp_path, kind) == list(range(1, ROWS + 1))
