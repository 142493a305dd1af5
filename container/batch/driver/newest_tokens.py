"""NewestTokens: the delegation tokens that a SparkDriver was given last, for the processes of its executors.

Owner: any thread. The Python processes of an executor share the token file of its container, and each of them writes
the file. Must not show a token in a text.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class NumberedTokens(NamedTuple):
    """The content of a token file, and which one it is; the number 0 has no content."""

    number: int
    content: bytes


class NewestTokens:
    """The newest tokens of one driver."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest = NumberedTokens(0, b"")

    @property
    def newest(self) -> NumberedTokens:
        """The tokens that came last."""
        return self._newest

    def put(self, content: bytes) -> None:
        """Takes newer tokens; the same ones again have no effect."""
        with self._changed:
            if content != self._newest.content:
                self._newest = NumberedTokens(self._newest.number + 1, content)
                self._changed.notify_all()

    def wait_for_newer(self, number: int, seconds: float) -> NumberedTokens | None:
        """Waits so long for newer tokens than those of that number; None if none come."""
        with self._changed:
            return (
                self._newest
                if self._changed.wait_for(lambda: self._newest.number > number, seconds)
                else None
            )
