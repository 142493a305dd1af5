"""DiscoveryTimer: has an enumerator look for new splits at intervals, as long as the enumerator is open.

Owner: the enumerator's thread. Must not look itself, and must not catch what a look raises: the job fails by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class CallsLater(Protocol):
    """The clock of an enumerator: its context."""

    def call_later(self, seconds: float, action: Any) -> None:
        """Runs `action()` once after the delay, between other calls."""
        ...


class DiscoveryTimer:
    """The looks of one enumerator after its first one."""

    def __init__(self, context: CallsLater, seconds: float | None, look: Callable[[], object]) -> None:
        """`seconds` from the end of a look to the next one; None = there is no other look."""
        self._context = context
        self._look = look
        self.seconds = seconds
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """True when no look may begin any more."""
        return self._closed

    def begin(self) -> None:
        """Plan the next look. Call it behind the first one."""
        if self.seconds is not None and not self._closed:
            self._context.call_later(self.seconds, self._look_in_turn)

    def close(self) -> None:
        """End discovery: planned looks do nothing."""
        self._closed = True

    def _look_in_turn(self) -> None:
        if not self._closed:
            self._look()
            self.begin()
