"""Waits until daemons serve, and shows the end of the log of one that does not.

Owner: the caller's thread. What it takes to serve is the caller's knowledge. Nothing is started or stopped here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.services.errors import NotReadyError
from yarrow.runtime.common.clock import SystemClock

_POLL_SECONDS = 0.2
_TAIL_BYTES = 3000
_clock = SystemClock()


def wait_until_serving(
    daemons: Sequence[str],
    seconds: float,
    what_is_missing: Callable[[str], str | None],
    is_alive: Callable[[str], bool],
    log_of: Callable[[str], Path],
) -> None:
    """Waits until `what_is_missing` is None for all daemons.

    Raises NotReadyError with the end of a daemon's log as soon as one has ended, or when `seconds` are over.
    """
    deadline = _clock.monotonic() + seconds
    waiting = list(daemons)
    while waiting:
        ended = next((name for name in waiting if not is_alive(name)), None)
        if ended is not None:
            raise NotReadyError(f"{ended} has ended; the end of {log_of(ended)}:\n{tail(log_of(ended))}")
        missing = {name: what_is_missing(name) for name in waiting}
        waiting = [name for name in waiting if missing[name] is not None]
        if waiting and _clock.monotonic() > deadline:
            name = waiting[0]
            raise NotReadyError(
                f"{name} does not serve after {seconds:.0f} s: {missing[name]}; the end of {log_of(name)}:\n"
                f"{tail(log_of(name))}"
            )
        if waiting:
            time.sleep(_POLL_SECONDS)


def tail(log: Path, size: int = _TAIL_BYTES) -> str:
    """The last bytes of a file; empty where there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
