"""The task of a stage without Spark: what it tells its driver, and what it holds of other stages' results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.batch_runner import collecting_graph
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.container.batch.chunk import COLLECTED
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.driver.task_messages import TaskShares
from yarrow.container.batch.spark.task_server import AttemptListener, EntranceOnThisHost, TaskServer
from yarrow.container.batch.spark.tasks import stage_function
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.batch.spark.tasks.stage_function import (
    InputLostError,
    SqlStageFunction,
    StageFunction,
    TaskFailedError,
)
from yarrow.container.batch.spark.tasks.stage_rows import MARKER, ROW_SCHEMA
from yarrow.container.batch.spark.tasks.task_reports import TaskReports
from yarrow.container.protocol.framing import encode_frame
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.batch.batch_plan import encode_batch_plan
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.batch.batch_sql import with_sql
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph

LIMIT = 60.0


class Heard:
    """What the driver hears: the methods that were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *told: self.calls.append(name)


class FakeContext:
    """Spark's word about a first attempt."""

    @staticmethod
    def get() -> FakeContext:
        return FakeContext()

    def attemptNumber(self) -> int:
        return 0

    def partitionId(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return 7


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_function, "TaskContext", FakeContext)


def two_stages(configuration: dict[str, str] | None = None) -> JobGraph:
    env = environment(1, configuration or {})
    rows = env.from_collection([1]).rebalance().map(lambda n: 1 // n).set_parallelism(2)
    return collecting_graph(env, rows)


def row(edge: int, payload: bytes = b"", sequence: int = 0) -> dict[str, Any]:
    return {
        "edge": edge,
        "target": 0,
        "producer": 0,
        "sequence": sequence,
        "rows": 1,
        "payload": payload,
        "stage": 0,
        "attempt": 0,
        "partition": 0,
    }


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=ROW_SCHEMA)


def run_last_but_one(
    graph: JobGraph, arriving: Iterator[pa.RecordBatch], folder: Path, heard: Heard
) -> Iterator[pa.RecordBatch]:
    """Runs the second stage's task, with its driver's socket."""
    return run_task(lambda address: StageFunction(address, 1), graph, arriving, folder, heard)


def run_task(
    function: Callable[[DriverAddress], StageFunction],
    graph: JobGraph,
    arriving: Iterator[pa.RecordBatch],
    folder: Path,
    heard: Heard,
) -> Iterator[pa.RecordBatch]:
    """Runs a task with its driver's socket."""
    stages = plan(graph)
    job = SharedJob(
        run=0,
        job_graph=encode_job_graph(with_sql(graph, stages)),
        plan=encode_batch_plan(stages),
        configuration={},
        task_folder=str(folder / "tasks"),
        file_paths={},
        splits={},
        result_key=b"key",
    )
    entrance = EntranceOnThisHost(folder, job)
    server = TaskServer(entrance, cast(AttemptListener, heard), NewestTokens())
    server.start()
    try:
        yield from function(entrance.address)(arriving)
    except Exception:
        # The server's thread hears of it later than this one.
        until_heard(heard, "attempt_failed", "attempt_lost")
        raise
    finally:
        server.close()


def until_heard(heard: Heard, *calls: str) -> None:
    """Returns when one of the calls has come."""
    for _ in range(int(LIMIT * 100)):
        if not set(calls).isdisjoint(heard.calls):
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"none of {calls} comes: {heard.calls}")


def test_an_attempt_that_gets_no_more_input_is_lost_and_does_not_fail_the_job(tmp_path: Path) -> None:
    """Spark closes the streams of the slower one of two attempts."""

    def arriving() -> Iterator[pa.RecordBatch]:
        yield batch(row(MARKER))
        raise EOFError

    heard = Heard()
    with pytest.raises(InputLostError):
        list(run_last_but_one(two_stages(), arriving(), tmp_path, heard))
    assert "attempt_lost" in heard.calls and "attempt_failed" not in heard.calls


def test_a_failure_of_the_task_is_told(tmp_path: Path) -> None:
    heard = Heard()
    # A chunk that no task has made.
    arriving = iter([batch(row(MARKER), row(0, b"\xff"))])
    with pytest.raises(TaskFailedError):
        list(run_last_but_one(two_stages(), arriving, tmp_path, heard))
    assert "attempt_failed" in heard.calls and "attempt_lost" not in heard.calls


def test_results_of_earlier_stages_wait_on_disk(tmp_path: Path) -> None:
    most = 0
    before = pa.total_allocated_bytes()
    megabyte = bytes(1 << 20)

    def arriving() -> Iterator[pa.RecordBatch]:
        nonlocal most
        yield batch(row(MARKER))
        for number in range(64):
            most = max(most, pa.total_allocated_bytes() - before)
            yield batch(row(COLLECTED, megabyte, number))

    graph = two_stages({"execution.batch.sort-memory": "2 mb"})
    came: set[int] = set()
    for rows in run_last_but_one(graph, arriving(), tmp_path, Heard()):
        for found in rows.select(["edge", "stage", "sequence", "payload"]).to_pylist():
            if found["edge"] == COLLECTED and found["stage"] == 0:
                assert found["payload"] == megabyte
                came.add(found["sequence"])
    assert came == set(range(64))
    assert most < 16 << 20
    assert list((tmp_path / "tasks").iterdir()) == []


def sums_of_a_file(folder: Path, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> JobGraph:
    """Sums that Spark SQL computes; `function` takes them."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    pq.write_table(schema.empty_table(), folder / "1.parquet")
    env = environment(2, {"execution.batch.sort-memory": "2 mb"})
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(folder)).build()
    files = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    return collecting_graph(
        env, files.key_by("k").aggregate([("v", "sum", "v")]).map_batches(function, schema).to_rows()
    )


def both_tasks(driver: DriverAddress) -> StageFunction:
    """The task of Spark's results, with that of the stage which reads them."""
    return SqlStageFunction(driver, 0, StageFunction(driver, 1))


class Batches:
    """Counts the batches that were sent to a task, and keeps the rows that its function has read."""

    sent = 0
    #: Number of batches that had been sent when the function read one, and its rows.
    read: ClassVar[list[tuple[int, list[dict[str, Any]]]]] = []


def note(rows: pa.RecordBatch) -> pa.RecordBatch:
    Batches.read.append((Batches.sent, rows.to_pylist()))
    return rows


def test_a_task_reads_results_of_sql_when_all_have_come_in_their_order(tmp_path: Path) -> None:
    # Some of them wait on disk.
    values = [{"k": f"{number:04}" + "x" * 1000, "v": number} for number in range(6000)]

    def arriving() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(values), 100):
            Batches.sent += 1
            yield pa.RecordBatch.from_pylist(values[at : at + 100])

    Batches.sent, Batches.read = 0, []
    heard = Heard()
    graph = sums_of_a_file(tmp_path, note)
    rows = list(run_task(both_tasks, graph, arriving(), tmp_path, heard))
    assert [row for _, found in Batches.read for row in found] == values
    assert {sent for sent, _ in Batches.read} == {60}
    # Each result names its own stage, and the subtask is Spark's partition.
    results = [row for batch in rows for row in batch.select(["edge", "stage", "producer"]).to_pylist()]
    assert {(row["stage"], row["producer"]) for row in results if row["edge"] > MARKER} == {(0, 1), (1, 1)}
    assert heard.calls.count("attempt_started") == 2 and "attempt_lost" not in heard.calls
    assert list((tmp_path / "tasks").iterdir()) == []


def test_a_failure_of_the_results_of_sql_is_told_and_nothing_reads_them(tmp_path: Path) -> None:
    Batches.sent, Batches.read = 0, []
    # Spark would have typed a column otherwise.
    wrong = pa.RecordBatch.from_pylist([{"k": "a", "v": 1.5}])
    heard = Heard()
    with pytest.raises(InputLostError):
        list(run_task(both_tasks, sums_of_a_file(tmp_path, note), iter([wrong]), tmp_path, heard))
    assert "attempt_failed" in heard.calls and heard.calls.count("attempt_started") == 1
    assert Batches.read == []


def test_one_thread_at_a_time_uses_the_connection_to_the_driver() -> None:
    """OpenSSL forbids a thread to send while another one receives or closes."""
    uses: list[tuple[str, bool]] = []

    class Connection:
        """Notes at each use whether other threads must wait."""

        def __init__(self) -> None:
            self.answer = memoryview(encode_frame(TaskShares(shares={})))

        def note(self, use: str) -> None:
            uses.append((use, reports._lock.locked()))

        def setblocking(self, flag: bool) -> None: ...

        def sendall(self, data: bytes) -> None:
            self.note("send")

        def recv_into(self, into: memoryview) -> int:
            self.note("receive")
            count = len(into)
            into[:], self.answer = self.answer[:count], self.answer[count:]
            return count

        def close(self) -> None:
            self.note("close")

    reports = TaskReports(cast(Any, SimpleNamespace(connect=Connection)))
    assert reports.shares() == {}
    reports.close()
    assert uses == [("send", True), ("receive", True), ("receive", True), ("close", True)]
