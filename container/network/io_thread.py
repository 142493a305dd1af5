"""The I/O thread of a worker: one selector over the data sockets.

Owner: itself; any thread may call `post` and `stop`. It moves bytes and headers only: decoding and user code
belong to task threads. A handler or an action must not block.
"""

from __future__ import annotations

import heapq
import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from yarrow.runtime.common.clock import perf_counter

_log = logging.getLogger(__name__)

#: Called with the selector's event mask.
Handler = Callable[[int], None]


class IoThread(threading.Thread):
    """A selector loop with a queue of actions from other threads."""

    def __init__(self, name: str = "yarrow-io") -> None:
        super().__init__(name=name, daemon=True)
        self._selector = selectors.DefaultSelector()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._selector.register(self._read_end, selectors.EVENT_READ, self._drain_wakeups)
        self._actions: deque[Callable[[], None]] = deque()
        #: The time, a number that orders equal times, and the action.
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._awake = False
        self._stopping = False

    # ------------------------------------------------------------- any thread

    def post(self, action: Callable[[], None]) -> None:
        """Runs `action` on this thread soon."""
        self._actions.append(action)
        if not self._awake and threading.current_thread() is not self:
            self._awake = True
            try:
                os.write(self._write_end, b"\0")
            except BlockingIOError:
                pass
            except OSError:
                if not self._stopping:
                    raise

    def stop(self) -> None:
        """Ends the loop; returns at once."""

        def end() -> None:
            self._stopping = True

        self.post(end)

    # ------------------------------------------------------------- this thread

    def register(self, sock: Any, events: int, handler: Handler) -> None:
        """Watches a socket."""
        self._selector.register(sock, events, handler)

    def modify(self, sock: Any, events: int, handler: Handler) -> None:
        """Changes the watched events of a socket; no effect on one that was closed meanwhile."""
        try:
            self._selector.modify(sock, events, handler)
        except (KeyError, ValueError):
            _log.debug("socket is no longer watched")

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` after that time; it cannot be cancelled."""
        self._number += 1
        heapq.heappush(self._timers, (perf_counter() + seconds, self._number, action))

    def unregister(self, sock: Any) -> None:
        """Stops watching a socket."""
        try:
            self._selector.unregister(sock)
        except (KeyError, ValueError):
            _log.debug("socket was not watched")

    def _drain_wakeups(self, _events: int) -> None:
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            return

    def _run_timers(self) -> float | None:
        """Runs due timers; returns the seconds to the next, None = there is none."""
        timers = self._timers
        while timers:
            left = timers[0][0] - perf_counter()
            if left > 0:
                return left
            heapq.heappop(timers)[2]()
        return None

    def run(self) -> None:
        try:
            while not self._stopping:
                self._awake = False
                timeout = 0 if self._actions else self._run_timers()
                events = self._selector.select(timeout)
                self._awake = True
                for key, mask in events:
                    key.data(mask)
                while self._actions:
                    self._actions.popleft()()
        finally:
            self._selector.close()
            os.close(self._read_end)
            os.close(self._write_end)
