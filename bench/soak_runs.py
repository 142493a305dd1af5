"""Runs of pytest for the soak: side by side, followed outcome by outcome, ended in order.

Owner: the main thread of `bench/soak`. A run that is cut short has told what it knew; whoever ends the soak ends its
tests, which take down what they brought up. What failed leaves its report in build/soak. Must not know which tests
these are.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from bench.soak_pytest import LIMIT, OUTCOMES, REPORTS
from bench.soak_results import FAILED, ROOT, Row

#: Name clusters that others may use as well.
SHARED = ("YARROW_HADOOP_DIRECTORY", "YARROW_SECURED_HADOOP_DIRECTORY")
#: Seconds that a test may take, and that the looks for outcomes are apart.
TEST_SECONDS = 900.0
_LOOK = 0.5
#: pytest's own: tests have failed.
_TESTS_FAILED = 1


def reports_folder() -> Path:
    """Where reports of what failed are, and what pytest prints."""
    return ROOT / "build" / "soak"


def run_tests(
    arguments: Sequence[str], variables: Mapping[str, str], limit: float = TEST_SECONDS
) -> Iterator[Row]:
    """Runs pytest in a process of its own, with further variables; a row for each test, as it ends."""
    return run_side_by_side([arguments], variables, limit)


def run_side_by_side(
    parts: Sequence[Sequence[str]], variables: Mapping[str, str], limit: float = TEST_SECONDS
) -> Iterator[Row]:
    """A process for each part, all at once. Raises KeyboardInterrupt after the last row when it was to end early."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        _Interrupted() as interrupted,
        ExitStack() as opened,
    ):
        runs = [
            opened.enter_context(_Run(part, variables, limit, Path(folder), number))
            for number, part in enumerate(parts)
        ]
        interrupted.hand_on(runs)
        while any([run.is_running() for run in runs]):
            for run in runs:
                yield from run.rows()
            interrupted.pause(_LOOK)
        for run in runs:
            yield from run.rows()
            if not interrupted.is_set:
                yield from run.verdict()
        if interrupted.is_set:
            raise KeyboardInterrupt


class _Run:
    """One process of pytest; in the end it is waited for, whatever comes."""

    def __init__(
        self, arguments: Sequence[str], variables: Mapping[str, str], limit: float, folder: Path, number: int
    ) -> None:
        self._arguments = arguments
        self._outcomes = folder / f"outcomes-{number}"
        self._read = 0
        self._told = 0
        reports = reports_folder()
        reports.mkdir(parents=True, exist_ok=True)
        self._printed = reports / f"pytest-{number + 1}.log"
        inherited = {name: value for name, value in os.environ.items() if name not in SHARED}
        own = {OUTCOMES: str(self._outcomes), REPORTS: str(reports), LIMIT: f"{limit:g}"}
        with open(self._printed, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", "-p", "bench.soak_pytest", *arguments],
                cwd=ROOT,
                env={**inherited, **variables, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A terminal's signals come here alone, and are handed on once.
                start_new_session=True,
            )

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.process.send_signal(signal.SIGINT)
        self.process.wait()

    def is_running(self) -> bool:
        return self.process.poll() is None

    def rows(self) -> Iterator[Row]:
        """Those that have come since the last look."""
        if not self._outcomes.exists():
            return
        with open(self._outcomes, encoding="utf-8") as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._read = file.tell()
                self._told += 1
                yield Row(**json.loads(line))

    def verdict(self) -> Iterator[Row]:
        """What the rows do not tell: it ended otherwise than by its tests."""
        status = self.process.returncode
        if status not in (0, _TESTS_FAILED) or not self._told:
            said = f"{FAILED}: pytest ended with {status} after {self._told} tests, see {self._printed}"
            yield Row(" ".join(self._arguments)[:160], 0.0, said, is_test=False)


class _Interrupted:
    """SIGTERM, SIGHUP and Ctrl-C while runs go on: each run is told once, and waited for."""

    def __init__(self) -> None:
        self.is_set = False
        self._runs: Sequence[_Run] = ()
        self._former: dict[signal.Signals, object] = {}
        self._pause = threading.Event()

    def __enter__(self) -> _Interrupted:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]

    def hand_on(self, runs: Sequence[_Run]) -> None:
        """To these; also what came before they were there."""
        self._runs = runs
        if self.is_set:
            self._tell()

    def pause(self, seconds: float) -> None:
        self._pause.wait(seconds)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # Tests that are told twice would not take down their cluster.
        first, self.is_set = not self.is_set, True
        if first:
            self._tell()

    def _tell(self) -> None:
        for run in self._runs:
            with contextlib.suppress(ProcessLookupError):
                run.process.send_signal(signal.SIGINT)
