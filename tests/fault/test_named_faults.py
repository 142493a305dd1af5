"""Faults by name, each with what must hold; docs/faults.md says which test shows which fault."""

from __future__ import annotations

import errno
import math
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import psutil
import pytest

from tests.cluster.embedded.waiting import DEADLINE as LIMIT
from tests.cluster.embedded.waiting import wait_until
from tests.fault.test_guarantees import totals
from tests.support.fault_runs import SETTINGS
from yarrow.common.job_status import JobStatus
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.functions import KeyedProcessFunction, MapFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError, JobExecutionError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointStatistics
from yarrow.runtime.rpc.messages import ExecutionGraphDetails
from yarrow.testing.gated_source import GatedSource
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.fault


@pytest.fixture
def threads() -> Iterator[MiniCluster]:
    with mini_cluster(1, 4, processes=False) as running:
        yield running


class GatedTotals:
    """A job that waits at its gates until the test lets it go on."""

    def __init__(self, cluster: MiniCluster, folder: Path, **settings: str) -> None:
        self._cluster = cluster
        self.gates, self.output, self.checkpoints = (
            folder / name for name in ("gates", "output", "checkpoints")
        )
        self.gates.mkdir()
        options = SETTINGS | {"execution.checkpointing.dir": str(self.checkpoints)}
        env = cluster.get_execution_environment(options | settings)
        totals().build(env, str(self.gates), TransactionalFiles(str(self.output)))
        self.client = cluster.submit(env.get_job_graph("gated totals"))
        self.job_id = JobID(str(self.client.get_job_id()))

    def statistics(self) -> CheckpointStatistics:
        dispatcher = self._cluster.cluster.dispatcher
        return LoopThread.shared().call(dispatcher.request_checkpoint_statistics(self.job_id))

    def until_completed(self, more: int = 1) -> None:
        wanted = self.statistics().counts.completed + more
        wait_until(lambda: self.statistics().counts.completed >= wanted)

    def ends_right(self) -> None:
        """Opens the last gate; the output is that of a run without faults."""
        (self.gates / "fired").touch()
        self.client.get_job_execution_result().result(LIMIT)
        assert self.client.get_job_status().result() is JobStatus.FINISHED
        committed = CommittedFiles(self.output)
        assert Counter(committed.rows()) == Counter(totals().expected())
        assert not committed.committed_twice() and not committed.leftovers()
        # A task that was writing as the job ended removes its file, and then the folder goes.
        wait_until(lambda: not (self.checkpoints / self.job_id).exists(), lambda: "files of a finished job")


# ---------------------------------------------------------------------- 2: a burst of kills


def kill_if_there(pid: int) -> None:
    """SIGKILL to a process that may end by itself before."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def slot_workers() -> list[int]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("yarrow-slot") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def until_each_restart_is_an_attempt(job: GatedTotals) -> int:
    """Failures within a restart count as one: all tasks restart together, each time as another attempt.

    Returns the number of attempts behind the first. The last kill may still be on its way to the master: the restart
    that it costs counts before its attempt begins.
    """
    found: list[ExecutionGraphDetails] = []

    def agree() -> bool:
        found[:] = [job.client.get_job_details().result()]
        return 1 <= found[0].restarts <= _latest_attempt(found[0])

    wait_until(agree, lambda: f"{found[0].restarts} restarts, attempt {_latest_attempt(found[0])}")
    return _latest_attempt(found[0])


def _latest_attempt(details: ExecutionGraphDetails) -> int:
    return max(subtask.attempt_number for vertex in details.vertices for subtask in vertex.subtasks)


def test_a_burst_of_kills_is_counted_and_starts_no_storm_of_containers(tmp_path: Path) -> None:
    with mini_cluster(2, 1) as cluster:
        job = GatedTotals(cluster, tmp_path)
        job.until_completed()
        executors: set[int] = set(cluster.processes)
        killed: set[int] = set()

        def kill_one() -> bool:
            for pid in slot_workers():
                if pid not in killed:
                    killed.add(pid)
                    kill_if_there(pid)
            executors.update(cluster.processes)
            assert len(cluster.processes) <= 2, "no more TaskExecutors than the job needs"
            return len(killed) >= 20

        wait_until(kill_one)
        job.until_completed()
        until_each_restart_is_an_attempt(job)
        # A slot that keeps killing its workers is given back, and its TaskExecutor is not replaced for that.
        assert len(executors) == 2
        job.ends_right()


# ---------------------------------------------------------------------- 18: a full disk


class FullDisk:
    """Folders of checkpoints have no room while `full`; what was begun is on the disk in part.

    `one_fits`: the first file of a folder, which is that of a split enumerator.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, part: str, one_fits: bool) -> None:
        self.full = threading.Event()
        self.refused = 0
        create = LocalFileSystem.create

        def limited(files: LocalFileSystem, path: str) -> BinaryIO:
            # Looked at before the file is there: the master may remove the folder at any time.
            fits = one_fits and _is_empty(os.path.dirname(path))
            refused = part in path and self.full.is_set() and not fits
            stream = create(files, path)
            return _Limited(stream, self) if refused else stream  # type: ignore[return-value]

        monkeypatch.setattr(LocalFileSystem, "create", limited)


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True


class _Limited:
    def __init__(self, stream: BinaryIO, disk: FullDisk) -> None:
        self._stream = stream
        self._disk = disk

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data)[: len(data) // 2])
        self._disk.refused += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Limited:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stream.close()


@pytest.mark.parametrize(
    ("part", "backend", "named"),
    [
        ("/chk-", "hashmap", r"the split enumerator of '[^']+': {folder}/state-"),
        ("/chk-", "one fits", r"operator '[^']+': states? '[^:]+: {folder}/state-"),
        ("/shared/", "rocksdb", r"operator 'KeyedProcess': states? '[^:]*total[^:]+: {shared}/"),
        ("/_metadata", "hashmap", r"{folder}/_metadata"),
    ],
    ids=["enumerators", "tasks", "shared files", "metadata"],
)
def test_a_full_disk_fails_checkpoints_leaves_nothing_and_the_job_lives(
    part: str,
    backend: str,
    named: str,
    threads: MiniCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inline = "1 mb" if part == "/_metadata" else "0 b"
    disk = FullDisk(monkeypatch, "/chk-" if inline == "1 mb" else part, backend == "one fits")
    settings = {
        "execution.checkpointing.data-inline-threshold": inline,
        "state.backend.type": "rocksdb" if backend == "rocksdb" else "hashmap",
        "execution.checkpointing.incremental": "true",
        # The disk is what fails checkpoints, and not the time that a busy machine takes.
        "execution.checkpointing.timeout": "1 min",
    }
    job = GatedTotals(threads, tmp_path, **settings)
    job.until_completed()
    disk.full.set()
    failed = job.statistics().counts.failed
    wait_until(lambda: job.statistics().counts.failed >= failed + 3)
    assert disk.refused >= 3
    latest = job.statistics().latest.failed
    assert latest is not None and "No space left on device" in latest.failure_message
    folder = job.checkpoints / job.job_id
    # By operator, state and path.
    pattern = named.format(folder=folder / f"chk-{latest.id}", shared=folder / "shared")
    assert re.search(pattern, latest.failure_message), latest.failure_message
    assert job.client.get_job_details().result().restarts == 0
    disk.full.clear()
    job.until_completed()
    kept = job.statistics().latest.completed
    assert kept is not None
    # What is deleted goes soon after: failed checkpoints leave no folder behind.
    wait_until(lambda: all(int(path.name.removeprefix("chk-")) > latest.id for path in folder.glob("chk-*")))
    job.ends_right()


# ---------------------------------------------------------------------- 19: storage stalls


def test_a_stalled_storage_times_out_and_what_comes_late_is_deleted(
    threads: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, go_on, late = threading.Event(), threading.Event(), []
    create = LocalFileSystem.create

    def slow(files: LocalFileSystem, path: str) -> BinaryIO:
        if "/chk-" in path and stalled.is_set() and not go_on.is_set():
            late.append(path)
            go_on.wait(LIMIT)
        return create(files, path)

    monkeypatch.setattr(LocalFileSystem, "create", slow)
    job = GatedTotals(threads, tmp_path, **{"execution.checkpointing.data-inline-threshold": "0 b"})
    job.until_completed()
    stalled.set()
    # One checkpoint may have its files already.
    completed = job.statistics().counts.completed
    wait_until(lambda: len(late) > 0)
    failed = job.statistics().counts.failed
    wait_until(lambda: job.statistics().counts.failed > failed)
    latest = job.statistics().latest.failed
    assert latest is not None and "expired" in latest.failure_message
    assert job.statistics().counts.completed <= completed + 1
    go_on.set()
    job.until_completed(2)
    wait_until(lambda: not any(Path(path).exists() for path in late))
    assert job.client.get_job_details().result().restarts == 0
    job.ends_right()


# ---------------------------------------------------------------------- 34: a slow consumer


class Counted(MapFunction[int, int]):
    """Counts what passes; waits for each row where it is slow. Workers are threads here."""

    passed: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str, seconds: float = 0.0) -> None:
        self._name = name
        self._seconds = seconds

    def map(self, value: int) -> int:
        Counted.passed[self._name] += 1
        if self._seconds:
            threading.Event().wait(self._seconds)
        return value


def test_a_slow_consumer_stops_its_source_and_no_other_job(threads: MiniCluster, tmp_path: Path) -> None:
    Counted.passed.clear()
    options = {
        "parallelism.default": "1",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": str(tmp_path),
    }
    env = threads.get_execution_environment(options)
    rows = env.from_sequence(1, 10**9).map(Counted("made")).rebalance()
    rows.map(Counted("taken", 0.002)).slot_sharing_group("slow").filter(lambda value: False).print()
    slow = threads.submit(env.get_job_graph("slow consumer"))
    wait_until(lambda: Counted.passed["taken"] > 20)
    env = threads.get_execution_environment({"parallelism.default": "1"})
    env.from_sequence(1, 30_000).map(Counted("sibling")).filter(lambda value: False).print()
    sibling = threads.submit(env.get_job_graph("sibling"))
    sibling.get_job_execution_result().result(LIMIT)
    assert Counted.passed["sibling"] == 30_000
    made = Counted.passed["made"]
    taken = Counted.passed["taken"]
    wait_until(lambda: Counted.passed["taken"] > taken + 200)
    # Rows wait within the windows of the channels; the source does not run away.
    assert Counted.passed["made"] - Counted.passed["taken"] < 200_000
    assert Counted.passed["made"] - made < 100_000
    job_id = JobID(str(slow.get_job_id()))

    def completed() -> int:
        dispatcher = threads.cluster.dispatcher
        return LoopThread.shared().call(dispatcher.request_checkpoint_statistics(job_id)).counts.completed

    # Barriers overtake what waits.
    before = completed()
    wait_until(lambda: completed() > before)
    slow.cancel().result()


# ---------------------------------------------------------------------- 35: a poison record


class Poisoned(MapFunction[int, int]):
    """Fails at one record, whenever it comes."""

    def map(self, value: int) -> int:
        if value == 4711:
            raise ValueError("this one cannot be handled")
        return value


def test_a_poison_record_ends_the_job_when_restarts_are_used_up_and_is_named(threads: MiniCluster) -> None:
    env = threads.get_execution_environment({"parallelism.default": "1"})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    env.from_sequence(1, 10_000).map(Poisoned()).name("handle").print()
    client = threads.submit(env.get_job_graph("poison"))
    with pytest.raises(JobExecutionError, match="this one cannot be handled") as found:
        client.get_job_execution_result().result(LIMIT)
    assert "4711" in str(found.value) and "handle" in str(found.value)
    job_id = JobID(str(client.get_job_id()))
    details = LoopThread.shared().call(threads.cluster.dispatcher.request_job_details(job_id))
    assert details.restarts == 3 and details.status.value == JobStatus.FAILED.name


# ---------------------------------------------------------------------- 37: large rows, awkward keys

#: Each tuple is one key.
SAME_KEYS: tuple[tuple[Any, ...], ...] = (
    (math.nan, float("nan")),
    (None,),
    (0.0, -0.0, 0, False),
    (10**40, 10**40 + 0),
    (-(10**40),),
    ("",),
    ("\U0001f9ea" * 3,),
    (1.5,),
    (b"\x00",),
    ((1, (None, "x")), (1.0, (None, "x"))),
)
TIMES = 60


class AwkwardCounts(KeyedProcessFunction[Any, Any, Any]):
    """Counts rows by key, and fails once in the middle, behind a checkpoint."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield (value[1], count)


def key_of_row(row: tuple[str, int, str, int]) -> Any:
    number = row[3] % len(SAME_KEYS)
    equal = SAME_KEYS[number]
    return equal[row[1] // 10 % len(equal)]


class NumberOfKey(MapFunction[Any, Any]):
    """Adds which key a row has, and a large text to some rows."""

    def map(self, value: Any) -> Any:
        key = key_of_row(value)
        return (key, value[3] % len(SAME_KEYS), "x" * (64 << 20) if value[1] == 500 else "")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_awkward_keys_and_large_rows_survive_a_restore(backend: str, tmp_path: Path) -> None:
    with mini_cluster(1, 2) as cluster:
        gates, output = tmp_path / "gates", tmp_path / "output"
        gates.mkdir()
        source = GatedSource("l", str(gates), splits=2, rows=300)
        options = SETTINGS | {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "state.backend.type": backend,
        }
        env = cluster.get_execution_environment(options)
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").map(NumberOfKey())
        rows.key_by(lambda row: row[0]).process(AwkwardCounts()).sink_to(TransactionalFiles(str(output)))
        client = cluster.submit(env.get_job_graph("awkward"))
        wait_until(lambda: len(list((tmp_path / "checkpoints").glob("*/chk-*/_metadata"))) > 0)
        for pid in slot_workers():
            kill_if_there(pid)
        wait_until(lambda: client.get_job_details().result().restarts > 0)
        (gates / "fired").touch()
        client.get_job_execution_result().result(LIMIT)
        expected = Counter(row[3] % len(SAME_KEYS) for row in source.all_rows())
        counts = {
            number: sorted(c for n, c in CommittedFiles(output).rows() if n == number) for number in expected
        }
        assert counts == {number: list(range(1, times + 1)) for number, times in expected.items()}


# ---------------------------------------------------------------------- 39: stopped during a failover


def test_a_stop_during_a_failover_is_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    with mini_cluster(1, 2) as cluster:
        job = GatedTotals(cluster, tmp_path, **{"restart-strategy.fixed-delay.delay": "15 s"})
        job.until_completed()
        for pid in slot_workers():
            kill_if_there(pid)
        wait_until(lambda: job.client.get_job_status().result() is JobStatus.RESTARTING)
        with pytest.raises(CheckpointFailedError, match="RESTARTING"):
            job.client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(LIMIT)
        assert not list((tmp_path / "savepoints").glob("*/_metadata"))
        job.until_completed()
        job.ends_right()
