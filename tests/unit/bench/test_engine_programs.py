"""The engine's benchmark programs compute what the peers' do, and report what they claim to measure."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from bench.case import ROOT, Program
from bench.cases import engine
from bench.process_trees import kill_tree, memory, running, tree
from bench.programs.latency import BUCKET_NS, BUCKETS, LatencyWriter, percentiles
from bench.programs.slow_sink import pressed_shares
from bench.runner import ProgramFailed, run_program


def checked(program: Program, size: int) -> dict[str, int]:
    answer: dict[str, int] = json.loads(run_program([*program.command(size), "--check"]).output)
    return answer


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("program", "kept"),
    [
        (engine.INTEGERS, 10_000),
        (engine.UNDECLARED, 10_000),
        (engine.OVER_TCP, 10_000),
        (engine.ORDERS, 10_000),
        (engine.STRINGS, 0),
        (engine.CHAIN, 10_000),
        (engine.REBALANCE, 20_000),
        (engine.ASYNC_CALLS, 20_000),
    ],
    ids=lambda value: value.name if isinstance(value, Program) else "",
)
def test_row_jobs_keep_what_the_bare_loop_keeps(program: Program, kept: int) -> None:
    assert checked(program, 20_000) == {"records": 20_000, "kept": kept}


@pytest.mark.cluster
def test_columnar_job_loses_no_row() -> None:
    assert checked(engine.columnar(7_000, 4_096, (1, 2)), 50_001) == {"rows": 50_001, "total": 50_001}


@pytest.mark.cluster
def test_latency_counts_the_records_behind_the_warm_up() -> None:
    command = [*engine.LATENCY.program.command(1), "--rate", "2000", "--warm-up", "1"]
    found = json.loads(run_program(command).output)
    # 4000 records, half of them before the warm-up's end; of the others every second sum is even.
    assert found["records"] == 1000
    assert 0 < found["p50"] <= found["p95"] <= found["p99"] <= found["max"]


@pytest.mark.cluster
def test_idle_memory_is_that_of_client_task_executor_template_and_two_workers() -> None:
    found = json.loads(run_program(engine.IDLE.program.command(0)).output)
    assert found["processes"] == 5
    assert found["value"] > 20


@pytest.mark.cluster
def test_scheduling_reports_both_sizes() -> None:
    found = json.loads(run_program([*engine.SCHEDULING.program.command(40), "--transport", "inproc"]).output)
    assert found["value"] > 0
    assert found["seconds_half"] > 0


@pytest.mark.cluster
def test_slow_map_measures_all_four_delays() -> None:
    found = json.loads(run_program([*engine.SLOW_MAP.program.command(1), "--barriers", "3"]).output)
    assert found["barrier"]["samples"] == 3
    assert found["cancel"]["samples"] == 2
    assert found["timer"]["samples"] > 0
    assert found["event"]["samples"] > 0
    # A barrier waits for a row of 20 ms at times, none for a batch of them.
    assert found["barrier"]["max"] < 10_000


@pytest.mark.cluster
def test_slow_sink_measures_memory_of_all_processes() -> None:
    found = json.loads(run_program(engine.SLOW_SINK.program.command(3)).output)
    assert found["memory_mb"] > 100
    assert found["value"] >= 0


def test_percentiles_are_upper_edges_of_buckets() -> None:
    one, other = [0] * (BUCKETS + 1), [0] * (BUCKETS + 1)
    one[0], other[9] = 98, 2
    at = percentiles([one, other])
    assert (at["p50"], at["p99"], at["max"]) == (BUCKET_NS / 1e6, 10 * BUCKET_NS / 1e6, 10 * BUCKET_NS / 1e6)


def test_latency_from_schedule_counts_the_time_a_source_was_held_up(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("latency") / "0.json"
    # 1000 records a second from one reader: one a millisecond.
    writer = LatencyWriter(file, 10, 1000.0, 0.0, 1)
    now = time.perf_counter_ns()
    # Record 0 was in time; record 1 was made just now though it was due 499 ms ago.
    writer.write([(0, 1, now - 500_000_000, 0), (1, 1, now, 1)], None)
    writer.close()
    stamped, scheduled = json.loads(file.read_text())
    assert sum(stamped[: 100_000_000 // BUCKET_NS]) == 1
    assert sum(scheduled[: 100_000_000 // BUCKET_NS]) == 0
    assert sum(scheduled) == 2


def test_back_pressure_is_counted_after_the_first_third_of_the_reports() -> None:
    looks = [{}, {"a": 0.0}, {"a": 900.0}, {"a": 100.0}]
    assert pressed_shares(looks) == {"a": 0.5}


@pytest.mark.slow
def test_program_that_hangs_is_killed_with_its_descendants() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        # The grandchild, in a session of its own, holds a connection for as long as it lives.
        inner = f"import socket,time; s=socket.create_connection({address!r}); time.sleep(600)"
        outer = f"import subprocess,sys; subprocess.run([sys.executable, '-c', {inner!r}], start_new_session=True)"
        server.setblocking(False)
        held: socket.socket | None = None
        # More on a busy machine, on which the grandchild may not have started before.
        for seconds in (1, 8, 60):
            with pytest.raises(ProgramFailed, match=f"had not ended after {seconds} s"):
                run_program([sys.executable, "-c", outer], timeout=seconds)
            with contextlib.suppress(BlockingIOError):
                held, _ = server.accept()
                break
        assert held is not None, "the grandchild has not started"
        with held:
            held.settimeout(60)
            assert held.recv(1) == b""


def test_children_that_a_program_starts_while_it_is_killed_end_too() -> None:
    # Each child keeps the program's output open.
    child = "if os.fork() == 0: time.sleep(60); os._exit(0)"
    starts = f"import os, time\nprint('up', flush=True)\nfor _ in range(2000):\n    {child}"
    process = subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    kill_tree(process.pid)
    assert process.communicate(timeout=30)[0] == ""


def test_running_ends_a_program_by_interrupt_and_kills_what_ignores_it() -> None:
    ignore = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ignoring = f"{ignore}; print('up', flush=True); time.sleep(600)"
    with running([sys.executable, "-c", ignoring], grace=0.5) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert tree(process.pid) == [process.pid]
        assert memory([process.pid], "Rss") >= memory([process.pid], "Pss") > 0
    assert not psutil.pid_exists(process.pid)
    assert process.returncode == -9


def test_no_part_of_the_engine_names_a_benchmark() -> None:
    root = ROOT
    files = subprocess.run(
        ["grep", "-rlE", r"(from|import) bench\b|DroppingSink|NumberColumns", "--include=*.py"]
        + [
            os.path.join(root, part)
            for part in ("runtime", "container", "am", "yarrow/common", "yarrow/datastream")
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert files.stdout == ""


def test_quick_sizes_are_single_and_small() -> None:
    from bench.runner import quickly

    quick = quickly(engine.KEYED_ROWS)
    for program in (quick.program, *quick.peers):
        assert len(program.sizes) == 1
        assert program.sizes[0] <= 2_000_000
    assert quickly(replace(engine.START)).program.sizes == (1,)
