"""MemorySize and Duration, the only ones: programs, configuration and engine use the same values and the same parser.

Owner: any thread; immutable values without I/O or clock. Parsing is exact (integers, never floats), and
`parse(str(x)) == x` holds for every value that is not negative.
The units are those of Flink's documentation of MemorySize and
Duration values: a size without unit is in bytes, a duration without unit in milliseconds.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Duration", "MemorySize", "duration_nanos", "memory_bytes"]

_NUMBER_AND_UNIT: Final = re.compile(r"\s*(?P<number>[0-9]+)\s*(?P<unit>[^0-9\s]\S*)?\s*", re.ASCII)

_SIZE_UNITS: Final[dict[str, int]] = {
    name: factor
    for factor, names in (
        (1, ("b", "byte", "bytes")),
        (1 << 10, ("k", "kb", "kib", "kibibyte", "kibibytes")),
        (1 << 20, ("m", "mb", "mib", "mebibyte", "mebibytes")),
        (1 << 30, ("g", "gb", "gib", "gibibyte", "gibibytes")),
        (1 << 40, ("t", "tb", "tib", "tebibyte", "tebibytes")),
    )
    for name in names
}
_SIZE_NAMES: Final = ((1 << 40, "tb"), (1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb"))

_MICRO: Final = 1_000
_MILLI: Final = 1_000 * _MICRO
_SECOND: Final = 1_000 * _MILLI
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_DURATION_UNITS: Final[dict[str, int]] = {
    name: nanos
    for nanos, names in (
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
        # The micro sign (U+00B5) and the Greek mu (U+03BC) look alike and both are typed.
        (_MICRO, ("us", "\u00b5s", "\u03bcs", "micro", "micros", "microsecond", "microseconds")),
        (_MILLI, ("ms", "milli", "millis", "millisecond", "milliseconds")),
        (_SECOND, ("s", "sec", "secs", "second", "seconds")),
        (_MINUTE, ("m", "min", "mins", "minute", "minutes")),
        (_HOUR, ("h", "hour", "hours")),
        (_DAY, ("d", "day", "days")),
    )
    for name in names
}
_DURATION_NAMES: Final = (
    (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"), (_MILLI, "ms"), (_MICRO, "us"), (1, "ns")
)  # fmt: skip
_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?"
    r"(?:(?P<seconds>[0-9]+)(?:[.,](?P<fraction>[0-9]{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def _number_and_unit(text: str, units: dict[str, int], default_unit: str, kind: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise ValueError(f"it is not a whole number followed by a unit of {kind}")
    unit = match["unit"] or default_unit
    factor = units.get(unit.lower())
    if factor is None:
        raise ValueError(f"{unit!r} is no unit of {kind}")
    return int(match["number"]) * factor


def memory_bytes(text: str) -> int:
    """Return the bytes that `1g`, `512 mb`, `2 gib` or `1024` (bytes) stand for.

    Units are powers of 1024. Raises ValueError with a reason that does not repeat the text.
    """
    return _number_and_unit(text, _SIZE_UNITS, "b", "memory")


def duration_nanos(text: str, default_unit: str = "ms") -> int:
    """Return the nanoseconds that `10 s`, `100ms`, a bare number in `default_unit` or ISO 8601 (`PT1H30M`) stand for.

    Raises ValueError with a reason that does not repeat the text.
    """
    stripped = text.strip()
    if stripped[:1] in ("p", "P"):
        return _iso_nanos(stripped)
    return _number_and_unit(stripped, _DURATION_UNITS, default_unit, "time")


@dataclass(frozen=True, slots=True, order=True, repr=False)
class MemorySize:
    """An amount of memory in bytes. As in Flink, `kb`, `mb`, `gb` and `tb` are powers of 1024.

    Raises ValueError for a negative number.
    """

    bytes_size: int

    def __post_init__(self) -> None:
        if self.bytes_size < 0:
            raise ValueError(f"an amount of memory cannot be negative: {self.bytes_size} bytes")

    @staticmethod
    def parse(text: str) -> MemorySize:
        """Read `1g`, `512 mb`, `2 gib` or `1024` (bytes). Raises ValueError naming the text for anything else."""
        try:
            return MemorySize(memory_bytes(text))
        except ValueError as error:
            raise ValueError(
                f"{text!r} is not an amount of memory: {error}. Write a whole number and b, kb, mb, gb or tb."
            ) from None

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return an amount given in units of 1024 * 1024 bytes."""
        return MemorySize(mebi_bytes << 20)

    @property
    def bytes(self) -> int:
        """The amount in bytes."""
        return self.bytes_size

    @property
    def mebibytes(self) -> int:
        """Whole mebibytes, rounded down."""
        return self.bytes_size >> 20

    def get_bytes(self) -> int:
        """Return the amount in bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the amount in units of 1024 bytes, rounded down."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 2 bytes, rounded down."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 3 bytes, rounded down."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Return the amount in units of 1024 ** 4 bytes, rounded down."""
        return self.bytes_size >> 40

    def human(self) -> str:
        """Return the amount for messages: the largest unit that leaves at least 1, at most one decimal."""
        for factor, name in _SIZE_NAMES:
            if self.bytes_size >= factor:
                whole, rest = divmod(self.bytes_size, factor)
                return f"{whole} {name}" if rest == 0 else f"{self.bytes_size / factor:.1f} {name}"
        return f"{self.bytes_size} bytes"

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads back."""
        for factor, name in _SIZE_NAMES:
            if self.bytes_size and self.bytes_size % factor == 0:
                return f"{self.bytes_size // factor} {name}"
        return f"{self.bytes_size} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self})"


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Duration:
    """A length of time in nanoseconds. Only the `of_*` methods make negative ones; `parse` never does."""

    nanos: int

    @staticmethod
    def parse(text: str, default_unit: str = "ms") -> Duration:
        """Read `10 s`, `100ms`, a bare number in `default_unit`, or ISO 8601 (`PT1H30M`, `P1DT2S`).

        Raises ValueError, naming the text and the units, for anything else.
        """
        try:
            return Duration(duration_nanos(text, default_unit))
        except ValueError as error:
            raise ValueError(
                f"{text!r} is not a duration: {error}. Write a whole number and d, h, min, s, ms, us or ns."
            ) from None

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length of `days` times 24 hours."""
        return Duration(days * _DAY)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length of `hours`."""
        return Duration(hours * _HOUR)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length of `minutes`."""
        return Duration(minutes * _MINUTE)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length of `seconds`."""
        return Duration(seconds * _SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length of `millis` milliseconds."""
        return Duration(millis * _MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length of `nanos` nanoseconds."""
        return Duration(nanos)

    @property
    def millis(self) -> int:
        """Whole milliseconds, rounded down."""
        return self.nanos // _MILLI

    @property
    def seconds(self) -> float:
        """Seconds with their fraction, as asyncio and threading take timeouts."""
        return self.nanos / _SECOND

    def to_nanos(self) -> int:
        """Return the length in nanoseconds."""
        return self.nanos

    def to_millis(self) -> int:
        """Return the length in whole milliseconds, rounded down."""
        return self.nanos // _MILLI

    def to_seconds(self) -> float:
        """Return the length in seconds."""
        return self.nanos / _SECOND

    def to_timedelta(self) -> datetime.timedelta:
        """Return the same length, rounded down to microseconds."""
        return datetime.timedelta(microseconds=self.nanos // _MICRO)

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads back."""
        for factor, name in _DURATION_NAMES:
            if self.nanos and self.nanos % factor == 0:
                return f"{self.nanos // factor} {name}"
        return "0 ms"

    def __repr__(self) -> str:
        return f"Duration({self})"


def _iso_nanos(text: str) -> int:
    match = _ISO_DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()) or text[-1] in "tT":
        raise ValueError("it is not an ISO 8601 duration of days, hours, minutes and seconds")
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    return (
        int(match["days"] or 0) * _DAY
        + int(match["hours"] or 0) * _HOUR
        + int(match["minutes"] or 0) * _MINUTE
        + int(match["seconds"] or 0) * _SECOND
        + fraction
    )
