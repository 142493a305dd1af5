"""Rows of a gigabyte through exchange, keyed state and checkpoints of both backends: more memory than a suite may take.

Owner: the main thread of `bench/soak --large-row`. The test is the suite's own with a larger row; whether the machine
has the memory is looked at before, since the kernel's answer would be a killed worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.soak_results import FAILED, Row
from bench.soak_runs import run_tests

MEBIBYTES = 1024
#: Five times the row in each of two workers.
MEMORY_FACTOR = 10
TEST = "tests/cluster/embedded/test_large_messages.py"
NAME = "test_a_row_of_300_megabytes"


def available_mebibytes(meminfo: str) -> int:
    """What the kernel says could be used, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) // 1024
    return 0


def run_large_row(mebibytes: int = MEBIBYTES, meminfo: str | None = None) -> Iterable[Row]:
    """A row for each backend; one that says so where memory is short."""
    available = available_mebibytes(Path("/proc/meminfo").read_text() if meminfo is None else meminfo)
    needed = MEMORY_FACTOR * mebibytes
    if available < needed:
        return [Row(NAME, 0.0, f"{FAILED}: needs {needed} MiB of memory, {available} MiB are free")]
    return run_tests([TEST, "-k", NAME], {"YARROW_LARGE_ROW_MEBIBYTES": str(mebibytes)})
