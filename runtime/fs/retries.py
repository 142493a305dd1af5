"""Repetition of requests to storage that restarts, fails over or does not take writes yet.

Owner: any thread; blocking, for a bounded time. The caller knows which failures pass and which requests may be
sent twice: it raises TransientError for these.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import FileSystemError

T = TypeVar("T")
_log = logging.getLogger(__name__)

#: Seconds before the first repetition; doubled each time up to the last.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0


class TransientError(FileSystemError):
    """A failure after which the same request may succeed."""


#: Listeners of repetitions: the path of a folder, and the function to call.
_listeners: set[tuple[str, Callable[[str], None]]] = set()
_listeners_lock = threading.Lock()


@contextlib.contextmanager
def listening(directory: str, listener: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `listener` hears of failed requests that are about to be tried again.

    It gets the reason of each failure below `directory`, from any thread. It must neither block nor raise.
    """
    entry = (_plain(directory), listener)
    with _listeners_lock:
        _listeners.add(entry)
    try:
        yield
    finally:
        with _listeners_lock:
            _listeners.discard(entry)


def _plain(path: str) -> str:
    """Without scheme, host and outer slashes: one folder may be named with a host and without."""
    return (path.partition("://")[2].partition("/")[2] if "://" in path else path).strip("/")


def _tell(reason: str, paths: Sequence[str]) -> None:
    plain = [_plain(path) for path in paths]
    with _listeners_lock:
        concerned = [
            listener
            for folder, listener in _listeners
            if folder and any(f"{path}/".startswith(f"{folder}/") for path in plain)
        ]
    for listener in concerned:
        listener(reason)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class Retries(msgspec.Struct, frozen=True):
    """How long requests are repeated, and the source of the pauses."""

    #: From the first attempt to the last; 0 = one attempt.
    total_seconds: float
    #: The key to name in the error.
    key: str
    clock: Clock = SystemClock()
    wait: Callable[[float], None] = _wait

    def run(self, attempt: Callable[[int], T], *paths: str) -> T:
        """Calls `attempt(number of failures so far)` until it returns, raises another error, or time is over.

        `paths`: what the request is for; who listens to a folder above hears of repetitions. Raises FileSystemError
        at the end, which says for how long it was tried.
        """
        begin = self.clock.monotonic()
        backoff, failures = Backoff(_FIRST_PAUSE, _LAST_PAUSE), 0
        while True:
            try:
                return attempt(failures)
            except TransientError as error:
                failures += 1
                left = begin + self.total_seconds - self.clock.monotonic()
                if left <= 0:
                    tried = self.clock.monotonic() - begin
                    raise FileSystemError(
                        f"{error}; tried {failures} times in {tried:.1f} s ({self.key} is"
                        f" {self.total_seconds:g} s)"
                    ) from error
                if failures == 1:
                    _log.info("%s: the request is repeated for up to %g s", error, self.total_seconds)
                _tell(str(error), paths)
            # The last attempt is made when the time ends, not a pause before.
            self.wait(min(backoff.next_seconds(), left))
