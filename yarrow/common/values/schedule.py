"""Schedule: the times at which something is done again and again, at intervals or by a cron expression.

Owner: none (immutable values). Pure: each question brings the time with it, and nothing here waits. Times are
milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator

import msgspec

from yarrow.common.values.quantities import duration_nanos

__all__ = ["DUE_DATE", "DUE_PARAMETERS", "DUE_TIME", "InvalidScheduleError", "Schedule"]

_SECOND = 1000
#: Of the fields of a cron expression, before which a field of seconds may stand.
_MINUTE_AND_HOUR = slice(-5, -3)
#: Names of the parameters by which a run of a schedule knows to which time it belongs.
DUE_TIME, DUE_DATE = "due_time", "due_date"
DUE_PARAMETERS = (DUE_TIME, DUE_DATE)


class InvalidScheduleError(ValueError):
    """A schedule is not one: the message names the text, what was expected and what to write."""


def _when_shown(time: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """When the clock of a zone first shows a time, or when it goes on if it skips that time."""
    while True:
        found = time.replace(tzinfo=zone, fold=0)
        if found == found.astimezone(datetime.UTC).astimezone(zone):
            return found
        # Clocks go on at full minutes.
        time = time.replace(second=0) + datetime.timedelta(minutes=1)


def _without_repeated(times: Iterator[int]) -> Iterator[int]:
    """Rising times, each once."""
    return (time for time, _ in itertools.groupby(times))


def _checked(interval_ms: int) -> int:
    if interval_ms < _SECOND:
        raise InvalidScheduleError(f"the interval of a schedule is {interval_ms} ms: expected 1 s at least")
    return interval_ms


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The times of an interval, or those of a cron expression in a time zone. Made by `every` and `of_cron`."""

    #: Milliseconds between two times; 0 = the times of `cron`.
    interval_ms: int = 0
    #: minute, hour, day of month, month and day of week; a field of seconds may come first.
    cron: str = ""
    #: IANA name of the zone whose clock the cron expression means.
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        """Raises InvalidScheduleError unless there are times."""
        if bool(self.interval_ms) == bool(self.cron):
            raise InvalidScheduleError("a schedule is an interval or a cron expression: give one of the two")
        if not self.cron:
            _checked(self.interval_ms)
            return
        # Every process knows schedules, and few ever have one.
        from cronsim import CronSimError

        try:
            next(self._cron_times(0))
        except CronSimError as error:
            raise InvalidScheduleError(
                f"the cron expression {self.cron!r} cannot be read: {error}. Expected minute, hour, day of month, month"
                " and day of week, as 0 3 * * *"
            ) from None
        except StopIteration:
            raise InvalidScheduleError(
                f"the cron expression {self.cron!r} names no day that exists: change its day or month"
            ) from None

    @staticmethod
    def every(interval: datetime.timedelta | str) -> Schedule:
        """A schedule with equal intervals, as `timedelta(hours=1)` or `"1 h"`; its first time is its start.

        Raises InvalidScheduleError for an interval below a second.
        """
        if isinstance(interval, datetime.timedelta):
            return Schedule(interval_ms=_checked(interval // datetime.timedelta(milliseconds=1)))
        try:
            nanos = duration_nanos(interval)
        except ValueError as error:
            raise InvalidScheduleError(
                f"the interval {interval!r} cannot be read: {error}. Write a number and a unit, as 10 min"
            ) from None
        return Schedule(interval_ms=_checked(nanos // 1_000_000))

    @staticmethod
    def of_cron(expression: str, time_zone: str = "UTC") -> Schedule:
        """The times that a cron expression names on the clock of a time zone.

        In the hour that daylight saving time skips, a run for a fixed time is due as soon as the clock goes on. In
        the hour that comes twice, it is due the first time. Expressions with `*` as their minute or hour follow the
        time that passes. These are the rules of Debian's cron.

        Raises InvalidScheduleError.
        """
        return Schedule(cron=" ".join(expression.split()), time_zone=time_zone)

    def next_after(self, after_ms: int, start_ms: int = 0) -> int:
        """The first time behind `after_ms`. Intervals are counted from `start_ms`, which is the first time itself."""
        if not self.cron:
            if after_ms < start_ms:
                return start_ms
            return start_ms + ((after_ms - start_ms) // self.interval_ms + 1) * self.interval_ms
        return next(self.times_after(after_ms, start_ms))

    def times_after(self, after_ms: int, start_ms: int = 0) -> Iterator[int]:
        """All times behind `after_ms`, in order."""
        if self.cron:
            yield from (time for time in self._cron_times(after_ms) if time > after_ms)
            return
        while True:
            after_ms = self.next_after(after_ms, start_ms)
            yield after_ms

    def due_parameters(self, time_ms: int) -> dict[str, str]:
        """DUE_PARAMETERS of the run for a time, on the clock of the zone: ISO 8601 with the offset, and its date."""
        due = datetime.datetime.fromtimestamp(time_ms / _SECOND, self._zone())
        return {DUE_TIME: due.isoformat(timespec="seconds"), DUE_DATE: due.date().isoformat()}

    def _cron_times(self, after_ms: int) -> Iterator[int]:
        from cronsim import CronSim

        zone = self._zone()
        start = datetime.datetime.fromtimestamp(after_ms // _SECOND, zone)
        if any(field.startswith("*") for field in self.cron.split()[_MINUTE_AND_HOUR]):
            return (int(time.timestamp()) * _SECOND for time in CronSim(self.cron, start))
        # cronsim itself has rules for fixed times only where no field of seconds comes first.
        shown = CronSim(self.cron, start.replace(tzinfo=None))
        return _without_repeated(int(_when_shown(time, zone).timestamp()) * _SECOND for time in shown)

    def _zone(self) -> datetime.tzinfo:
        if self.time_zone == "UTC":
            return datetime.UTC
        from zoneinfo import ZoneInfo

        try:
            return ZoneInfo(self.time_zone)
        except (OSError, ValueError, LookupError):
            raise InvalidScheduleError(
                f"there is no time zone {self.time_zone!r}: write a name of the IANA database, as Europe/Berlin"
            ) from None

    def __str__(self) -> str:
        """The schedule as a phrase."""
        if self.cron:
            return f"{self.cron} ({self.time_zone})"
        return f"every {datetime.timedelta(milliseconds=self.interval_ms)}"
