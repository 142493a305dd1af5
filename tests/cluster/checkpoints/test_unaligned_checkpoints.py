"""Unaligned checkpoints in a cluster: rows are in flight before a slow stage when its worker is killed."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import environment, fast_in, run_fast
from tests.cluster.failover.test_rescaling import rescale
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.job_status import JobStatus
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.state import ValueState
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.cluster
#: So many that no subtask is done before the test has done to the job what it wants.
ROWS, KEYS = 40_000, 8
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class SlowCount(KeyedProcessFunction[int, Any, Any]):
    """Counts the rows of each key, and takes its time until a test calls `run_fast`; notes its process."""

    _count: ValueState[int]

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._fast = str(fast_in(folder))

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        number, attempt = runtime_context.get_index_of_this_subtask(), runtime_context.get_attempt_number()
        (Path(self._folder) / f"slow-{number}-{attempt}").write_text(str(os.getpid()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if not os.path.exists(self._fast):
            time.sleep(0.002)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count, value[1]


def completed(client: Any) -> list[dict[str, Any]]:
    """Completed checkpoints by REST, oldest first."""
    url = f"{client.get_web_interface_url()}/jobs/{client.get_job_id()}/checkpoints"
    with urllib.request.urlopen(url) as answer:
        history = json.load(answer)["history"]
    return sorted((c for c in history if c["status"] == "COMPLETED"), key=lambda c: int(c["id"]))


def slow_job(cluster: MiniCluster, folder: Path, timeout: str, rows: int = ROWS) -> LocalJobClient:
    """A source that is faster than the keyed stage behind it, which writes (key, count, number) to `output`."""
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(100)
    for key, value in {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": timeout,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.batch.max-rows": "100",
    }.items():
        env.get_configuration().set_string(key, value)
    fast = str(fast_in(folder))

    def keyed(index: int) -> tuple[int, int]:
        # Four times as fast as the stage behind. A faster one has many thousand rows in flight before the first
        # checkpoint, and a rescale waits until the slow stage has taken them all.
        if not os.path.exists(fast):
            time.sleep(0.0005)
        return index % KEYS, index

    source = DataGeneratorSource(keyed, rows, RateLimiterStrategy.per_second(20_000), PAIR)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
    slow = numbers.key_by(lambda row: row[0], Types.LONG()).process(SlowCount(folder))
    slow.sink_to(TransactionalFiles(str(folder / "output")))
    client = env.execute_async("slow")
    assert isinstance(client, LocalJobClient)
    return client


def wait_for_rows_in_flight(client: LocalJobClient, later_than: int = -1) -> None:
    """Until the newest checkpoint is such a one."""

    def holds() -> bool:
        done = completed(client)
        return bool(done) and done[-1]["persisted_data"] > 0 and int(done[-1]["id"]) > later_than

    wait_until(holds)


def check_output(folder: Path, rows: int = ROWS) -> None:
    """Each row is counted once, in the order of its key's counts."""
    counted = CommittedFiles(folder / "output").rows()
    assert sorted(row[2] for row in counted) == list(range(rows))
    assert sorted(row[:2] for row in counted) == [
        (key, count) for key in range(KEYS) for count in range(1, rows // KEYS + 1)
    ]


@pytest.mark.parametrize("timeout", ["0 ms", "50 ms"], ids=["at once", "aligned at first"])
def test_rows_in_flight_survive_a_killed_worker(timeout: str, tmp_path: Path) -> None:
    with mini_cluster(task_executors=2, slots=1) as cluster:
        client = slow_job(cluster, tmp_path, timeout)
        wait_for_rows_in_flight(client)
        with_rows = [each["checkpoint_type"] for each in completed(client) if each["persisted_data"] > 0]
        assert "UNALIGNED_CHECKPOINT" in with_rows
        os.kill(int((tmp_path / "slow-0-0").read_text()), signal.SIGKILL)
        wait_until((tmp_path / "slow-0-1").exists)
        run_fast(tmp_path)
        client.get_job_execution_result().result(180)
        assert client.get_job_status().result() is JobStatus.FINISHED
    check_output(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("timeout", ["0 ms", "50 ms"], ids=["at once", "aligned at first"])
def test_a_job_with_rows_in_flight_is_rescaled(timeout: str, tmp_path: Path) -> None:
    """Up, down to one and up again; then a worker is killed, and an unaligned checkpoint of all that restored."""
    rows = 2 * ROWS
    with mini_cluster(task_executors=2, slots=2) as cluster:
        client = slow_job(cluster, tmp_path, timeout, rows)
        newest = -1
        for parallelism in (3, 1, 4):
            # One that has rows in flight, and is of the present parallelism.
            wait_for_rows_in_flight(client, newest)
            rescale(cluster, client, parallelism)
            newest = int(completed(client)[-1]["id"])
        wait_for_rows_in_flight(client, newest)
        newest_process = max(tmp_path.glob("slow-0-*"), key=lambda path: int(path.name.split("-")[-1]))
        os.kill(int(newest_process.read_text()), signal.SIGKILL)
        details = client.get_job_details().result()
        assert [record.state for record in details.rescales] == ["COMPLETED"] * 3
        run_fast(tmp_path)
        client.get_job_execution_result().result(180)
        assert client.get_job_status().result() is JobStatus.FINISHED
    check_output(tmp_path, rows)
