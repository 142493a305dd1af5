"""NamedTimers: the timers of one JobMaster, each under a name.

Setting a timer replaces the former one of its name.

Owner: the JobMaster's loop. Must not know the purpose of a timer.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.runtime.common.timers import TimerHandle, Timers


class NamedTimers:
    """Timers that have not run yet, and the next turn of each repeated timer."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._set: dict[str, TimerHandle] = {}

    def is_set(self, name: str) -> bool:
        """Whether a timer of that name is pending."""
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
        """Cancels the timer of that name; no effect if there is none."""
        if (timer := self._set.pop(name, None)) is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Cancels all timers."""
        for timer in self._set.values():
            timer.cancel()
        self._set.clear()
