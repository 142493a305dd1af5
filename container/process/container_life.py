"""ContainerLife: ends this process when the shell that YARN started for its container is gone.

Owner: a thread of its own. YARN ends a container by signals to its session. Without this watch, a process
would stay behind if it left the session or if only its shell was killed. A NodeManager that ends does not end
its containers, so it is not watched.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import NoReturn, Protocol

from yarrow.runtime.common.process_exit import ProcessExitWatch

#: Seconds that workers have after the container's end, before this process ends by force.
GRACE = 0.5
LIMIT = 2.0


class EndsByForce(Protocol):
    """An endpoint that can end its process: a TaskExecutor, a SparkDriver."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        ...

    def finish_by_force(self, cause: str, grace: float) -> None:
        """Ends the process after at most `grace` seconds; call it on the loop."""
        ...


class ContainerLife:
    """A LifeWatch on the shell in front of this process; without such a shell it watches nothing."""

    def __init__(self, remove_files: Callable[[], None]) -> None:
        """`remove_files` is called before the process ends by force."""
        self._remove_files = remove_files
        self._stopped = threading.Event()
        self._executor: EndsByForce | None = None
        #: Guards the creation of the endpoint.
        self._lock = threading.Lock()
        parent = os.getppid()
        # A shell in our session is the container's own; a session leader has none in front of it.
        shells = [parent] if os.getsid(0) != os.getpid() and _session(parent) == os.getsid(0) else []
        self._watch = ProcessExitWatch(shells, self._gone) if shells else None

    def start(self) -> None:
        """Begins to watch."""
        if self._watch is not None:
            self._watch.start()

    def follow(self, executor: EndsByForce) -> None:
        """See LifeWatch."""
        with self._lock:
            self._executor = executor

    def stop(self) -> None:
        """Stops watching: the process ends by itself."""
        self._stopped.set()

    def _gone(self, pid: int) -> None:
        with self._lock:
            executor = self._executor
            if executor is None:
                if not self._stopped.is_set():
                    self._end_by_force()
                return
        try:
            executor.loop.call_soon_threadsafe(
                lambda: executor.finish_by_force("the shell of its container has ended", GRACE)
            )
        except RuntimeError:
            return  # The loop has closed: the process is ending.
        if not self._stopped.wait(LIMIT):
            self._end_by_force()

    def _end_by_force(self) -> NoReturn:
        self._remove_files()
        os._exit(1)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return 0
