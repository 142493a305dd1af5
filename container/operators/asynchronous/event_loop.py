"""EventLoopThread: the event loop on which the asynchronous functions of a worker run, in a thread of its own.

Any thread may call its methods. The operators of a process that want the same kind of loop share a thread. It begins
with the first of them and ends with the last. It must not know operators. A heart beats on the loop, so that others
notice when a function blocks it. uvloop is imported with the first operator: no other process needs it.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import ClassVar

from yarrow.container.protocol.failure import is_engine_file
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options.python import EventLoopKind

#: Seconds between two beats.
_BEAT_SECONDS = 0.25
#: Seconds that the end of the thread may take.
_END_SECONDS = 1.0
#: Files whose code is no user's: that of an idle loop is among them.
_OWN_FILES = (threading.__file__, selectors.__file__, asyncio.__file__.rpartition("__init__")[0])

_logger = logging.getLogger(__name__)


def new_event_loop(kind: EventLoopKind) -> asyncio.AbstractEventLoop:
    """A loop of that kind; asyncio's own one where uvloop cannot be imported."""
    if kind is EventLoopKind.UVLOOP:
        try:
            import uvloop
        except ImportError as error:
            _logger.info("asynchronous functions run on the loop of asyncio: uvloop is not usable: %s", error)
        else:
            found: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return found
    return asyncio.new_event_loop()


class EventLoopThread:
    """A running event loop; `acquire` and `release` count its users."""

    _lock = threading.Lock()
    #: The running threads of this process.
    _running: ClassVar[dict[EventLoopKind, EventLoopThread]] = {}

    def __init__(self, kind: EventLoopKind) -> None:
        self.loop = new_event_loop(kind)
        self._kind = kind
        self._users = 0
        self._beat_at = perf_counter()
        self._thread = threading.Thread(target=self._run, name="asynchronous functions", daemon=True)

    @classmethod
    def acquire(cls, kind: EventLoopKind) -> EventLoopThread:
        """The thread of this process for that kind of loop; each call needs a `release`."""
        with cls._lock:
            found = cls._running.get(kind)
            if found is None:
                found = EventLoopThread(kind)
                # A thread that the system refuses is not found again.
                found._thread.start()
                cls._running[kind] = found
            found._users += 1
            return found

    def release(self) -> None:
        """Ends the thread when its last user has released it; a blocked one ends by itself later."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            del self._running[self._kind]
        self.call(self.loop.stop)
        self._thread.join(_END_SECONDS)

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
