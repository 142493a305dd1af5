"""Metrics of this very process, under the names Flink has for a JVM's.

Owner: any thread; reads the process table. Heap = resident memory, non-heap = the part of it that is mapped from files
(code and libraries), garbage collection = Python's. A maximum of -1 is Flink's way to say that there is none.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from yarrow.runtime.metrics import garbage_time


@functools.cache
def _this_process() -> Any:
    """The same object each time: its CPU load covers the time since the last request."""
    import psutil  # on first use: start-up does not need it

    return psutil.Process()


def physical_memory() -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def process_metrics(memory_limit: int | None = None) -> dict[str, float]:
    """Present values: sizes in bytes, CPU time in nanoseconds.

    `memory_limit` is the number of bytes that the process may use; None = all memory of the machine.
    """
    process = _this_process()
    with process.oneshot():
        cpu = process.cpu_times()
        memory = process.memory_info()
        descriptors = process.num_fds()
        load = process.cpu_percent()
    return {
        "Status.JVM.CPU.Load": load / 100 / (os.cpu_count() or 1),
        "Status.JVM.CPU.Time": (cpu.user + cpu.system) * 1e9,
        "Status.JVM.Memory.Heap.Used": memory.rss,
        "Status.JVM.Memory.Heap.Committed": memory.rss,
        "Status.JVM.Memory.Heap.Max": physical_memory() if memory_limit is None else memory_limit,
        "Status.JVM.Memory.NonHeap.Used": memory.shared,
        "Status.JVM.Memory.NonHeap.Committed": memory.shared,
        "Status.JVM.Memory.NonHeap.Max": -1,
        "Status.JVM.Memory.Direct.Count": 0,
        "Status.JVM.Memory.Direct.MemoryUsed": 0,
        "Status.JVM.Memory.Direct.TotalCapacity": 0,
        "Status.JVM.Memory.Mapped.Count": 0,
        "Status.JVM.Memory.Mapped.MemoryUsed": 0,
        "Status.JVM.Memory.Mapped.TotalCapacity": 0,
        "Status.JVM.Threads.Count": threading.active_count(),
        "Status.JVM.FileDescriptor.Open": descriptors,
        **garbage_time.of_this_process().metrics(),
    }
