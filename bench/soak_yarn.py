"""Faults on a real YARN that take longer than the suite may, and the nemesis by many seeds: the tests of
tests/yarn run with their parts for the soak, and each outcome becomes a row.

Owner: the main thread of `bench/soak --yarn` or `--nemesis`. The tests bring up clusters of their own, whatever the
variables of the caller name: they kill daemons. Named faults run in two processes with a cluster each, since most of
their time is waiting; which test runs where is settled before, by what each took the last time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bench.soak_pytest import name_of
from bench.soak_results import FAILED, ROOT, Row
from bench.soak_runs import SHARED, run_side_by_side, run_tests

TESTS = "tests/yarn"
BOUNDED_NEMESIS = f"{TESTS}/batch/test_bounded_nemesis.py"
NEMESIS = (f"{TESTS}/faults/test_nemesis.py", BOUNDED_NEMESIS)
#: Seeds that one cluster of Hadoop serves: a failure is looked at before the next begin.
SEEDS_A_RUN = 4
PROCESSES = 2
#: Of a test that has no result yet.
UNKNOWN_SECONDS = 60.0
#: Seconds of a nemesis beyond its faults: waits for what they break, a job that ends, a cluster that comes up.
BEYOND_FAULTS = 900.0
_SOAK = {"YARROW_SOAK": "1"}


def run_named(
    words: str = "", known: Mapping[str, float] | None = None, processes: int = PROCESSES
) -> Iterator[Row]:
    """The named faults that are left to the soak, or those whose names match `words`. `known`: test -> seconds."""
    chosen = ["-m", "soak", f"--ignore={BOUNDED_NEMESIS}", *_chosen(words)]
    tests = _collected([*chosen, TESTS])
    if not tests:
        yield Row(" ".join(chosen), 0.0, f"{FAILED}: there is no such test", is_test=False)
        return
    yield from run_side_by_side(divided(tests, known or {}, processes), _SOAK)


def divided(tests: Sequence[str], known: Mapping[str, float], processes: int) -> list[list[str]]:
    """Parts of about the same length; a file, which shares what it has made, is never divided."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    seconds = {
        file: sum(known.get(name_of(test), UNKNOWN_SECONDS) for test in of_file)
        for file, of_file in files.items()
    }
    parts: list[list[str]] = [[] for _ in range(processes)]
    taken = [0.0] * processes
    for file in sorted(files, key=lambda file: -seconds[file]):
        shortest = taken.index(min(taken))
        parts[shortest].append(file)
        taken[shortest] += seconds[file]
    # Files of one folder one after the other: they share a session.
    return [[test for file in sorted(part) for test in files[file]] for part in parts if part]


def _collected(arguments: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name not in SHARED}, **_SOAK},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "::" in line and line.startswith(f"{TESTS}/")]


def _chosen(words: str) -> list[str]:
    return ["-k", words] if words else []


def run_nemesis(first_seed: int, seeds: int, seconds: float, words: str = "") -> Iterator[Row]:
    """Seeds one after the other, each over YARN, over standalone masters and over a bounded job, or where the names of
    the tests match `words`; rows name the seconds as well.
    """
    for first in range(first_seed, first_seed + seeds, SEEDS_A_RUN):
        last = min(first + SEEDS_A_RUN, first_seed + seeds)
        numbers = ",".join(str(seed) for seed in range(first, last))
        variables = {"YARROW_NEMESIS_SEEDS": numbers, "YARROW_NEMESIS_SECONDS": f"{seconds:g}"}
        for row in run_tests([*_chosen(words), *NEMESIS], {**variables, **_SOAK}, seconds + BEYOND_FAULTS):
            yield replace(row, name=f"{row.name}, {seconds:g} s")
