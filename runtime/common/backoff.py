"""Backoff: the pause before the next attempt, which grows with each attempt up to a limit.

Owner: the caller that repeats attempts. Pure: it reads no clock and never waits; the caller does.
"""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    """The pauses between attempts: `first_seconds`, then each `factor` times the one before, at most `last_seconds`.

    A first pause that is longer than the last one stays as it is. Raises ValueError for a negative first
    pause or a factor below 1.
    """

    __slots__ = ("_factor", "_first_seconds", "_last_seconds", "_seconds")

    def __init__(self, first_seconds: float, last_seconds: float, factor: float = 2.0) -> None:
        if first_seconds < 0 or factor < 1:
            raise ValueError(
                f"pauses cannot grow from {first_seconds:g} s to {last_seconds:g} s by the factor {factor:g}"
            )
        self._first_seconds = first_seconds
        self._last_seconds = last_seconds
        self._factor = factor
        self._seconds = first_seconds

    @property
    def seconds(self) -> float:
        """The next result of `next_seconds`."""
        return self._seconds

    @property
    def is_longest(self) -> bool:
        """Whether the pauses do not grow any more."""
        return self._seconds >= self._last_seconds

    def next_seconds(self) -> float:
        """The pause before the next attempt; the one after that is longer."""
        seconds = self._seconds
        self._seconds = max(seconds, min(self._factor * seconds, self._last_seconds))
        return seconds

    def restore(self, seconds: float) -> None:
        """Continues with a pause that `seconds` returned before."""
        self._seconds = seconds

    def reset(self) -> None:
        """Begins with the first pause again, after a successful attempt."""
        self._seconds = self._first_seconds
