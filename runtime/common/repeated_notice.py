"""What a state that lasts has to say: when it changes, when it has lasted for a while, and when it is over.

Owner: whoever holds the object. Pure; times are given, in seconds of a clock that never goes back.
"""

from __future__ import annotations


class RepeatedNotice:
    """The notices of one state, which is a text; "" = there is nothing to tell."""

    def __init__(self, again: float = 60.0, patience: float = 0.0) -> None:
        """Told is what has lasted for `patience`; what does not change is told again after `again`."""
        self._again = again
        self._patience = patience
        self._since: float | None = None
        self._told = ""
        self._told_at = 0.0

    def look(self, text: str, now: float) -> str | None:
        """The text, where it is to be told now; "" where one that was told is over; None = nothing is to be told."""
        if not text:
            was_told, self._told, self._since = bool(self._told), "", None
            return "" if was_told else None
        if self._since is None:
            self._since = now
        if now - self._since < self._patience:
            return None
        if text == self._told and now - self._told_at < self._again:
            return None
        self._told, self._told_at = text, now
        return text
