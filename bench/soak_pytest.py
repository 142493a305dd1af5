"""What the soak adds to pytest: each outcome is written down at once, a test has a limit of time, and the report of one
that failed, with the logs that it holds, stays in a file.

Loaded by `-p bench.soak_pytest` into the process that runs the tests, and told by variables what to do; owner: its main
thread. Must not know which tests these are.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from bench.soak_results import FAILED, PASSED

#: Where outcomes go, a line of JSON each; the folder of reports; seconds that setup, call and teardown each may take.
OUTCOMES, REPORTS, LIMIT = "YARROW_SOAK_OUTCOMES", "YARROW_SOAK_REPORTS", "YARROW_SOAK_LIMIT"
#: A test that catches what ends it is ended again after so many seconds.
_AGAIN = 30.0
_NO_FILE_NAME = re.compile(r"[^\w.,\[\]-]+")


def pytest_configure(config: pytest.Config) -> None:
    """Begins to write."""
    config.pluginmanager.register(
        Outcomes(Path(os.environ[OUTCOMES]), Path(os.environ[REPORTS]), float(os.environ[LIMIT]))
    )


def name_of(nodeid: str) -> str:
    """The module and the test, as the page of results has them."""
    file, _, test = nodeid.partition("::")
    return f"{Path(file).stem} {test.replace('::', '.')}".strip()


class Outcomes:
    """Writes what comes of tests; a test counts as one that failed when any of its parts did."""

    def __init__(self, outcomes: Path, reports: Path, limit: float) -> None:
        self._outcomes = outcomes
        self._reports = reports
        self._limit = limit
        self._seconds = 0.0
        self._outcome = PASSED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After setup, call and teardown of each test."""
        if report.when == "setup":
            self._seconds, self._outcome = 0.0, PASSED
        self._seconds += report.duration
        if report.failed:
            if not self._outcome.startswith(FAILED):
                self._outcome = f"{FAILED}: {_sentence(report)}"
            self._keep(report)
        elif report.skipped:
            self._outcome = f"skipped: {_sentence(report)}"
        if report.when == "teardown":
            self._write(name_of(report.nodeid), self._outcome, self._seconds, is_test=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read has no tests."""
        if report.failed:
            self._keep(report)
            self._write(report.nodeid, f"{FAILED}: {_sentence(report)}", 0.0, is_test=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Begun, and ended when it takes too long."""
        with self._limited("setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """As above."""
        with self._limited("test"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """As above; with the last test the clusters go as well."""
        with self._limited("teardown"):
            return (yield)

    @contextmanager
    def _limited(self, what: str) -> Iterator[None]:
        def end(number: int, frame: FrameType | None) -> None:
            pytest.fail(f"the {what} has not ended within {self._limit:g} s")

        former = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, self._limit, _AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, former)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._reports.mkdir(parents=True, exist_ok=True)
        name = _NO_FILE_NAME.sub("-", name_of(report.nodeid))[:200]
        parts = [report.longreprtext, *(f"== {title}\n{text}" for title, text in report.sections)]
        with open(self._reports / f"{name}.log", "a", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(parts) + "\n")

    def _write(self, name: str, outcome: str, seconds: float, is_test: bool) -> None:
        line = {"name": name, "seconds": round(seconds, 1), "outcome": outcome, "is_test": is_test}
        with open(self._outcomes, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _sentence(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first line of what a report says."""
    said = report.longrepr
    if isinstance(said, tuple):
        text = said[2].removeprefix("Skipped: ")
    else:
        crash = getattr(said, "reprcrash", None)
        text = crash.message if crash is not None else report.longreprtext
    part = f"{report.when}: " if isinstance(report, pytest.TestReport) and report.when == "teardown" else ""
    return part + (text.strip().splitlines() or ["no message"])[0][:160]
