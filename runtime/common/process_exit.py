"""ProcessExitWatch: notices at once that other processes than children have ended: a parent, or its parent.

Owner: a thread of its own for each watch, so that a busy event loop delays nothing. Linux only (pidfd). It
decides nothing: the callback reacts to the end of a process.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

#: Most ancestors that are searched.
_MOST_ANCESTORS = 8


def process_name(pid: int, proc: Path = Path("/proc")) -> str:
    """The kernel's name of the process, at most 15 bytes; empty when it is gone."""
    try:
        return (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def parent_of(pid: int, proc: Path = Path("/proc")) -> int:
    """The parent's id; 0 when the process is gone."""
    try:
        # The second field is the name in brackets, which may contain anything: count from its end.
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def ancestors_to(name: str, pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The ancestors of `pid` up to the first with that name, nearest first; only the parent if none has the name."""
    found: list[int] = []
    current = pid
    for _ in range(_MOST_ANCESTORS):
        current = parent_of(current, proc)
        if current <= 1:
            break
        found.append(current)
        if process_name(current, proc) == name:
            return found
    return found[:1]


class ProcessExitWatch:
    """Calls back once, from its own thread, when the first of some processes has ended."""

    def __init__(self, pids: Sequence[int], on_exit: Callable[[int], None]) -> None:
        """A process that is already gone counts as one that ends now."""
        self._on_exit = on_exit
        self._descriptors: dict[int, int] = {}
        self._gone: int | None = None
        self._wake, self._stop = os.pipe()
        for pid in pids:
            try:
                self._descriptors[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                self._gone = pid
        self._thread = threading.Thread(target=self._watch, name="process exit watch", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stops watching; returns when the thread has ended, unless called from it."""
        os.close(self._stop)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        gone = self._gone if self._gone is not None else self._wait()
        for descriptor in (*self._descriptors, self._wake):
            os.close(descriptor)
        if gone is not None:
            self._on_exit(gone)

    def _wait(self) -> int | None:
        poll = select.poll()
        for descriptor in (*self._descriptors, self._wake):
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll():
            if descriptor in self._descriptors:
                return self._descriptors[descriptor]
        return None
