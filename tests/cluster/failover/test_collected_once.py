"""execute_and_collect through failures and stops: with exactly-once checkpoints each row comes once, in its subtask's
order.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import endless, environment
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import CheckpointListener, MapFunction, RuntimeContext
from yarrow.datastream.connectors.datagen import DataGeneratorSource
from yarrow.datastream.program.closeable_iterator import CloseableIterator
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobCancelledError
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.gated_source import GatedSource

pytestmark = pytest.mark.cluster

#: So many that no subtask is done before the end that the test wants.
ROWS = 20_000


class EndsOnce(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Raises, or kills its worker, once: a while after a checkpoint that covers rows was complete.

    Before that it lets a row pass now and then.
    """

    def __init__(self, folder: Path, kill: bool) -> None:
        self._folder = str(folder)
        self._kill = kill

    def open(self, runtime_context: RuntimeContext) -> None:
        self._rows = 0
        self._end_at = 0
        self._pause = threading.Event()
        self._again = Path(self._folder, "again")
        if runtime_context.get_attempt_number():
            self._again.touch()
        self._first = (
            runtime_context.get_attempt_number() == 0 and runtime_context.get_index_of_this_subtask() == 0
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._rows and not self._end_at:
            self._end_at = self._rows + 50
            Path(self._folder, "covered").write_text(str(self._rows))

    def map(self, value: int) -> int:
        self._rows += 1
        if not self._again.exists():
            self._pause.wait(0.002)
        if self._first and self._end_at and self._rows >= self._end_at:
            Path(self._folder, "ended").write_text(str(self._rows))
            if self._kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return value


@pytest.mark.parametrize("kill", [False, True], ids=["raises", "killed"])
def test_each_row_comes_once(tmp_path: Path, kill: bool) -> None:
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(50)
        source = DataGeneratorSource(lambda i: i, ROWS)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        ending = numbers.map(EndsOnce(tmp_path, kill))
        with ending.execute_and_collect() as rows:
            got = list(rows)
    assert (tmp_path / "ended").exists() and (tmp_path / "again").exists()
    assert sorted(got) == list(range(ROWS))
    for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
        assert [value for value in got if value in half] == list(half)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=4) as running:
        yield running


class Last(MapFunction):  # type: ignore[type-arg]
    """Tells when the last row is through."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def map(self, value: int) -> int:
        if value == 100:
            Path(self._path).touch()
        return value


def completed(cluster: MiniCluster, client: LocalJobClient) -> int:
    with urllib.request.urlopen(f"{cluster.web_address}/jobs/{client.get_job_id()}/checkpoints") as answer:
        return int(json.load(answer)["counts"]["completed"])


def collecting(client: LocalJobClient) -> ExecutionState:
    """State of the subtask that collects."""
    vertices = client.get_job_details().result().vertices
    (state,) = [task.state for vertex in vertices if "Collect" in vertex.name for task in vertex.subtasks]
    return state


def client_of(rows: CloseableIterator) -> LocalJobClient:
    client = rows.get_job_client()
    assert isinstance(client, LocalJobClient)
    return client


def test_a_branch_that_is_done_waits_for_its_client_while_the_job_runs_on(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    env = environment(cluster)
    env.enable_checkpointing(50)
    endless(env, tmp_path, "endless")
    with env.from_sequence(1, 100).map(Last(tmp_path / "last")).execute_and_collect() as rows:
        client = client_of(rows)
        wait_until((tmp_path / "last").exists)
        before = completed(cluster, client)
        wait_until(lambda: completed(cluster, client) >= before + 3)
        assert collecting(client) is ExecutionState.RUNNING, "the client has none of its rows"
        assert list(islice(rows, 100)) == list(range(1, 101)), "covered, whatever becomes of the job"
        with ThreadPoolExecutor(1) as thread:
            # By asking for more the client says what it has.
            asking = thread.submit(next, rows, None)
            wait_until(lambda: collecting(client) is ExecutionState.FINISHED)
            client.cancel().result()
            with pytest.raises(JobCancelledError):
                asking.result()


def test_a_job_ends_whose_client_fetches_nothing(cluster: MiniCluster) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(60_000)
    rows = env.from_sequence(1, 100).map(lambda value: value).execute_and_collect()
    client_of(rows).get_job_execution_result().result(180)
    assert sorted(rows) == list(range(1, 101))


@pytest.mark.parametrize("drain", [False, True], ids=["suspended", "drained"])
def test_each_row_comes_once_to_the_clients_before_and_behind_a_savepoint(
    cluster: MiniCluster, tmp_path: Path, drain: bool
) -> None:
    (tmp_path / "gates").mkdir()
    # It holds rows back until it is let, so that the first job is never at its end.
    source = GatedSource("s", str(tmp_path / "gates"), splits=2, rows=1000, patience=300.0)
    got: list[list[Any]] = []
    settings: dict[str, str] = {}
    for last in (False, True):
        env = cluster.get_execution_environment(settings).set_parallelism(2)
        env.enable_checkpointing(100)
        # Two readers, of which the second one may find no split left: it may end while the savepoint is under way.
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
        rows = stream.rebalance().map(lambda row: row[2]).execute_and_collect()
        got.append([] if last else list(islice(rows, 50)))
        if not last:
            stopping = client_of(rows).stop_with_savepoint(drain, str(tmp_path))
            settings["execution.state-recovery.path"] = stopping.result()
            (tmp_path / "gates" / "fired").touch()
        got[-1] += rows
    former, following = got
    assert len(former) >= 50 and (following or drain)
    assert len(set(former)) == len(former) and not set(former) & set(following)
    assert drain or sorted([*former, *following]) == sorted(row[2] for row in source.all_rows())
