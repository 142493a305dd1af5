"""Processes of a service: started apart from the caller, and known again by number and moment of start.

Owner: the caller's thread. A process is never found by its name: a number that the system has given to
another process since does not match the recorded start and is left alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.services.errors import ServiceError
from yarrow.runtime.common.clock import SystemClock

_POLL_SECONDS = 0.05
_clock = SystemClock()


@dataclass(frozen=True)
class ProcessRecord:
    """A process that was started: its number, and when it started in the kernel's ticks since boot."""

    pid: int
    started: int


def start(command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> ProcessRecord:
    """Starts a process in a session of its own that outlives the caller and adds its output to `log`.

    It is no child of the caller: who ends before it leaves nothing to wait for.
    """
    launcher = ["/bin/sh", "-c", '"$@" </dev/null >>"$0" 2>&1 & echo $!', str(log), *command]
    done = subprocess.run(
        launcher,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    record = identify(int(done.stdout))
    if record is None:
        raise ServiceError(f"{command[0]} ended as soon as it was started; its output is in {log}")
    return record


def identify(pid: int) -> ProcessRecord | None:
    """The record of a process that lives now; None when there is none or it has ended and was not reaped."""
    try:
        # The name in brackets may hold anything: fields count from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], int(fields[19])
    return None if state in ("Z", "X") else ProcessRecord(pid, started)


def is_alive(record: ProcessRecord) -> bool:
    """Whether exactly this process lives (stopped by a signal counts as living)."""
    return identify(record.pid) == record


def is_stopped(record: ProcessRecord) -> bool:
    """Whether the process lives but was stopped by a signal."""
    try:
        return (
            Path(f"/proc/{record.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "Tt"
        )
    except OSError:
        return False


def send(record: ProcessRecord, number: signal.Signals) -> bool:
    """Sends a signal to exactly this process; False when it has ended."""
    if not is_alive(record):
        return False
    try:
        os.kill(record.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until_ended(records: Iterable[ProcessRecord], seconds: float) -> list[ProcessRecord]:
    """Waits for processes to end; those that live after `seconds`."""
    deadline = _clock.monotonic() + seconds
    living = [record for record in records if is_alive(record)]
    while living and _clock.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        living = [record for record in living if is_alive(record)]
    return living


def stop(records: Iterable[ProcessRecord], grace: float) -> None:
    """Asks processes to end, and kills those that have not after `grace` seconds.

    Raises ServiceError when one outlives even that.
    """
    asked = [record for record in records if send(record, signal.SIGTERM)]
    for record in asked:
        # One that was stopped cannot hear the request.
        send(record, signal.SIGCONT)
    killed = [record for record in wait_until_ended(asked, grace) if send(record, signal.SIGKILL)]
    left = wait_until_ended(killed, 10.0)
    if left:
        raise ServiceError(f"processes {[record.pid for record in left]} could not be killed")
