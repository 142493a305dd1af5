"""LateRecords: what an operator tells of late records: how many, where they went, how late, and the last few.

Owner: none (frozen values, pure functions). Reports of subtasks are added up. The histogram of delays has a bounded
number of classes, each a sixteenth wide at most. So a quantile may be so much too high. Must not know operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

K = TypeVar("K")

#: Records that a report names, the last ones.
MOST_NAMED: Final = 10
#: A class of delays has so many bits: a sixteenth of its delays is its width.
_BITS: Final = 5
#: The share of late records that the proposed lateness would have kept, in percent.
KEPT_PERCENT: Final = 99
#: So long a delay, in ms, has a record that came behind the maximum watermark, as in a loop whose inputs have ended.
BEHIND_THE_END_MS: Final = 2**62


class LatePlace(StrEnum):
    """Where a late record went."""

    DROPPED = "dropped"
    SIDE_OUTPUT = "side output"
    #: A process function gets its late records as all others.
    FUNCTION = "function"


class LateRemedy(StrEnum):
    """What would have kept late records."""

    ALLOWED_LATENESS = "an allowed lateness of {} ms"
    MORE_DISORDER = "{} ms more disorder in the watermark strategy"


class LateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One late record, or one that was ahead of time, in words."""

    #: Short text of its key, or of the record where there are no keys; "" = not known.
    key: str
    timestamp: int
    watermark: int
    #: The lateness that would have kept it; of a record ahead of time, how far beyond the bound it was.
    delay_ms: int
    #: Its last window as text; "" = none.
    window: str = ""


class LateRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The late records of an operator, or of one of its subtasks."""

    operator: str
    remedy: LateRemedy
    #: Number of late records by where they went.
    places: dict[LatePlace, int] = msgspec.field(default_factory=dict)
    #: Dropped records that no window contains.
    of_no_window: int = 0
    #: Records whose time was further ahead than the bound on jumps of event time.
    ahead: int = 0
    #: Number of late records by the longest delay of their class, in ms.
    delays: dict[int, int] = msgspec.field(default_factory=dict)
    #: The longest delay of all, in ms.
    longest_ms: int = 0
    last: tuple[LateRecord, ...] = ()
    last_ahead: tuple[LateRecord, ...] = ()

    @property
    def late(self) -> int:
        """Number of late records."""
        return sum(self.places.values())

    def lateness_for(self, percent: int) -> int | None:
        """The lateness in ms that would have kept that share of the late records; None = none was late.

        It is the least such lateness, or longer by one class of delays at most.
        """
        delays = sorted(self.delays.items())
        wanted = -(-sum(self.delays.values()) * percent // 100)
        for (longest, _), so_far in zip(delays, accumulate(count for _, count in delays), strict=True):
            if so_far >= wanted:
                return min(longest, self.longest_ms)
        return None

    def sentences(self) -> list[str]:
        """Returns the sentences that the end of a job tells of the operator; empty if nothing was late or ahead."""
        told, name = [], f"Operator '{self.operator}'"
        if self.late:
            went = ", ".join(
                f"{count} {place.value}" for place in LatePlace if (count := self.places.get(place, 0))
            )
            told.append(f"{name}: {_records(self.late)} late ({went}), {self._longest()}; {self._advice()}.")
        if self.of_no_window:
            told.append(f"{name}: no window contains {_records(self.of_no_window)}, dropped.")
        if self.ahead:
            told.append(f"{name}: {_records(self.ahead)} too far ahead of time to be believed.")
        return told

    def _longest(self) -> str:
        if self.longest_ms >= BEHIND_THE_END_MS:
            return "some of them behind the end of event time"
        return f"at most {self.longest_ms} ms"

    def _advice(self) -> str:
        lateness = self.lateness_for(KEPT_PERCENT)
        if lateness is None or lateness >= BEHIND_THE_END_MS:
            return f"no lateness keeps {KEPT_PERCENT} % of them"
        return f"{self.remedy.format(lateness)} keeps {KEPT_PERCENT} % of them"


def class_of(delay_ms: int) -> int:
    """The longest delay of the class of a delay; delays up to 31 ms are classes of their own."""
    shift = max(0, delay_ms.bit_length() - _BITS)
    return ((delay_ms >> shift) + 1 << shift) - 1


def summed_up(reports: Iterable[LateRecords]) -> list[LateRecords]:
    """One report an operator, out of those of its subtasks, in their order."""
    by_operator: dict[str, list[LateRecords]] = {}
    for report in reports:
        by_operator.setdefault(report.operator, []).append(report)
    return [_sum(parts) for parts in by_operator.values()]


def _sum(parts: list[LateRecords]) -> LateRecords:
    by_watermark = attrgetter("watermark")
    last = sorted((record for part in parts for record in part.last), key=by_watermark)
    last_ahead = sorted((record for part in parts for record in part.last_ahead), key=by_watermark)
    return LateRecords(
        operator=parts[0].operator,
        remedy=parts[0].remedy,
        places=_counts(part.places for part in parts),
        of_no_window=sum(part.of_no_window for part in parts),
        ahead=sum(part.ahead for part in parts),
        delays=_counts(part.delays for part in parts),
        longest_ms=max(part.longest_ms for part in parts),
        last=tuple(last[-MOST_NAMED:]),
        last_ahead=tuple(last_ahead[-MOST_NAMED:]),
    )


def _counts(of_parts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    total: Counter[K] = Counter()
    for counts in of_parts:
        total.update(counts)
    return dict(total)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
