"""Running programs as users do: `python job.py` in a process and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.embedded.waiting import wait_until

#: Seconds a program may take on a busy machine.
DEADLINE = 180.0
_ADDRESS = "JobManager Web Interface: "


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    status: int
    out: str
    #: But for the lines that tell the addresses of its clusters.
    err: str
    #: URLs of the pages that it told.
    addresses: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Lines of its standard output, sorted: tasks print in no order."""
        return sorted(self.out.splitlines())


class Program:
    """A program that runs, with temporary folders of its own."""

    def __init__(self, folder: Path, text: str, *arguments: str, **environment: str) -> None:
        #: Seconds after which it counts as hanging.
        self.limit = DEADLINE
        self.tmp = folder / "tmp"
        self.tmp.mkdir(exist_ok=True)
        script = folder / "job.py"
        script.write_text(text)
        inherited = {key: value for key, value in os.environ.items() if not key.endswith("_CONF_DIR")}
        self.process = subprocess.Popen(
            [sys.executable, *(arguments or (str(script),))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**inherited, "TMPDIR": str(self.tmp), **environment},
        )
        self._kept: list[psutil.Process] = []

    def read_line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def rest(self, seconds: float = 60.0) -> Callable[..., Any]:
        """Asks REST for the JSON at a path, by a method; its address is the first line of the program's errors.

        An answer may take `seconds`.
        """
        assert self.process.stderr is not None
        address = self.process.stderr.readline().rpartition(" ")[2].strip()

        def ask(path: str, method: str = "GET") -> Any:
            request = urllib.request.Request(f"{address}{path}", method=method)
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return json.loads(answer.read() or b"{}")

        return ask

    def processes(self) -> list[psutil.Process]:
        """All that it started, its TaskExecutors' workers among them."""
        self._kept = psutil.Process(self.process.pid).children(recursive=True)
        return self._kept

    def signal(self, number: signal.Signals) -> None:
        """As a terminal or `kill` does."""
        os.kill(self.process.pid, number)

    def wait(self) -> Outcome:
        """Its end; a program that hangs is killed and fails the test."""
        try:
            out, err = self.process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"the program did not end\n{out}\n{err}") from None
        lines = err.splitlines(keepends=True)
        told = [line for line in lines if line.startswith(_ADDRESS)]
        return Outcome(
            self.process.returncode,
            out,
            "".join(line for line in lines if line not in told),
            tuple(line.removeprefix(_ADDRESS).strip() for line in told),
        )

    def assert_nothing_left(self, seconds: float = DEADLINE) -> None:
        """No process after `seconds`."""
        _, alive = psutil.wait_procs(self._kept, timeout=seconds)
        assert not alive, f"left running: {alive}"

    def assert_no_files_left(self) -> None:
        """Nothing in its temporary folder."""
        wait_until(lambda: not list(self.tmp.iterdir()), lambda: f"left: {list(self.tmp.rglob('*'))}")


def run(folder: Path, text: str, **environment: str) -> Outcome:
    """Runs a program to its end and checks that it leaves nothing behind."""
    program = Program(folder, text, **environment)
    outcome = program.wait()
    program.assert_no_files_left()
    return outcome
