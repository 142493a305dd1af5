"""Rows of a gigabyte through exchange, state and checkpoints of both backends; values of two, which RocksDB just takes.

Owner: the main thread of `bench/soak --large-row` and `--largest-value`. These are more memory than a suite may take:
the test of rows is the suite's own with a larger row. Whether the machine has the memory is looked at before, since the
kernel's answer would be a killed worker.
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
#: The value, its bytes, a write batch and a write buffer, and a gigabyte for all else.
LARGEST_VALUE_MEBIBYTES = 9 * 1024
LARGEST_VALUE_TEST = "tests/unit/container/state/rocksdb/test_largest_value.py"


def available_mebibytes(meminfo: str) -> int:
    """What the kernel says could be used, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) // 1024
    return 0


def run_large_row(mebibytes: int = MEBIBYTES, meminfo: str | None = None) -> Iterable[Row]:
    """A row for each backend; one that says so where memory is short."""
    short = _short_of(MEMORY_FACTOR * mebibytes, NAME, meminfo)
    return short or run_tests([TEST, "-k", NAME], {"YARROW_LARGE_ROW_MEBIBYTES": str(mebibytes)})


def run_largest_value(meminfo: str | None = None) -> Iterable[Row]:
    """A row for each test of values as large as RocksDB takes them, and one byte larger."""
    short = _short_of(LARGEST_VALUE_MEBIBYTES, LARGEST_VALUE_TEST, meminfo)
    return short or run_tests([LARGEST_VALUE_TEST], {"YARROW_SOAK": "1"})


def _short_of(needed: int, name: str, meminfo: str | None) -> list[Row]:
    available = available_mebibytes(Path("/proc/meminfo").read_text() if meminfo is None else meminfo)
    if available >= needed:
        return []
    return [Row(name, 0.0, f"{FAILED}: needs {needed} MiB of memory, {available} MiB are free")]
