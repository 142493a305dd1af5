"""Rate limits in a cluster: shared, changed by REST while the job runs, and kept when tasks restart."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Traced, all_running, environment, run_fast
from yarrow.client.rest.masters import split_address
from yarrow.client.rest.rest_client import RestClient
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.common.serialization import Encoder
from yarrow.datastream import RuntimeExecutionMode
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

ROWS = 2000
#: So few rows a second that no test would see the end.
CRAWLING: dict[str, float | None] = {"rows-per-second": 0.001}
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=2) as running:
        yield running


class Rates:
    """The limits of one job, by REST."""

    def __init__(self, cluster: MiniCluster, client: LocalJobClient) -> None:
        assert cluster.web_address is not None
        host, port = split_address(cluster.web_address.removeprefix("http://"))
        self._rest = RestClient(host, int(port))
        self._path = f"/jobs/{client.get_job_id()}/rate-limits"

    def of(self, uid: str) -> dict[str, Any]:
        found = self._rest.get(self._path)["operators"]
        (entry,) = [entry for entry in found if entry["uid"] == uid]
        return dict(entry)

    @property
    def checkpoints(self) -> int:
        return int(
            self._rest.get(f"{self._path.removesuffix('/rate-limits')}/checkpoints")["counts"]["completed"]
        )

    def set(self, **limits: dict[str, float | None]) -> None:
        self._rest.json("PATCH", self._path, {"operators": limits})


def test_limits_are_changed_while_the_job_runs_and_outlive_a_killed_worker(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    source = NumberSequenceSource(1, ROWS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.rate_limit(rows_per_second=50)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    numbers.map(Traced(tmp_path, "rows")).sink_to(sink).uid("files")
    run_fast(tmp_path)
    client = env.execute_async("limited")
    assert isinstance(client, LocalJobClient)
    wait_until(lambda: all_running(client.get_job_details().result()))
    rates = Rates(cluster, client)
    assert rates.of("numbers")["rows-per-second"] == 50
    assert rates.of("files")["rows-per-second"] is None

    rates.set(numbers=CRAWLING, files={"rows-per-second": 1000})
    (worker,) = {int(path.read_text()) for path in tmp_path.glob("rows-0-0")}
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: (tmp_path / "rows-0-1").exists())
    wait_until(lambda: all_running(client.get_job_details().result()))
    assert rates.of("numbers")["rows-per-second"] == CRAWLING["rows-per-second"]
    assert rates.of("files")["rows-per-second"] == 1000

    # Checkpoints pass while all subtasks wait for permits.
    before = rates.checkpoints
    wait_until(lambda: rates.checkpoints > before + 1)

    rates.set(numbers={"rows-per-second": None}, files={"rows-per-second": 100_000})
    client.get_job_execution_result().result()
    lines = [line for path in (tmp_path / "out").rglob("part-*") for line in path.read_text().split()]
    assert sorted(map(int, lines)) == list(range(1, ROWS + 1))


def test_bytes_of_files_are_limited_while_the_job_runs(cluster: MiniCluster, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(ROWS)))
    env = environment(cluster, parallelism=1)
    env.enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    text = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in.txt"))
    lines = env.from_source(text.build(), WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    lines.rate_limit(bytes_per_second=100)
    rows = lines.map(Traced(tmp_path, "rows")).map(lambda line: (int(line),), Types.TUPLE([Types.LONG()]))
    writers = ParquetBulkWriters.for_row_type(pa.schema([("number", pa.int64())]))
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), writers).build()
    rows.sink_to(sink).uid("files").rate_limit(bytes_per_second=1e9)
    run_fast(tmp_path)
    client = env.execute_async("limited bytes")
    assert isinstance(client, LocalJobClient)
    wait_until(lambda: all_running(client.get_job_details().result()))
    rates = Rates(cluster, client)
    assert rates.of("lines")["counts-bytes"] and rates.of("files")["counts-bytes"]

    rates.set(files={"bytes-per-second": 0.001})
    os.kill(int((tmp_path / "rows-0-0").read_text()), signal.SIGKILL)
    wait_until(lambda: (tmp_path / "rows-0-1").exists())
    wait_until(lambda: all_running(client.get_job_details().result()))
    assert rates.of("files")["bytes-per-second"] == 0.001
    before = rates.checkpoints
    wait_until(lambda: rates.checkpoints > before + 1)

    # From now on the sink alone holds rows back.
    rates.set(lines={"bytes-per-second": None})
    before = rates.checkpoints
    wait_until(lambda: rates.checkpoints > before + 1)
    assert not client.get_job_execution_result().done()

    rates.set(files={"bytes-per-second": None})
    client.get_job_execution_result().result()
    assert sorted(pq.read_table(tmp_path / "out")["number"].to_pylist()) == list(range(ROWS))


def test_a_job_that_waits_for_permits_is_cancelled_at_once(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, parallelism=1)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    numbers = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows"))
    numbers.sink_to(sink).uid("files").rate_limit(rows_per_second=0.001)
    client = env.execute_async("limited sink")
    assert isinstance(client, LocalJobClient)
    wait_until(lambda: all_running(client.get_job_details().result()))
    assert Rates(cluster, client).of("files")["sharing-subtasks"] == 1
    client.cancel().result()


def test_limits_of_a_bounded_job_are_changed_while_it_runs_and_outlive_a_killed_worker(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    env = environment(cluster, parallelism=1)
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    source = NumberSequenceSource(1, ROWS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.rate_limit(rows_per_second=100_000)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    rows = numbers.map(Traced(tmp_path, "rows"))
    rows.sink_to(sink).uid("files").rate_limit(bytes_per_second=0.001)
    run_fast(tmp_path)
    client = env.execute_async("limited in batch")
    assert isinstance(client, LocalJobClient)
    wait_until(lambda: (tmp_path / "rows-0-0").exists())
    rates = Rates(cluster, client)
    assert rates.of("files")["bytes-per-second"] == 0.001
    rates.set(numbers=CRAWLING)
    # The next run begins with the changed limit.
    pid = int((tmp_path / "rows-0-0").read_text())
    (tmp_path / "rows-0-0").unlink()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: (tmp_path / "rows-0-0").exists())
    assert rates.of("numbers")["rows-per-second"] == CRAWLING["rows-per-second"]
    rates.set(files={"bytes-per-second": None})
    wait_until(lambda: rates.of("numbers")["sharing-subtasks"] == 1)
    assert not client.get_job_execution_result().done()
    rates.set(numbers={"rows-per-second": None})
    client.get_job_execution_result().result()
    lines = [line for path in (tmp_path / "out").rglob("part-*") for line in path.read_text().split()]
    assert sorted(map(int, lines)) == list(range(1, ROWS + 1))
