"""Tasks without edges between them: a reader that fails starts again alone, also the one beside the enumerator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import (
    ENDLESS,
    Trace,
    Traced,
    all_running,
    attempts,
    environment,
    run_fast,
)
from yarrow.common import Encoder, Types
from yarrow.datastream import MapFunction, RuntimeContext
from yarrow.datastream.connectors.file_system import FileSink, RollingPolicy
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster
#: So many that no reader is done before the test lets the rows pass.
ROWS = 60_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # On a busy machine the slot of a killed worker comes back late: no further TaskExecutor is asked for meanwhile.
    patient = {"slotmanager.requirement-check.delay": "60 s"}
    with mini_cluster(task_executors=2, slots=1, configuration=patient) as running:
        yield running


class FailsWhenTold(MapFunction[int, int]):
    """Fails once in one subtask, as soon as a file is there; its worker lives."""

    def __init__(self, folder: Path, subtask: int) -> None:
        self._sign = str(folder / "fail")
        self._subtask = subtask

    def open(self, runtime_context: RuntimeContext) -> None:
        self._armed = (
            runtime_context.get_index_of_this_subtask() == self._subtask
            and runtime_context.get_attempt_number() == 0
        )

    def map(self, value: int) -> int:
        if self._armed and Path(self._sign).exists():
            raise ValueError("told to fail")
        return value


def written(folder: Path) -> list[int]:
    """The rows of finished files."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [int(line) for path in files for line in path.read_text().split()]


@pytest.mark.parametrize("subtask", [0, 1])
def test_a_failed_reader_restarts_alone(cluster: MiniCluster, tmp_path: Path, subtask: int) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(50)
    rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows")).map(FailsWhenTold(tmp_path, subtask))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    rows.map(str, Types.STRING()).sink_to(sink.build())
    client = cluster.submit(env.get_job_graph("single"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    wait_until(lambda: bool(written(tmp_path / "out")))
    (tmp_path / "fail").touch()
    wait_until(lambda: client.get_job_details().result().restarts == 1)
    wait_until(lambda: all_running(client.get_job_details().result()))
    found = attempts(client.get_job_details().result())
    assert found.popitem()[1] == ([1, 0] if subtask == 0 else [0, 1])
    run_fast(tmp_path)
    client.get_job_execution_result().result()
    assert sorted(written(tmp_path / "out")) == list(range(1, ROWS + 1))


def test_without_checkpoints_too_and_again_and_again(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, parallelism=2)
    rows = env.from_sequence(1, ENDLESS).map(Traced(tmp_path, "rows")).map(FailsWhenTold(tmp_path, 0))
    rows.filter(lambda value: False).print()
    client = cluster.submit(env.get_job_graph("single"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    (tmp_path / "fail").touch()
    wait_until(lambda: list(attempts(client.get_job_details().result()).values()) == [[1, 0]])
    wait_until(lambda: all_running(client.get_job_details().result()))
    # A dead worker is another matter: its enumerator is gone.
    trace = Trace(tmp_path)
    wait_until(lambda: trace.pid("rows", 0, 1) > 0)
    trace.kill("rows", 0, 1)
    wait_until(lambda: list(attempts(client.get_job_details().result()).values()) == [[2, 1]])
    wait_until(lambda: all_running(client.get_job_details().result()))
    client.cancel().result()
