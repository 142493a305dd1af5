"""The bounded benchmark programs compute what a plain loop does, and so does the loop of their peer."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench import process_trees, repeated_runs
from bench.peers.key_loop import KeyLoop
from bench.programs import batch, batch_files
from bench.programs import batch_functions as functions
from tests.support.batch_runner import run_batch
from yarrow.datastream import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.runtime.graph.batch import batch_sql

RECORDS, KEYS = 5_000, 70


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(batch_files, "_KEPT", tmp_path)
    return tmp_path


def rows_of(job: str) -> list[Any]:
    graph = batch.graph_of(job, RECORDS, KEYS, collecting=True)
    return run_batch(graph, graph.configuration).rows()


@pytest.mark.parametrize("job", ["reduce", "process"])
def test_row_programs_count_the_records_of_each_key(job: str) -> None:
    assert sorted(rows_of(job)) == sorted(Counter(number % KEYS for number in range(RECORDS)).items())


def test_program_of_one_key_counts_all_records() -> None:
    assert rows_of("one-key") == [(0, RECORDS)]
    assert len(functions.record_of_one_key(7)[1]) == 100


@pytest.mark.parametrize("job", ["columns", "mapped-columns"])
def test_columnar_programs_aggregate_the_files(job: str, kept: Path) -> None:
    rows = rows_of(job)
    table = pq.read_table(batch_files.parquet_folder(RECORDS))
    assert sum(row[1] for row in rows) == sum(table["v"].to_pylist())
    assert sum(row[3] for row in rows) == RECORDS
    factor = table["v"].to_pylist() if job == "mapped-columns" else [1] * RECORDS
    assert max(row[2] for row in rows) == max(
        w * f for w, f in zip(table["w"].to_pylist(), factor, strict=True)
    )


def test_driver_of_columns_is_that_for_which_a_master_asks(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark SQL reads files of this size with all of Java's compilers: without them it takes three times as long."""
    compiler = "execution.batch.spark.full-compiler"
    monkeypatch.setattr(batch_sql, "_MUCH", 1)
    graph = batch.graph_of("columns", RECORDS, KEYS)
    options = batch.driver_options(graph, ["a.b=c=d"])
    assert options == {**batch_sql.driver_configuration(graph), "a.b": "c=d"}
    assert options[compiler] == "true"
    assert batch.driver_options(graph, [f"{compiler}=false"])[compiler] == "false"
    assert compiler not in batch.driver_options(batch.graph_of("reduce", RECORDS, KEYS), [])


def test_files_are_written_once(kept: Path) -> None:
    folder = batch_files.parquet_folder(10)
    times = [file.stat().st_mtime_ns for file in sorted(folder.iterdir())]
    assert batch_files.parquet_folder(10) == folder
    assert [file.stat().st_mtime_ns for file in sorted(folder.iterdir())] == times
    assert list(kept.iterdir()) == [folder]


def test_loop_of_the_peer_gives_the_sums() -> None:
    events = [functions.event_of(KEYS)(number) for number in range(RECORDS)]
    groups = [(key, [event for event in events if event[0] == key]) for key in range(KEYS)]
    found = KeyLoop(functions.SumAtTimer(), functions.time_of).results(groups)
    assert list(found) == list(Counter(number % KEYS for number in range(RECORDS)).items())


class _Telling(KeyedProcessFunction[str, tuple[str, int], Any]):
    """Tells what it sees, and sets timers out of their order and twice."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp(), self.seen.value()
        self.seen.update(value[1])
        for time in (9, 5, 9):
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield timestamp, ctx.get_current_key(), self.seen.value()


def test_loop_of_the_peer_orders_values_and_timers_and_forgets_a_key() -> None:
    loop = KeyLoop(_Telling(), lambda value: value[1])
    found = list(loop.results([("a", [("a", 3), ("a", 1)]), ("b", [("b", 2)])]))
    assert found == [
        *[(("a", 1), 1, None), (("a", 3), 3, 1), (5, "a", 3), (9, "a", 3)],
        *[(("b", 2), 2, None), (5, "b", 2), (9, "b", 2)],
    ]


def test_last_run_counts_and_the_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 4.0, 10.0, 12.0])
    monkeypatch.setattr(repeated_runs, "perf_counter", lambda: next(clock))
    runs: list[int] = []
    found = repeated_runs.measure(100, 2, lambda: runs.append(1))
    assert (len(runs), found["value"], found["first_s"], found["last_s"]) == (2, 50, 4.0, 2.0)
    # This process began before the first run.
    assert float(found["cold_s"]) > 0


def test_cpu_seconds_count_processes_that_have_ended() -> None:
    # The grandchild's parent does not wait for it, as Spark's forking process does not wait for its workers.
    spin = "import time\nwhile time.process_time() < 0.7: pass\nprint(flush=True); input()"
    child = (
        "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        f"subprocess.Popen([sys.executable, '-c', {spin!r}]); import time; time.sleep(600)"
    )
    watch = repeated_runs.CpuWatch()
    before = watch.seconds()
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline()
        while watch.seconds() - before < 0.7:
            pass
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        while len(process_trees.tree(parent.pid)) > 1:
            pass
        assert watch.seconds() - before >= 0.7
        parent.kill()
