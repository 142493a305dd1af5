"""RepeatedNotice: decides when to report a lasting state: at its change, after a while, and at its end.

Owner: the holder of the object. Pure; times are passed in, in seconds of a clock that never goes back.
"""

from __future__ import annotations


class RepeatedNotice:
    """The notices of one state, which is a text; "" = the state is normal."""

    def __init__(self, again: float = 60.0, patience: float = 0.0) -> None:
        """A state is reported after `patience` seconds, and again every `again` seconds while it stays the same."""
        self._again = again
        self._patience = patience
        self._since: float | None = None
        self._told = ""
        self._told_at = 0.0

    def look(self, text: str, now: float) -> str | None:
        """The text if it must be reported now; "" if a reported state is over; None = nothing to report."""
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
