"""What a process and all its descendants hold in memory, and how such a tree is ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil


def tree(pid: int) -> list[int]:
    """The process and all its descendants, sessions of their own included."""
    try:
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def memory(pids: list[int], kind: str) -> int:
    """Bytes of all processes together: `Rss`, or `Pss`, in which shared pages count once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # ended meanwhile
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))
    return total


def _is_still(process: psutil.Process) -> bool:
    """True if the process has stopped or ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True


def kill_tree(pid: int) -> None:
    """Kills the process and all its descendants, and waits for them."""
    members: dict[int, psutil.Process] = {}
    # A stopped process starts no other one. The tree is whole when all that it names are stopped.
    while found := [each for each in tree(pid) if each not in members]:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                members[each] = psutil.Process(each)
                members[each].suspend()
        while not all(map(_is_still, members.values())):
            time.sleep(0.001)  # A process takes the signal when its call of the system returns.
    for process in members.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([process for process in members.values() if process.pid != pid], timeout=5)


@contextlib.contextmanager
def running(command: list[str], grace: float = 15.0) -> Iterator[subprocess.Popen[str]]:
    """The program, its standard output piped; at the end of the block it gets Ctrl-C, and whoever is left is killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        members = [psutil.Process(pid) for pid in tree(process.pid) if psutil.pid_exists(pid)]
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, left = psutil.wait_procs(members, timeout=grace)
        for member in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
