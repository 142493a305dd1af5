"""LateLedger: the late records of one subtask's operator: counts, delays, and the last few.

Owner: the task thread writes; the report thread reads `report`. An operator embeds one, and writes only when a record
is late, so a stream without late records pays nothing. It is part of metrics, not of state: a restart begins anew.
Must not know windows or state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.container.protocol.failure import short_record
from yarrow.runtime.common.late_records import (
    MOST_NAMED,
    LatePlace,
    LateRecord,
    LateRecords,
    LateRemedy,
    class_of,
)

#: The metric of late records that went nowhere: those of windows, also of no window, of joins and of rows in order.
LATE_DROPPED: Final = "numLateRecordsDropped"


class LateTime(NamedTuple):
    """When a late record came."""

    timestamp: int
    watermark: int
    #: The lateness that would have kept it.
    delay_ms: int


class LateLedger:
    """The late records of one operator in one subtask."""

    def __init__(self, operator: str, remedy: LateRemedy) -> None:
        self._operator = operator
        self._remedy = remedy
        self._places = dict.fromkeys(LatePlace, 0)
        self._of_no_window = 0
        self._ahead = 0
        self._delays: dict[int, int] = {}
        self._longest = 0
        #: Key, time and window of the last ones. They become text when somebody asks.
        self._last: deque[tuple[Any, LateTime, object]] = deque(maxlen=MOST_NAMED)
        self._last_ahead: deque[LateTime] = deque(maxlen=MOST_NAMED)

    def register(self, metrics: MetricRegistry, group: OperatorMetricGroup | None = None) -> None:
        """Lets reports show the ledger, and metrics of `group` the number of dropped records."""
        metrics.register_late(self.report)
        if group is not None:
            group.gauge(LATE_DROPPED, lambda: self.dropped)

    @property
    def dropped(self) -> int:
        """Records that went nowhere: late ones, and those of no window."""
        return self._places[LatePlace.DROPPED] + self._of_no_window

    def late(self, place: LatePlace, key: Any, time: LateTime, window: object = None) -> None:
        """Notes a late record. `key`: its key, or the record where there are no keys. `window`: its last one."""
        self.late_together(place, {time.delay_ms: 1})
        self._last.append((key, time, window))

    def late_together(self, place: LatePlace, delays: Mapping[int, int]) -> None:
        """Counts late records: their number by delay. `name_last` names some of them."""
        for delay, count in delays.items():
            self._places[place] += count
            longest = class_of(delay)
            self._delays[longest] = self._delays.get(longest, 0) + count
            self._longest = max(self._longest, delay)

    def name_last(self, records: Iterable[tuple[Any, LateTime]]) -> None:
        """Names late records that were counted, with their keys; the last ones stay."""
        self._last.extend((key, time, None) for key, time in records)

    def of_no_window(self, count: int = 1) -> None:
        """Notes dropped records that no window contains."""
        self._of_no_window += count

    def ahead(self, time: LateTime) -> None:
        """Notes a record ahead of time; its delay is how far it is beyond the bound on jumps of event time."""
        self._ahead += 1
        self._last_ahead.append(time)

    def report(self) -> LateRecords | None:
        """The present content; None as long as nothing was late or ahead. Any thread."""
        if not (self._ahead or self._of_no_window or any(self._places.values())):
            return None
        return LateRecords(
            operator=self._operator,
            remedy=self._remedy,
            places={place: count for place, count in self._places.items() if count},
            of_no_window=self._of_no_window,
            ahead=self._ahead,
            delays=self._delays.copy(),
            longest_ms=self._longest,
            last=tuple(
                LateRecord(
                    key=short_record(key),
                    window="" if window is None else short_record(window),
                    **time._asdict(),
                )
                for key, time, window in self._last.copy()
            ),
            last_ahead=tuple(LateRecord(key="", **time._asdict()) for time in self._last_ahead.copy()),
        )
