"""A worker that dies names function and record: by its own word if there is time for one, else by its last look."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.common import Duration, Types
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.container.worker.current_call import LAST_FILE_NAME, read_last_call
from yarrow.datastream import AsyncDataStream, DataStream, KeyedProcessFunction, RuntimeContext
from yarrow.datastream.functions import AsyncFunction
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobExecutionError

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
#: The row at which functions end their process.
FATAL = 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(configuration={"rest.port": "0"}) as running:
        yield running


def leave(value: int) -> int:
    if value == FATAL:
        os._exit(3)
    return value


def crash(value: int) -> int:
    if value == FATAL:
        ctypes.string_at(0)
    return value


class LeaveByTimer(KeyedProcessFunction[int, int, int]):
    """Ends the process in a timer."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Any:
        # Event time passes it when the input ends; a timer of the machine's time may be dropped then.
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        os._exit(4)


class LeaveInCall(AsyncFunction[int, int]):
    """Ends the process while other calls are in flight."""

    async def async_invoke(self, value: int) -> list[int]:
        if value == FATAL:
            os._exit(5)
        await asyncio.sleep(600)
        return [value]


def leave_in_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    os._exit(6)


def mapped(rows: DataStream) -> DataStream:
    return rows.map(lambda n: n + 0).name("first").map(leave).name("culprit").map(lambda n: n).name("third")


def crashing(rows: DataStream) -> DataStream:
    return rows.key_by(lambda n: n % 2).map(crash).name("culprit").map(lambda n: n + 1)


def by_timer(rows: DataStream) -> DataStream:
    return rows.filter(lambda n: n == FATAL).key_by(lambda n: n).process(LeaveByTimer()).name("culprit")


def calling(rows: DataStream) -> DataStream:
    return AsyncDataStream.unordered_wait(
        rows, LeaveInCall(), Duration.of_minutes(20), 40, Types.LONG()
    ).name("culprit")


def columnar(rows: DataStream) -> DataStream:
    named = rows.filter(lambda n: n == FATAL).map(
        lambda n: (n, "pen"), Types.ROW_NAMED(["n", "name"], [Types.LONG(), Types.STRING()])
    )
    return named.to_arrow(SCHEMA).map_batches(leave_in_columns, SCHEMA).name("culprit")


def failure_of(cluster: MiniCluster, shape: Callable[[DataStream], DataStream]) -> tuple[str, dict[str, Any]]:
    """The text of the client's error, and the job's exceptions by REST."""
    env = cluster.get_execution_environment().set_parallelism(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    shape(env.from_collection(list(range(FATAL + 1)), Types.LONG())).print()
    client = cluster.submit(env.get_job_graph("last words"))
    with pytest.raises(JobExecutionError) as error:
        client.get_job_execution_result().result()
    return str(error.value), exceptions_of(cluster, client)


def exceptions_of(cluster: MiniCluster, client: Any) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.web_address}/jobs/{client.get_job_id()}/exceptions") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.parametrize(
    ("shape", "record", "end"),
    [
        (mapped, "7", "user code ended the process with os._exit(3)"),
        (crashing, "7", "its native code crashed (SIGSEGV: Segmentation fault)"),
        (by_timer, "(timer at 7 of the key 7)", "user code ended the process with os._exit(4)"),
        (calling, "7", "user code ended the process with os._exit(5)"),
        (
            columnar,
            "(rows 0 to 0 of a batch with the columns n, name; the first has n=7, name='pen')",
            "user code ended the process with os._exit(6)",
        ),
    ],
)
def test_a_worker_that_dies_tells_operator_record_and_end(
    cluster: MiniCluster, shape: Callable[[DataStream], DataStream], record: str, end: str
) -> None:
    text, exceptions = failure_of(cluster, shape)
    told = f"it ran operator 'culprit' (subtask 1/1) with the record {record}: {end}"
    assert told in text and f"failed in culprit, at the record {record}" in text
    (entry,) = exceptions["exceptionHistory"]["entries"]
    assert told in entry["stacktrace"] and "test_last_words_of_workers.py" in entry["stacktrace"]


def blocking(folder: str) -> Callable[[int], int]:
    """A function that notes its process and goes on no more."""

    def wait(value: int) -> int:
        if value == FATAL:
            Path(folder, "pid").write_text(str(os.getpid()))
            threading.Event().wait()
        return value

    return wait


class NeverAnswers(AsyncFunction[int, int]):
    """Notes its process, and waits."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        Path(self._folder, "pid").write_text(str(os.getpid()))

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(600)
        return [value]


def last_record(pid: Path) -> str:
    """The record that the worker has told by its last look."""
    if not pid.exists() or not (number := pid.read_text()):
        return ""
    for descriptor in Path(f"/proc/{number}/fd").iterdir():
        file = descriptor.readlink()
        if file.name == LAST_FILE_NAME:
            found = read_last_call(file.parent)
            return "" if found is None else found.record
    return ""


@pytest.mark.parametrize(
    ("shape", "record"),
    [
        (lambda rows, folder: rows.map(blocking(folder)).name("culprit"), "7"),
        (
            lambda rows, folder: AsyncDataStream.unordered_wait(
                rows, NeverAnswers(folder), Duration.of_minutes(20), 40, Types.LONG()
            ).name("culprit"),
            "0 (the oldest of 8 calls in flight)",
        ),
    ],
    ids=["map", "calls"],
)
def test_a_killed_worker_has_told_the_record_by_its_last_look(
    cluster: MiniCluster, tmp_path: Path, shape: Callable[[DataStream, str], DataStream], record: str
) -> None:
    env = cluster.get_execution_environment().set_parallelism(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    shape(env.from_collection(list(range(FATAL + 1)), Types.LONG()), str(tmp_path)).print()
    client = cluster.submit(env.get_job_graph("killed"))
    pid = tmp_path / "pid"
    wait_until(lambda: last_record(pid) == record)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    with pytest.raises(JobExecutionError) as error:
        client.get_job_execution_result().result()
    told = f"'culprit' (subtask 1/1). When it was last looked at, it had the record {record}"
    assert "SIGKILL" in str(error.value) and told in str(error.value)
    (entry,) = exceptions_of(cluster, client)["exceptionHistory"]["entries"]
    assert told in entry["stacktrace"]
