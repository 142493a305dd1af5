"""Sizes and durations as configuration writes them, with Flink's units.

Owner: any thread; immutable values without I/O or clock. Parsing is exact (integers, never floats), and
`parse(str(x)) == x` holds for every value. The units are those of Flink's documentation of MemorySize and
Duration values: a size without unit is in bytes, a duration without unit in milliseconds.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True, order=True)
class MemorySize:
    """An amount of memory; `bytes` is never negative."""

    bytes: int

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ValueError("a size of memory cannot be negative")

    @classmethod
    def parse(cls, text: str) -> MemorySize:
        """Reads `1g`, `512 mb`, `1024` (bytes); units are powers of 1024. ValueError says what is wrong."""
        return cls(_number_and_unit(text, _SIZE_UNITS, "b", "memory"))

    @classmethod
    def of_mebibytes(cls, mebibytes: int) -> MemorySize:
        return cls(mebibytes << 20)

    @property
    def mebibytes(self) -> int:
        """Whole mebibytes, rounded down."""
        return self.bytes >> 20

    def __str__(self) -> str:
        for factor, name in _SIZE_NAMES:
            if self.bytes and self.bytes % factor == 0:
                return f"{self.bytes // factor} {name}"
        return f"{self.bytes} bytes"

    def human(self) -> str:
        """For messages: the largest unit that leaves at least 1, with one decimal where it is not whole."""
        for factor, name in _SIZE_NAMES:
            if self.bytes >= factor:
                whole, rest = divmod(self.bytes, factor)
                return f"{whole} {name}" if rest == 0 else f"{self.bytes / factor:.1f} {name}"
        return f"{self.bytes} bytes"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time; `nanos` is never negative."""

    nanos: int

    def __post_init__(self) -> None:
        if self.nanos < 0:
            raise ValueError("a duration cannot be negative")

    @classmethod
    def parse(cls, text: str, default_unit: str = "ms") -> Duration:
        """Reads `10 s`, `100ms`, a bare number in `default_unit`, or ISO 8601 (`PT1H30M`, `P1DT2S`)."""
        stripped = text.strip()
        if stripped[:1] in ("p", "P"):
            return cls(_iso_nanos(stripped))
        return cls(_number_and_unit(stripped, _DURATION_UNITS, default_unit, "time"))

    @classmethod
    def of_seconds(cls, seconds: int) -> Duration:
        return cls(seconds * _SECOND)

    @classmethod
    def of_millis(cls, millis: int) -> Duration:
        return cls(millis * _MILLI)

    @property
    def millis(self) -> int:
        """Whole milliseconds, rounded down."""
        return self.nanos // _MILLI

    @property
    def seconds(self) -> float:
        """Seconds with their fraction, as asyncio and threading take timeouts."""
        return self.nanos / _SECOND

    def to_timedelta(self) -> datetime.timedelta:
        """The same length, rounded down to microseconds."""
        return datetime.timedelta(microseconds=self.nanos // _MICRO)

    def __str__(self) -> str:
        for factor, name in _DURATION_NAMES:
            if self.nanos and self.nanos % factor == 0:
                return f"{self.nanos // factor} {name}"
        return "0 ms"


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
