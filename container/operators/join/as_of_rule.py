"""AsOfRule: which right row a left row of an as-of join meets, when that is known, and which right rows are kept.

Owner: any thread; pure. Times are milliseconds since the epoch. The right rows of a key are its versions: sorted by
time, each time once. At a watermark all rows up to it have come. Must not know state, keys or operators.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from yarrow.container.operators.join.time_buckets import LEAST_LENGTH
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.join_spec import AsOfDirection

#: (time, row)
TimedRow = tuple[int, Any]
TIME_OF: Final = itemgetter(0)


class AsOfRule(NamedTuple):
    """The direction in which a left row looks, and how far."""

    direction: AsOfDirection
    #: Most milliseconds between both rows; None = any number.
    tolerance: int | None

    @property
    def looks_back(self) -> bool:
        """True if a row may meet a version before its time."""
        return self.direction is not AsOfDirection.FORWARD

    @property
    def looks_ahead(self) -> bool:
        """True if a row may meet a version behind its time."""
        return self.direction is not AsOfDirection.BACKWARD

    def delay(self, *, keeps_unmatched: bool) -> int:
        """Milliseconds by which results bear times behind the watermark that lets them leave."""
        late = self.direction is AsOfDirection.NEAREST or (self.looks_ahead and keeps_unmatched)
        return (self.tolerance or 0) if late else 0

    @property
    def step(self) -> int:
        """Milliseconds that useless versions may stay longer: a look for each would cost more than the version."""
        return max(LEAST_LENGTH, (self.tolerance or 0) // 2)

    def chosen(self, time: int, versions: Sequence[TimedRow]) -> TimedRow | None:
        """The version that a left row meets; None = none. It is final from the watermark on that `due` gives."""
        before, behind = self._before(time, versions), self._behind(time, versions)
        if before is None or behind is None:
            return behind if before is None else before
        return behind if behind[0] - time < time - before[0] else before

    def due(self, time: int, versions: Sequence[TimedRow]) -> int:
        """The least watermark at which the version of a left row is known.

        It is not below the row's time, and rises with it. Further versions above the watermark make it sooner only.
        """
        if not self.looks_ahead:
            return time
        due = MAX_TIMESTAMP if self.tolerance is None else min(time + self.tolerance, MAX_TIMESTAMP)
        behind = self._behind(time, versions)
        if behind is not None:
            due = min(due, behind[0])
        before = self._before(time, versions)
        if before is not None:
            # A version behind the row would have to be nearer than this one.
            due = min(due, max(time, 2 * time - before[0] - 1))
        return due

    def _before(self, time: int, versions: Sequence[TimedRow]) -> TimedRow | None:
        """The last version up to a time that a row may meet."""
        if not self.looks_back:
            return None
        at = bisect_right(versions, time, key=TIME_OF)
        return versions[at - 1] if at and self._reaches(time - versions[at - 1][0]) else None

    def _behind(self, time: int, versions: Sequence[TimedRow]) -> TimedRow | None:
        """The first version from a time on that a row may meet."""
        if not self.looks_ahead:
            return None
        at = bisect_left(versions, time, key=TIME_OF)
        return versions[at] if at < len(versions) and self._reaches(versions[at][0] - time) else None

    def _reaches(self, distance: int) -> bool:
        return self.tolerance is None or distance <= self.tolerance

    # ------------------------------------------------------------------ versions that go

    def useless(self, least: int, versions: Sequence[TimedRow]) -> int:
        """How many of the first versions no left row from time `least` on can meet."""
        if not self.looks_back:
            return bisect_left(versions, least, key=TIME_OF)
        at = bisect_right(versions, least, key=TIME_OF)
        # The last version up to that time still holds, if it reaches so far.
        return at if not at or not self._reaches(least - versions[at - 1][0]) else at - 1

    def fades(self, versions: Sequence[TimedRow]) -> int | None:
        """The least watermark at which the first version is useless to rows that come; None = never."""
        if not versions:
            return None
        first = versions[0][0]
        if not self.looks_back:
            return first
        ends = [versions[1][0] - 1] if len(versions) > 1 else []
        if self.tolerance is not None:
            ends.append(min(first + self.tolerance, MAX_TIMESTAMP))
        return min(ends, default=None)
