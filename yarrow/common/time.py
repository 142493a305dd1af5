"""Time, Duration and Instant: lengths and points of time as immutable values.

Lengths are whole milliseconds (Time) or nanoseconds (Duration); a point in time is seconds and nanoseconds
since the epoch in UTC. Values only, usable from any thread. This module never reads a clock: the runtime's
clock does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["Duration", "Instant", "Time", "milliseconds_of"]

_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000

#: Unit labels of configuration files, as Flink spells them, in nanoseconds.
_UNITS: dict[str, int] = {
    label: nanos
    for labels, nanos in (
        (("d", "day", "days"), 86_400 * _NANOS_PER_SECOND),
        (("h", "hour", "hours"), 3_600 * _NANOS_PER_SECOND),
        (("m", "min", "minute", "minutes"), 60 * _NANOS_PER_SECOND),
        (("s", "sec", "second", "seconds"), _NANOS_PER_SECOND),
        (("ms", "milli", "millis", "millisecond", "milliseconds"), _NANOS_PER_MILLI),
        (("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
        (("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    )
    for label in labels
}

_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:\.(?P<f>\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Duration:
    """A length of time in nanoseconds; made by the `of_*` methods or `parse`."""

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length of `days` times 24 hours."""
        return Duration(days * 86_400 * _NANOS_PER_SECOND)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length of `hours`."""
        return Duration(hours * 3_600 * _NANOS_PER_SECOND)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length of `minutes`."""
        return Duration(minutes * 60 * _NANOS_PER_SECOND)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length of `seconds`."""
        return Duration(seconds * _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length of `millis` milliseconds."""
        return Duration(millis * _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length of `nanos` nanoseconds."""
        return Duration(nanos)

    @staticmethod
    def parse(text: str) -> Duration:
        """Read the text of a configuration file.

        It is `10 s`, `500ms`, `1 min`, a bare number of milliseconds or `PT1.5S`. Raises ValueError, naming
        the text and the units, for anything else.
        """
        stripped = text.strip()
        simple = re.fullmatch(r"(\d+)\s*([A-Za-zµ]*)", stripped)
        if simple is not None:
            unit = _UNITS.get(simple[2].lower() or "ms")
            if unit is not None:
                return Duration(int(simple[1]) * unit)
        iso = _ISO_DURATION.fullmatch(stripped)
        if iso is not None and any(iso.groups()):
            seconds = int(iso["d"] or 0) * 86_400 + int(iso["h"] or 0) * 3_600 + int(iso["m"] or 0) * 60
            nanos = int((iso["f"] or "").ljust(9, "0") or 0)
            return Duration((seconds + int(iso["s"] or 0)) * _NANOS_PER_SECOND + nanos)
        raise ValueError(
            f"{text!r} is not a duration: write a whole number and a unit (d, h, min, s, ms, us, ns)"
        )

    def to_nanos(self) -> int:
        """Return the length in nanoseconds."""
        return self.nanos

    def to_millis(self) -> int:
        """Return the length in whole milliseconds, rounded down."""
        return self.nanos // _NANOS_PER_MILLI

    def to_seconds(self) -> float:
        """Return the length in seconds."""
        return self.nanos / _NANOS_PER_SECOND

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads back."""
        for label in ("d", "h", "min", "s", "ms", "us"):
            if self.nanos and self.nanos % _UNITS[label] == 0:
                return f"{self.nanos // _UNITS[label]} {label}"
        return f"{self.nanos} ns"

    def __repr__(self) -> str:
        return f"Duration({self})"


class Time:
    """A length of time in milliseconds: sizes, slides and gaps of windows, time to live of state."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of `days` times 24 hours."""
        return Time(days * 86_400_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of `hours`."""
        return Time(hours * 3_600_000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of `minutes`."""
        return Time(minutes * 60_000)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of `seconds`."""
        return Time(seconds * 1_000)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of `milliseconds`."""
        return Time(milliseconds)

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __repr__(self) -> str:
        return f"Time({self._milliseconds} ms)"


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time: whole seconds since 1970-01-01T00:00Z and 0 to 999,999,999 nanoseconds after them.

    Raises ValueError when `nanos` is outside that range.
    """

    seconds: int
    nanos: int

    def __post_init__(self) -> None:
        if not 0 <= self.nanos < _NANOS_PER_SECOND:
            raise ValueError(f"nanos of an Instant must be 0 to 999999999, not {self.nanos}")

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the point `epoch_milli` milliseconds after the epoch (before it, when negative)."""
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def to_epoch_milli(self) -> int:
        """Return milliseconds since the epoch, rounded down."""
        return self.seconds * 1_000 + self.nanos // _NANOS_PER_MILLI


def milliseconds_of(span: Time | Duration | timedelta) -> int:
    """Return a length of time in whole milliseconds, whichever of the three types it is given as."""
    match span:
        case Time():
            return span.to_milliseconds()
        case Duration():
            return span.to_millis()
        case timedelta():
            return span // timedelta(milliseconds=1)
    raise TypeError(f"expected Time, Duration or datetime.timedelta, got {type(span).__name__}")
