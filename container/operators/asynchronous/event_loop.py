"""EventLoopThread: the event loop on which the asynchronous functions of a worker run, in a thread of its own.

Any thread may call its methods. All operators of a process share one; it begins with the first of them and ends with
the last. It must not know operators. A heart beats on the loop, so that others notice when a function blocks it.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from collections.abc import Callable
from types import FrameType

from yarrow.container.protocol.failure import is_engine_file
from yarrow.runtime.common.clock import perf_counter

#: Seconds between two beats.
_BEAT_SECONDS = 0.25
#: Seconds that the end of the thread may take.
_END_SECONDS = 1.0
#: Files whose code is no user's: that of an idle loop is among them.
_OWN_FILES = (threading.__file__, selectors.__file__, asyncio.__file__.rpartition("__init__")[0])


class EventLoopThread:
    """A running event loop; `acquire` and `release` count its users."""

    _lock = threading.Lock()
    _shared: EventLoopThread | None = None
    _users = 0

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._beat_at = perf_counter()
        self._thread = threading.Thread(target=self._run, name="asynchronous functions", daemon=True)

    @classmethod
    def acquire(cls) -> EventLoopThread:
        """The thread of this process; each call needs a `release`."""
        with cls._lock:
            if cls._shared is None:
                cls._shared = EventLoopThread()
                cls._shared._thread.start()
            cls._users += 1
            return cls._shared

    @classmethod
    def release(cls) -> None:
        """Ends the thread when its last user has released it; a blocked one ends by itself later."""
        with cls._lock:
            cls._users -= 1
            if cls._users > 0 or cls._shared is None:
                return
            ended, cls._shared = cls._shared, None
        ended.call(ended.loop.stop)
        ended._thread.join(_END_SECONDS)

    def call(self, action: Callable[[], object]) -> None:
        """Runs `action` on the loop soon."""
        self.loop.call_soon_threadsafe(action)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._beat()
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _beat(self) -> None:
        self._beat_at = perf_counter()
        self.loop.call_later(_BEAT_SECONDS, self._beat)

    def blocked_seconds(self) -> float:
        """Seconds for which the loop has not turned; below 0 while it turns."""
        return perf_counter() - self._beat_at - _BEAT_SECONDS

    def present_line(self) -> str:
        """File, line and function of the user's code that the loop runs now; empty = it runs none."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        found: FrameType | None = None
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(_OWN_FILES) and not is_engine_file(name):
                found = frame
            frame = frame.f_back
        if found is None:
            return ""
        return f"{found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"
