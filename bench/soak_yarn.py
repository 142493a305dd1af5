"""Faults on a real YARN that take longer than the suite may, and the nemesis by many seeds: the tests of
tests/yarn run with their parts for the soak, and each outcome becomes a row.

Owner: the main thread of `bench/soak --yarn` or `--nemesis`. The tests bring up clusters of their own, whatever the
variables of the caller name: they kill daemons.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from bench.soak_results import FAILED, PASSED, ROOT, Row

TESTS = "tests/yarn"
NEMESIS = f"{TESTS}/faults/test_nemesis.py"
#: Seeds that one cluster of Hadoop serves: a failure is looked at before the next begin.
SEEDS_A_RUN = 4
#: Name clusters that others may use as well.
SHARED = ("YARROW_HADOOP_DIRECTORY", "YARROW_SECURED_HADOOP_DIRECTORY")


def run_named(words: str = "") -> list[Row]:
    """The named faults that are left to the soak, or those whose names match `words`."""
    return run_tests(["-m", "soak", *_chosen(words), TESTS], {"YARROW_SOAK": "1"})


def _chosen(words: str) -> list[str]:
    return ["-k", words] if words else []


def run_nemesis(first_seed: int, seeds: int, seconds: float, words: str = "") -> Iterator[Row]:
    """Seeds one after the other, each over YARN and over standalone masters, or where the names of the tests match
    `words`; rows name the seconds as well.
    """
    for first in range(first_seed, first_seed + seeds, SEEDS_A_RUN):
        last = min(first + SEEDS_A_RUN, first_seed + seeds)
        numbers = ",".join(str(seed) for seed in range(first, last))
        variables = {"YARROW_NEMESIS_SEEDS": numbers, "YARROW_NEMESIS_SECONDS": f"{seconds:g}"}
        for row in run_tests([*_chosen(words), NEMESIS], variables):
            yield replace(row, name=f"{row.name}, {seconds:g} s")


def run_tests(arguments: Sequence[str], variables: Mapping[str, str]) -> list[Row]:
    """Runs pytest in a process of its own, with further variables; a row for each test."""
    with tempfile.TemporaryDirectory(prefix="soak-yarn-") as folder:
        path = Path(folder) / "report.xml"
        status = _run([sys.executable, "-m", "pytest", "-q", f"--junitxml={path}", *arguments], variables)
        if not path.exists():
            return [Row(" ".join(arguments), 0.0, f"{FAILED}: pytest ended with {status}", is_test=False)]
        return rows_of(path.read_text("utf-8"))


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs it to its end, whatever comes: interrupted, the tests take down their cluster, and report what they know."""
    inherited = {name: value for name, value in os.environ.items() if name not in SHARED}
    running: subprocess.Popen[bytes] | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        if running is not None:
            running.send_signal(signal.SIGINT)

    # A terminal interrupts both at once; who ends this process alone means the tests as well.
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        running = subprocess.Popen(command, cwd=ROOT, env={**inherited, **variables})
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return running.wait()
    finally:
        signal.signal(signal.SIGTERM, former)


def rows_of(report: str) -> list[Row]:
    """The rows of pytest's report in JUnit's form; a test that failed, and failed again after itself, is one."""
    rows: dict[str, Row] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        module = case.get("classname", "").rpartition(".")[2]
        name = f"{module} {case.get('name', '')}".strip()
        wrong = next((one for kind in ("failure", "error") for one in case.iter(kind)), None)
        skipped = next(case.iter("skipped"), None)
        if wrong is not None:
            outcome = f"{FAILED}: {_sentence(wrong)}"
        elif skipped is not None:
            outcome = f"skipped: {_sentence(skipped)}"
        else:
            outcome = PASSED
        known = rows.get(name)
        if known is None or not known.outcome.startswith(FAILED):
            rows[name] = Row(name, float(case.get("time", "0")), outcome, is_test=bool(module))
    return list(rows.values())


def _sentence(element: ElementTree.Element) -> str:
    """The first line of what a report says of a test."""
    return (element.get("message") or "no message").splitlines()[0][:160]
