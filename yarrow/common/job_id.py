"""JobID: the 128 bits that name a job, written as 32 hexadecimal digits.

A value; ids are drawn by the runtime.
"""

from __future__ import annotations

import re

__all__ = ["JobID"]


class JobID:
    """The id of a job. Raises ValueError for text that is not 32 hexadecimal digits."""

    __slots__ = ("_hex",)

    def __init__(self, hex_digits: str) -> None:
        if re.fullmatch(r"[0-9a-fA-F]{32}", hex_digits) is None:
            raise ValueError(f"{hex_digits!r} is not a job id: it must have 32 hexadecimal digits")
        self._hex = hex_digits.lower()

    @staticmethod
    def from_bytes(raw: bytes) -> JobID:
        """Return the id made of these 16 bytes."""
        return JobID(raw.hex())

    def to_hex_string(self) -> str:
        """Return the 32 digits in lower case."""
        return self._hex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobID) and self._hex == other._hex

    def __lt__(self, other: JobID) -> bool:
        return self._hex < other._hex

    def __hash__(self) -> int:
        return hash(self._hex)

    def __str__(self) -> str:
        return self._hex

    def __repr__(self) -> str:
        return f"JobID({self._hex})"
