"""Faults on a real YARN that take longer than the suite may, and the nemesis by many seeds: the tests of
tests/yarn run with their parts for the soak, and each outcome becomes a row of a table.

Owner: the main thread of `bench/soak --yarn` or `--nemesis`; the tests bring up a cluster of their own. Rows go to
standard output as Markdown, for docs/faults.md.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/yarn"
NEMESIS = f"{TESTS}/faults/test_nemesis.py"
#: Seeds that one cluster of Hadoop serves: a failure is looked at before the next begin.
SEEDS_A_RUN = 4


@dataclass(frozen=True, slots=True)
class Row:
    """How one test ended."""

    name: str
    seconds: float
    outcome: str

    def __str__(self) -> str:
        today = datetime.date.today().isoformat()
        return f"| {today} | {self.name} | {self.seconds:.0f} s | {self.outcome} |"


def run_named(words: str = "") -> list[Row]:
    """The named faults that are left to the soak, or those whose names match `words`."""
    chosen = ["-k", words] if words else []
    return run_tests(["-m", "soak", *chosen, TESTS], {"YARROW_SOAK": "1"})


def run_nemesis(first_seed: int, seeds: int, seconds: float) -> Iterator[Row]:
    """Seeds one after the other, each over YARN and over standalone masters."""
    for first in range(first_seed, first_seed + seeds, SEEDS_A_RUN):
        last = min(first + SEEDS_A_RUN, first_seed + seeds)
        numbers = ",".join(str(seed) for seed in range(first, last))
        yield from run_tests(
            [NEMESIS], {"YARROW_NEMESIS_SEEDS": numbers, "YARROW_NEMESIS_SECONDS": f"{seconds:g}"}
        )


def run_tests(arguments: Sequence[str], variables: Mapping[str, str]) -> list[Row]:
    """Runs pytest in a process of its own, with further variables; a row for each test."""
    with tempfile.TemporaryDirectory(prefix="soak-yarn-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False)
        if not report.exists():
            return [Row(" ".join(arguments), 0.0, f"FAILED: pytest ended with {done.returncode}")]
        return rows_of(report.read_text("utf-8"))


def rows_of(report: str) -> list[Row]:
    """The rows of pytest's report in JUnit's form; a test that failed, and failed again after itself, is one."""
    rows: dict[str, Row] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        module = case.get("classname", "").rpartition(".")[2]
        name = f"{module} {case.get('name', '')}".strip()
        wrong = next((one for kind in ("failure", "error") for one in case.iter(kind)), None)
        skipped = next(case.iter("skipped"), None)
        if wrong is not None:
            outcome = f"FAILED: {(wrong.get('message') or '').splitlines()[0][:160]}"
        else:
            outcome = "skipped" if skipped is not None else "passed"
        known = rows.get(name)
        if known is None or not known.outcome.startswith("FAILED"):
            rows[name] = Row(name, float(case.get("time", "0")), outcome)
    return list(rows.values())


def print_rows(rows: Iterator[Row] | Sequence[Row]) -> int:
    """Prints them as they come; 1 when one failed, or there was none."""
    print("| date | test | took | outcome |\n| --- | --- | --- | --- |", flush=True)
    outcomes = []
    for row in rows:
        print(row, flush=True)
        outcomes.append(row.outcome)
    return 0 if outcomes and not any(outcome.startswith("FAILED") for outcome in outcomes) else 1
