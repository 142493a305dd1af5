"""Memory is read as PSS and summed; past the budget the largest process is named once."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from yarrow.container.supervisor.process_watch import (
    MemoryReading,
    ProcessWatch,
    read_memory,
    read_pss,
    sample_process,
)
from yarrow.runtime.common.clock import ManualClock

PAGE = os.sysconf("SC_PAGE_SIZE")


def write_process(proc: Path, pid: int, pss_mb: int, ticks: int = 0) -> None:
    """A process whose memory is its own, so that all that is resident counts."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True, exist_ok=True)
    (folder / "fd" / "0").touch()
    (folder / "smaps_rollup").write_text(
        f"0-f ---p [rollup]\nRss: 9 kB\nPss:  {pss_mb * 1024} kB\nPss_File: 4096 kB\n"
    )
    (folder / "statm").write_text(f"99999 {(pss_mb << 20) // PAGE} 5 1 0 9 0")
    fields = ["S"] + ["0"] * 10 + [str(ticks), "0"] + ["0"] * 4 + ["3"]
    (folder / "stat").write_text(f"{pid} (odd) name) {' '.join(fields)}")


def test_own_process_is_read() -> None:
    pss = read_pss(os.getpid())
    assert pss is not None
    assert 1 << 20 < pss < 4 << 30
    reading = read_memory(os.getpid())
    assert reading is not None
    assert reading.resident >= reading.pss
    sample = sample_process("me", os.getpid(), reading)
    assert sample is not None
    assert sample.threads >= 1
    assert sample.descriptors >= 3


def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    watch = ProcessWatch(100 << 20, ManualClock(), proc=tmp_path)
    write_process(tmp_path, 1, 10)
    watch.sample([("supervisor", 1), ("gone", 2)])
    assert watch.used == 10 << 20


def test_largest_is_named_once_when_the_budget_is_nearly_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ProcessWatch(100 << 20, ManualClock(), proc=tmp_path)
    processes = [("supervisor", 1), ("worker of slot 0", 2)]
    write_process(tmp_path, 1, 20)
    with caplog.at_level(logging.WARNING):
        for pss, warnings in [(60, 0), (75, 1), (76, 1), (10, 1), (80, 2)]:
            write_process(tmp_path, 2, pss)
            watch.sample(processes)
            assert len(caplog.records) == warnings
    assert "95 of 100 MB" in caplog.records[0].message
    assert "worker of slot 0 (pid 2) with 75 MB" in caplog.records[0].message


def test_full_readings_take_at_most_a_hundredth_of_the_time(tmp_path: Path) -> None:
    clock = ManualClock()
    cost = 0.05
    read: list[int] = []

    def slowly(pid: int, proc: Path) -> MemoryReading | None:
        clock.advance(cost)
        read.append(pid)
        return read_memory(pid, proc)

    watch = ProcessWatch(1 << 40, clock, proc=tmp_path, read=slowly)
    write_process(tmp_path, 1, 10)
    began = clock.monotonic()
    for second in range(1000):
        watch.sample([("a", 1)])
        clock.advance(1.0)
        assert cost * len(read) <= 0.01 * (clock.monotonic() - began) + cost, second
    assert len(read) == 200
    # As memory grows, readings become dearer and rarer.
    cost = 0.5
    watch.sample([("a", 1)])
    read.clear()
    for _ in range(49):
        clock.advance(1.0)
        watch.sample([("a", 1)])
    assert read == []
    clock.advance(1.0)
    watch.sample([("a", 1)])
    assert read == [1]


def test_growth_between_full_readings_counts_and_a_new_process_is_read_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    def slowly(pid: int, proc: Path) -> MemoryReading | None:
        clock.advance(1.0)
        return read_memory(pid, proc)

    watch = ProcessWatch(100 << 20, clock, proc=tmp_path, read=slowly)
    write_process(tmp_path, 1, 20)
    watch.sample([("a", 1)])
    # Not read again; statm alone tells of it.
    write_process(tmp_path, 1, 50)
    (tmp_path / "1" / "smaps_rollup").write_text("not read")
    watch.sample([("a", 1)])
    assert watch.used == 50 << 20
    write_process(tmp_path, 2, 45)
    with caplog.at_level(logging.WARNING):
        watch.sample([("a", 1), ("b", 2)])
    assert watch.used == 95 << 20
    assert "the largest process is a (pid 1) with 50 MB" in caplog.text
    # Both readings, of a second each, have put off the next one by 200 s.
    clock.advance(196.0)
    watch.sample([("a", 1), ("b", 2)])
    assert watch.used == 95 << 20
    write_process(tmp_path, 1, 30)
    (tmp_path / "1" / "statm").unlink()
    clock.advance(3.0)
    watch.sample([("a", 1), ("b", 2)])
    assert watch.used == 45 << 20


def test_metrics_bear_flinks_names(tmp_path: Path) -> None:
    clock = ManualClock()
    watch = ProcessWatch(100 << 20, clock, proc=tmp_path)
    second = os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, 1, 10, ticks=second)
    watch.sample([("a", 1)])
    clock.advance(2.0)
    write_process(tmp_path, 1, 10, ticks=2 * second)
    watch.sample([("a", 1)])
    worker = {"Status.JVM.GarbageCollector.All.Time": 7.0, "Status.JVM.Memory.Heap.Used": 1.0, "arrow": 2.0}
    own = watch.metrics()["Status.JVM.GarbageCollector.All.Time"]
    values = watch.metrics([worker, worker])
    assert values["Status.JVM.Memory.Heap.Used"] == 10 << 20
    assert values["Status.JVM.Memory.Heap.Max"] == 100 << 20
    assert values["Status.JVM.Threads.Count"] == 3
    assert values["Status.JVM.FileDescriptor.Open"] == 1
    assert values["Status.JVM.CPU.Load"] == pytest.approx(0.5 / (os.cpu_count() or 1))
    # A collection of this process may come between.
    assert values["Status.JVM.GarbageCollector.All.Time"] >= own + 14.0
    assert values["Status.JVM.Memory.NonHeap.Used"] == 4 << 20
    assert values["arrow"] == 4.0


def test_a_lack_of_memory_is_told_with_the_setting() -> None:
    own = [("self", os.getpid())]
    text = ProcessWatch(1 << 20, ManualClock()).shortage(own)
    assert "may use 1 MB" in text and "taskmanager.memory.process.size" in text
    assert ProcessWatch(1 << 50, ManualClock()).shortage(own) == ""


def test_what_was_used_counts_when_the_processes_are_gone() -> None:
    watch = ProcessWatch(1 << 20, ManualClock())
    watch.sample([("self", os.getpid())])
    assert watch.shortage([]) != ""
