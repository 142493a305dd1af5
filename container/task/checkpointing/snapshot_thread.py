"""SnapshotThread: a worker's thread for blocking reads and writes of state, one after another, without the GIL.

Owner: itself. Any thread may call `run_soon` and `stop`. An action must not raise: it reports its own errors.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class SnapshotThread:
    """Runs actions in the order of their arrival."""

    def __init__(self) -> None:
        #: Each action with a flag whether it runs after `stop` too; None = the end.
        self._actions: queue.SimpleQueue[tuple[Callable[[], None], bool] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run_soon(self, action: Callable[[], None], *, at_the_end_too: bool = False) -> None:
        """Runs `action` behind the waiting ones; the first action starts the thread.

        `at_the_end_too`: a stop does not skip the action, which only cleans up.
        """
        with self._lock:
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="yarrow-snapshots", daemon=True)
                self._thread.start()
            self._actions.put((action, at_the_end_too))

    def stop(self, timeout: float) -> None:
        """Finishes the present action and all clean-ups, skips the rest, and waits at most `timeout` seconds."""
        with self._lock:
            self._stopped = True
            thread = self._thread
            self._actions.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            entry = self._actions.get()
            if entry is None:
                return
            action, at_the_end_too = entry
            if self._stopped and not at_the_end_too:
                continue
            try:
                action()
            except Exception:
                _log.exception("an action of the snapshot thread failed")
