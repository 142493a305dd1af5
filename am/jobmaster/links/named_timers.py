"""NamedTimers: the timers of one JobMaster, each under a name; one that is set again replaces the former.

Owner: the JobMaster's loop. Must not know what they are for.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.runtime.common.timers import TimerHandle, Timers


class NamedTimers:
    """Those that have not run; of a repeated one the next turn."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._set: dict[str, TimerHandle] = {}

    def is_set(self, name: str) -> bool:
        """Whether it will run."""
        return name in self._set

    def every(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` again and again."""

        def run() -> None:
            self._set[name] = self._timers.call_later(seconds, run)
            action()

        self._set[name] = self._timers.call_later(seconds, run)

    def after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` once."""

        def run() -> None:
            self._set.pop(name, None)
            action()

        self.cancel(name)
        self._set[name] = self._timers.call_later(seconds, run)

    def cancel(self, name: str) -> None:
        """It does not run; no effect where none is set."""
        if (timer := self._set.pop(name, None)) is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """None runs any more."""
        for timer in self._set.values():
            timer.cancel()
        self._set.clear()
