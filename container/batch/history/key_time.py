"""KeyTime: the event time of each key in the history of a stream, whose records come key by key.

Owner: the task thread. A stream's watermark follows the records of all keys. Here each key has its own, which follows
its records: so a timer that is due between two records fires before the second one. Timers that are due later than the
history ends wait aside until the state is written. Must not know where records come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.operators.base import HistoryTime
from yarrow.container.state.backend import Timer
from yarrow.container.state.timers import OperatorTimerService
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class KeyTime:
    """Runs the records of keys through a chain whose head may have timers."""

    def __init__(self, chain: OperatorChain, time: HistoryTime) -> None:
        """`time`: that at the end of history; no watermark goes beyond it."""
        self._chain = chain
        self._service = chain.head.timer_service
        self._last: Final = MIN_TIMESTAMP if time.watermark is None else time.watermark
        self._lag: Final = time.lag
        # Whoever takes keys in advance would take all records of a call before the first one has run.
        self._one_by_one = chain.head.takes_keys_ahead
        self._at = 0
        self._aside_event: list[Timer] = []
        self._aside_processing: list[Timer] = []

    def run(self, number: int, rows: list[Any], stamps: list[int | None] | None) -> int:
        """Runs records of one key, in their order, for an input; returns the number of timers' results."""
        service = self._service
        if service is None or stamps is None or self._last == MIN_TIMESTAMP:
            self._chain.run_rows_of_key(number, rows, stamps)
            return 0
        results, self._at = 0, 0
        while self._at < len(rows):
            start = self._at
            end = start + 1 if self._one_by_one else len(rows)
            ready = self._until_timer(service, rows, stamps, start, end)
            self._chain.run_rows_of_key(number, ready, stamps[start:end])
            if self._at < end:
                service.watermark = self._watermark_at(stamps[self._at])
                results += self._chain.fire_head_timers()
        return results

    def _until_timer(
        self,
        service: OperatorTimerService,
        rows: Sequence[Any],
        stamps: Sequence[int | None],
        start: int,
        end: int,
    ) -> Iterator[Any]:
        """The records before the first one that comes behind a timer; each moves the watermark."""
        timers, lag, last, reached = service.event_timers, self._lag, self._last, service.watermark
        for position in range(start, end):
            stamp = stamps[position]
            # The condition of most records comes first: a call would cost more than all of this.
            if stamp is not None and reached < last and stamp - lag > reached:
                watermark = min(stamp - lag, last)
                first = timers.next_timestamp
                if first is not None and first <= watermark:
                    return
                service.watermark = reached = watermark
            self._at = position + 1
            yield rows[position]

    def _watermark_at(self, stamp: int | None) -> int:
        """The watermark of a key whose next record is that."""
        return MIN_TIMESTAMP if stamp is None else max(MIN_TIMESTAMP, min(stamp - self._lag, self._last))

    def end_keys(self) -> int:
        """Ends the keys that have come: fires what is due by the end of history, and puts the other timers aside.

        Returns the number of results.
        """
        service = self._service
        if service is None:
            return 0
        results = 0
        if self._last > service.watermark:
            service.watermark = self._last
            first = service.event_timers.next_timestamp
            if first is not None and first <= self._last:
                results = self._chain.fire_head_timers()
        if service.event_timers:
            self._aside_event += service.event_timers.drain()
        if service.processing_timers:
            self._aside_processing += service.processing_timers.drain()
        service.watermark = MIN_TIMESTAMP
        return results

    def restore_timers(self) -> None:
        """Gives the operator all timers that wait, for the snapshot. No record may follow."""
        if self._service is not None:
            self._service.event_timers.restore_timers(self._aside_event)
            self._service.processing_timers.restore_timers(self._aside_processing)
            self._aside_event, self._aside_processing = [], []
