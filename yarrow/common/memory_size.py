"""MemorySize:

an amount of memory as an immutable value. Usable from any thread; it never measures anything.
"""

from __future__ import annotations

import re
from functools import total_ordering

__all__ = ["MemorySize"]

_UNITS = {"": 1, "b": 1, "bytes": 1} | {
    label: 1 << shift
    for labels, shift in (
        (("k", "kb", "kibibytes"), 10),
        (("m", "mb", "mebibytes"), 20),
        (("g", "gb", "gibibytes"), 30),
        (("t", "tb", "tebibytes"), 40),
    )
    for label in labels
}


@total_ordering
class MemorySize:
    """A number of bytes. As in Flink, `kb`, `mb`, `gb` and `tb` are powers of 1024.

    Raises ValueError for a negative number.
    """

    __slots__ = ("_bytes",)

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise ValueError(f"an amount of memory cannot be negative: {bytes_size} bytes")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return an amount given in units of 1024 * 1024 bytes."""
        return MemorySize(mebi_bytes << 20)

    @staticmethod
    def parse(text: str) -> MemorySize:
        """Read the text of a configuration file, such as `1024m`, `1 gb` or a bare number of bytes.

        Raises ValueError, naming the text and the units, for anything else.
        """
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                f"{text!r} is not an amount of memory: write a whole number and b, kb, mb, gb or tb"
            )
        return MemorySize(int(match[1]) * _UNITS[match[2]])

    def get_bytes(self) -> int:
        """Return the amount in bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Return the amount in units of 1024 bytes, rounded down."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 2 bytes, rounded down."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 3 bytes, rounded down."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 4 bytes, rounded down."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: object) -> bool:
        return self._bytes < other._bytes if isinstance(other, MemorySize) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads back."""
        for label, shift in (("tb", 40), ("gb", 30), ("mb", 20), ("kb", 10)):
            if self._bytes and self._bytes % (1 << shift) == 0:
                return f"{self._bytes >> shift} {label}"
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self})"
