"""Times of a program that runs the same plan several times in one Spark session: the last counts, the first is told.

The engine's bounded programs and their peers report by this module, so that both are measured the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from time import perf_counter

import psutil

from bench.process_trees import tree

#: Seconds between two looks at the processes: what a process used since the last look before its end is not seen.
_LOOK = 0.2


class CpuWatch:
    """Adds up the CPU seconds of this process and all below it, ended ones included.

    Spark's Python workers end without anybody who waits for them, so the kernel adds their time to nobody's.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.seconds()
            time.sleep(_LOOK)

    def seconds(self) -> float:
        """CPU seconds so far."""
        with self._lock:
            for pid in tree(os.getpid()):
                with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
                    process = psutil.Process(pid)
                    self._seen[pid, process.create_time()] = sum(process.cpu_times()[:2])
            return sum(self._seen.values())


def measure(records: int, runs: int, run: Callable[[], object]) -> dict[str, float | str]:
    """Runs `run` so many times; the rate of the last one, and what a cold start costs, as the object to print.

    `cold_s` are the seconds from the start of this process to the end of the first run. CPU seconds are those of this
    process and all below it.
    """
    started_s = psutil.Process().create_time()
    watch = CpuWatch()
    seconds: list[float] = []
    cpu: list[float] = []
    cold = cold_cpu = 0.0
    for number in range(runs):
        before, began = watch.seconds(), perf_counter()
        run()
        seconds.append(perf_counter() - began)
        cpu.append(watch.seconds() - before)
        if number == 0:
            cold, cold_cpu = time.time() - started_s, watch.seconds()
    return {
        "value": round(records / seconds[-1]),
        "unit": "records/s",
        "last_s": round(seconds[-1], 2),
        "last_cpu_s": round(cpu[-1], 2),
        "first_s": round(seconds[0], 2),
        "first_cpu_s": round(cpu[0], 2),
        "cold_s": round(cold, 2),
        "cold_cpu_s": round(cold_cpu, 2),
    }


def report(found: dict[str, float | str]) -> None:
    """Prints what bench/runner.py reads."""
    print(json.dumps(found))
