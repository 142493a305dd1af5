"""SplitTime: the event time of one split: its generator, the clock of its idleness, its last row and its metrics.

Owner: the task thread; metrics and the answer to "who holds event time back" read it from other threads. Must not
know other splits.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.metrics.metric_registry import OperatorMetricGroup
from yarrow.container.operators.event_time import WatermarkTracker
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.pausable_clock import PausableClock
from yarrow.container.operators.sources.source_metrics import SplitMetrics
from yarrow.runtime.rpc.messages import SplitTimeReport


class SplitTime:
    """A split as event time sees it; also the whole input of a reader whose records name no split."""

    def __init__(
        self,
        strategy: WatermarkStrategy,
        read_time: Callable[[], int],
        max_jump_ms: int | None,
        changed: Callable[[], None],
        ledger: LateLedger,
    ) -> None:
        """`read_time` is a clock in ms that stands while no split is read; `changed` hears of moves and idleness."""
        #: By how much the watermark is behind the greatest timestamp; None = only the generator knows it.
        self._delay_ms = strategy.max_out_of_orderness_ms
        self._changed = changed
        #: Stands while the split cannot be reached.
        self._reached_time = PausableClock(read_time)
        #: Time to idleness, which stands while the alignment pauses the split, too.
        self._idle_time = PausableClock(self._reached_time)
        generator = strategy.create_watermark_generator(self._idle_time)
        self.tracker = WatermarkTracker(generator, max_jump_ms, self._note_change, ledger)
        self._metrics: SplitMetrics | None = None
        #: Timestamp of the last row, if it has one, and epoch ms at which it ran; None before the first.
        self.last_row: tuple[int | None, int] | None = None

    def measure(self, group: OperatorMetricGroup, split_id: str) -> None:
        """Registers the metrics of the split."""
        self._metrics = SplitMetrics(group, split_id, self.tracker)

    def remove(self) -> None:
        """Removes the metrics of an ended split."""
        if self._metrics is not None:
            self._metrics.remove()

    def _note_change(self) -> None:
        self._changed()
        self._note_phase()

    def _note_phase(self) -> None:
        if self._metrics is not None:
            self._metrics.changed(paused=self.paused)

    # ------------------------------------------------------------------ rows

    def note_rows(self, timestamp: int | None, now_ms: int) -> None:
        """Notes the last one of the rows that have run; None = it has no timestamp."""
        self.last_row = (timestamp, now_ms)

    def report(self, split_id: str) -> SplitTimeReport:
        """What is known of the split's event time. Any thread."""
        last = self.last_row
        return SplitTimeReport(
            split_id=split_id,
            watermark=self.tracker.watermark,
            last_timestamp=None if last is None else last[0],
            last_row_ms=None if last is None else last[1],
            idle=self.tracker.idle,
            paused=self.paused,
        )

    # ------------------------------------------------------------------ alignment

    @property
    def reached(self) -> int:
        """The event time that the split has reached: its watermark, or the one that its generator will emit next."""
        greatest = self.tracker.greatest
        if self._delay_ms is None or greatest is None:
            return self.tracker.watermark
        return max(self.tracker.watermark, greatest - self._delay_ms - 1)

    @property
    def paused(self) -> bool:
        """True while the alignment does not read the split."""
        return self._idle_time.paused

    def pause(self, paused: bool) -> None:
        """Takes note that the split is not read, because it is ahead of its group; or that it is read again."""
        if paused is not self.paused:
            self._idle_time.pause(paused)
            self._note_phase()

    # ------------------------------------------------------------------ outages

    def reach(self, reached: bool) -> None:
        """Takes note that the place from which the split is read cannot be reached, or can be reached again."""
        self._reached_time.pause(not reached)
