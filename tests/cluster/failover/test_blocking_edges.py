"""Blocking edges in a cluster: results on disk, read in the same worker and in others, lost and made again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Trace, environment
from yarrow.common import Row, Types
from yarrow.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster
ROWS = 20_000
#: More than the reader of a result looks ahead.
MANY_ROWS = 200_000
PAIR = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])


@pytest.fixture(scope="module", params=[True, False], ids=["processes", "threads"])
def cluster(request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=1, processes=request.param) as running:
        yield running


def blocking(cluster: MiniCluster, parallelism: int = 2) -> StreamExecutionEnvironment:
    env = environment(cluster, parallelism)
    env.get_configuration().set_string("execution.exchange-mode", "blocking")
    return env


class Until(MapFunction[tuple[int, int], tuple[int, int]]):
    """Notes its process, then waits at its first row for a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = str(folder)
        self._name = name
        self._open = False

    def open(self, runtime_context: RuntimeContext) -> None:
        number = runtime_context.get_index_of_this_subtask()
        attempt = runtime_context.get_attempt_number()
        (Path(self._folder) / f"{self._name}-{number}-{attempt}").write_text(str(os.getpid()))

    def map(self, value: tuple[int, int]) -> tuple[int, int]:
        import threading

        pause = threading.Event()
        while not self._open and not (Path(self._folder) / "go").exists():
            pause.wait(0.01)
        self._open = True
        return value


def test_results_are_read_complete_and_by_everybody(cluster: MiniCluster) -> None:
    env = blocking(cluster)
    pairs = env.from_sequence(1, ROWS).map(lambda x: (x % 7, x))
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    last: dict[int, int] = {}
    for key, total in sums.execute_and_collect():
        last[key] = max(total, last.get(key, 0))
    assert last == {rest: sum(x for x in range(1, ROWS + 1) if x % 7 == rest) for rest in range(7)}


def test_results_of_columns_are_read_complete(cluster: MiniCluster) -> None:
    env = blocking(cluster)
    pairs = env.from_sequence(1, ROWS).map(lambda x: Row(key=x % 7, n=x), PAIR)
    sums = pairs.to_arrow().key_by("key").sum("n").to_rows(as_tuple=True)
    last: dict[int, int] = {}
    for key, total in sums.execute_and_collect():
        last[key] = max(total, last.get(key, 0))
    assert last == {rest: sum(x for x in range(1, ROWS + 1) if x % 7 == rest) for rest in range(7)}


def test_consumers_start_when_producers_have_finished(cluster: MiniCluster, tmp_path: Path) -> None:
    env = blocking(cluster)
    held = env.from_sequence(1, 10).map(lambda x: (x % 3, x)).map(Until(tmp_path, "before"))
    held.key_by(lambda pair: pair[0]).map(Until(tmp_path, "after")).print()
    client = cluster.submit(env.get_job_graph("two stages"))
    wait_until(lambda: len(list(tmp_path.glob("before-*"))) == 2)
    states = {
        vertex.name: {subtask.state.value for subtask in vertex.subtasks}
        for vertex in client.get_job_details().result().vertices
    }
    assert {"CREATED"} in states.values()
    assert not list(tmp_path.glob("after-*"))
    (tmp_path / "go").touch()
    client.get_job_execution_result().result()
    assert len(list(tmp_path.glob("after-*"))) == 2


def test_a_killed_producers_result_is_made_again(tmp_path: Path) -> None:
    # The other consumer does not hear of its cancellation: it costs its worker.
    with mini_cluster(
        task_executors=2, slots=1, configuration={"task.cancellation.timeout": "300 ms"}
    ) as cluster:
        env = blocking(cluster)
        pairs = env.from_sequence(1, ROWS).map(lambda x: (x % 50, x)).map(Produced(tmp_path))
        waiting = pairs.key_by(lambda pair: pair[0]).map(Until(tmp_path, "after"))
        rows = waiting.execute_and_collect()
        wait_until(lambda: len(list(tmp_path.glob("after-*-0"))) == 2)
        wait_until(lambda: Trace(tmp_path).pid("after", 0) > 0)
        Trace(tmp_path).kill("after", 0)
        wait_until(lambda: bool(list(tmp_path.glob("after-*-1"))))
        (tmp_path / "go").touch()
        found = Counter(rows)
        assert set(found) == {(x % 50, x) for x in range(1, ROWS + 1)}
        assert any(path.name.endswith("-1") for path in tmp_path.glob("produced-*")), "a producer ran again"


class Produced(MapFunction[tuple[int, int], tuple[int, int]]):
    """Notes its attempts."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        number = runtime_context.get_index_of_this_subtask()
        (Path(self._folder) / f"produced-{number}-{runtime_context.get_attempt_number()}").touch()

    def map(self, value: tuple[int, int]) -> tuple[int, int]:
        return value


def test_a_corrupt_result_is_made_again(tmp_path: Path) -> None:
    with mini_cluster(task_executors=1, slots=1) as cluster:
        env = blocking(cluster, parallelism=1)
        pairs = env.from_sequence(1, MANY_ROWS).map(lambda x: (x % 50, x)).map(Produced(tmp_path))
        first = pairs.key_by(lambda pair: pair[0]).map(Damaging(cluster.cluster.folder, tmp_path))
        rows = first.key_by(lambda pair: pair[0]).map(lambda pair: pair).execute_and_collect()
        assert sorted(rows) == sorted((x % 50, x) for x in range(1, MANY_ROWS + 1))
    assert (tmp_path / "produced-0-1").exists(), "the producer ran again"


class Damaging(MapFunction[tuple[int, int], tuple[int, int]]):
    """Damages, once, the end of the result that it reads."""

    def __init__(self, cluster_folder: str, folder: Path) -> None:
        self._cluster_folder = cluster_folder
        self._done = str(folder / "damaged")

    def open(self, runtime_context: RuntimeContext) -> None:
        if os.path.exists(self._done):
            return
        (spool,) = [
            path for path in Path(self._cluster_folder).rglob("*.spool") if path.stat().st_size > 1_000_000
        ]
        with spool.open("r+b") as file:
            file.seek(-2000, os.SEEK_END)
            file.write(b"\xff" * 100)
        Path(self._done).touch()

    def map(self, value: tuple[int, int]) -> tuple[int, int]:
        return value
