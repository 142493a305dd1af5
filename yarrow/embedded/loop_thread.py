"""LoopThread: the one daemon thread whose event loop hosts every embedded control plane of this process.

Owner: any thread may submit work; the work itself runs on the loop. No signal handlers here: Ctrl-C belongs
to the user's thread. A forked child of this process gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_shared: LoopThread | None = None


class LoopThread:
    """An event loop that runs for ever in a daemon thread."""

    def __init__(self, name: str = "yarrow-cluster") -> None:
        self.loop = asyncio.new_event_loop()
        self.blocking = BlockingPool(self.loop)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @staticmethod
    def shared() -> LoopThread:
        """The loop of this process, started at the first call."""
        global _shared
        with _lock:
            if _shared is None or not _shared.is_usable:
                _shared = LoopThread()
            return _shared

    @property
    def is_usable(self) -> bool:
        """False in a forked child, which has the object but not the thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts `work` on the loop; any thread except the loop's own may wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the loop and waits for its result; KeyboardInterrupt cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class BlockingPool:
    """Threads for `asyncio.to_thread` of the shared loop: they end when the last cluster has ended.

    The loop's own default pool would keep its threads for ever, which delays the end of the interpreter.
    Owner: the shared loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._pool: ThreadPoolExecutor | None = None

    def acquire(self) -> None:
        """Counts a beginning cluster."""
        self._users += 1
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="yarrow-blocking")
            self._loop.set_default_executor(self._pool)

    def release(self) -> None:
        """Counts an ended cluster, which makes no blocking call any more."""
        self._users -= 1
        if self._users == 0 and self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
