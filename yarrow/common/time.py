"""Time, Duration and Instant: lengths and points of time as immutable values.

Lengths are whole milliseconds (Time) or nanoseconds (Duration); a point in time is seconds and nanoseconds since
the epoch in UTC. Values only, usable from any thread. This module never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from yarrow.common.values.quantities import Duration

__all__ = ["Duration", "Instant", "Time", "milliseconds_of"]

_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000


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


def milliseconds_of(span: Time | Duration | timedelta, name: str = "a length of time") -> int:
    """Return a length of time in whole milliseconds, whichever of the three types it is given as.

    Raises TypeError for anything else, with the name of the argument.
    """
    match span:
        case Time():
            return span.to_milliseconds()
        case Duration():
            return span.to_millis()
        case timedelta():
            return span // timedelta(milliseconds=1)
    raise TypeError(
        f"{name} must be a Time, Duration or timedelta, such as "
        f"Duration.of_millis({span if type(span) is int else 5}), not {span!r}"
    )
