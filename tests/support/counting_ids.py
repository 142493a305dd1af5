"""CountingIdFactory: tests know the identifiers beforehand.

Owner: whoever makes it.
"""

from __future__ import annotations


class CountingIdFactory:
    """Makes the identifiers 1, 2, 3 ... in hexadecimal, for tests."""

    def __init__(self) -> None:
        self._last = 0

    def hex_id(self) -> str:
        self._last += 1
        return f"{self._last:032x}"
