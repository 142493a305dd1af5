"""`bench/busy` spins beside a command for as long as the command runs, and is the command for whoever started it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bench.case import ROOT
from tests.support.looks import LEAST

BUSY = Path(ROOT) / "bench" / "busy"
#: Seconds after which a process counts as one that never ends.
GRACE = 60.0
#: Tells that it runs, then runs until a line comes.
WAITING = "echo up; read line; exit 7"


def started(number: int, name: str) -> subprocess.Popen[str]:
    """`bench/busy` with a command that runs. Command lines of the processes that spin have `name`."""
    command = [str(BUSY), str(number), "sh", "-c", WAITING, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def spinning(name: str) -> list[psutil.Process]:
    """The processes that spin."""
    processes = psutil.process_iter(["cmdline"])
    lines = [(each, each.info["cmdline"] or []) for each in processes]
    return [each for each, line in lines if str(BUSY) in line and name in line]


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GRACE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(LEAST)


def test_processes_spin_while_the_command_runs_and_its_exit_status_is_handed_on(tmp_path: Path) -> None:
    with started(2, str(tmp_path)) as process:
        beside = spinning(str(tmp_path))
        assert len(beside) == 2
        at_first = [each.cpu_times().user for each in beside]
        until(
            lambda: all(
                each.cpu_times().user > before for each, before in zip(beside, at_first, strict=True)
            ),
            "each takes CPU time",
        )
        process.communicate("end\n")
    assert process.returncode == 7
    assert not psutil.wait_procs(beside, GRACE)[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_what_spins(tmp_path: Path, number: signal.Signals) -> None:
    with started(1, str(tmp_path)) as process:
        beside = spinning(str(tmp_path))
        process.send_signal(number)
        assert process.wait(GRACE) == -number
    assert len(beside) == 1
    assert not psutil.wait_procs(beside, GRACE)[1]
