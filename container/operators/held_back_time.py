"""HeldBackTimeOperator: the base of operators whose results leave behind the watermark, so that it must wait for them.

Owner: the task thread. Must not know joins, or why results leave late.
"""

from __future__ import annotations

from yarrow.container.operators.base import HistoryTime, Operator
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


class HeldBackTimeOperator(Operator):
    """Base of operators behind which event time stays behind that before them."""

    #: Milliseconds by which results leave behind the watermark; an operator sets it before it is set up.
    delay = 0

    def forwarded_watermark(self, timestamp: int) -> int | None:
        if timestamp == MAX_TIMESTAMP or not self.delay:
            return timestamp
        return timestamp - self.delay if timestamp - self.delay > MIN_TIMESTAMP else None

    def end_history(self, before: HistoryTime) -> HistoryTime:
        watermark = before.watermark
        return HistoryTime(
            None if watermark is None else max(watermark - self.delay, MIN_TIMESTAMP),
            before.lag + self.delay,
        )
