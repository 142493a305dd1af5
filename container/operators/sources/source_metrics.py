"""SourceMetrics: the metrics of a source and its splits: lags of event time, idleness, pending records and bytes.

Owner: the task thread writes once for each poll or part of it; the reporting thread reads, about once a
second. No single record is noted. The rules are those of Flink's source metrics (FLIP-33). The lags of an
idle source stay constant. A lag is absent before the first event time or watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.container.metrics.metric_registry import OperatorMetricGroup
from yarrow.container.metrics.time_accounting import Phase, TimeAccounting
from yarrow.container.operators.event_time import WatermarkTracker
from yarrow.datastream.connectors.base import SourceReader, SourceRecords
from yarrow.runtime.common.clock import Clock, perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.metrics.rate import RateBetweenReadings


class SourceMetrics:
    """The values behind one source's metrics; `watermark` returns the last one that the source sent."""

    def __init__(self, group: OperatorMetricGroup, clock: Clock, watermark: Callable[[], int]) -> None:
        self._clock = clock
        self._watermark = watermark
        #: Epoch ms at which the last poll with records returned.
        self._fetched_at = 0
        #: Timestamp of the last emitted record; None before the first that has one.
        self._event_time: int | None = None
        #: Epoch ms since which no record is available; None while records come.
        self._idle_since: int | None = None
        group.register("currentEmitEventTimeLag", self._emit_lag)
        group.register("currentFetchEventTimeLag", self._fetch_lag)
        group.register("watermarkLag", self._watermark_lag)
        group.register("sourceIdleTime", self._idle_time)

    # ------------------------------------------------------------------ task thread

    def fetched(self) -> None:
        """Notes a poll with records."""
        self._fetched_at = self._clock.epoch_ms()
        self._idle_since = None

    def nothing_there(self) -> None:
        """Notes a poll without records."""
        if self._idle_since is None:
            self._idle_since = self._clock.epoch_ms()

    def emitted(self, records: SourceRecords) -> None:
        """Notes records that went into the chain, with their timestamps."""
        stamps = records.timestamps
        if stamps is not None and len(stamps) and (last := stamps[-1]) is not None:
            self._event_time = last

    # ------------------------------------------------------------------ reporting thread

    def _last_emit(self) -> int:
        return self._clock.epoch_ms() if self._idle_since is None else self._idle_since

    def _emit_lag(self) -> int | None:
        return None if self._event_time is None else self._last_emit() - self._event_time

    def _fetch_lag(self) -> int | None:
        return None if self._event_time is None else self._fetched_at - self._event_time

    def _watermark_lag(self) -> int | None:
        watermark = self._watermark()
        return self._last_emit() - watermark if MIN_TIMESTAMP < watermark < MAX_TIMESTAMP else None

    def _idle_time(self) -> int:
        return 0 if self._idle_since is None else self._clock.epoch_ms() - self._idle_since


def register_reader(group: OperatorMetricGroup, reader: SourceReader[Any, Any]) -> None:
    """Registers the reader's numbers of pending records and bytes, and its own metrics."""
    kind = type(reader)
    if kind.pending_records is not SourceReader.pending_records:
        group.register("pendingRecords", reader.pending_records)
    if kind.pending_bytes is not SourceReader.pending_bytes:
        group.register("pendingBytes", reader.pending_bytes)
    if kind.own_metrics is not SourceReader.own_metrics:
        group.register_group(reader.own_metrics)


#: A split is paused as a task is that waits for others: by the alignment of watermarks.
_PAUSED = Phase.BACK_PRESSURED


class SplitMetrics:
    """The watermark of one split, and its active, paused and idle times."""

    def __init__(self, group: OperatorMetricGroup, split_id: str, tracker: WatermarkTracker) -> None:
        self._group = group.add_group("split", split_id).add_group("watermark")
        self._tracker = tracker
        now = perf_counter()
        self._time = TimeAccounting(now)
        self._time.enter(Phase.BUSY, now)
        self._group.register("currentWatermark", lambda: tracker.watermark)
        for name, phase in (("Active", Phase.BUSY), ("Paused", _PAUSED), ("Idle", Phase.IDLE)):
            total = self._total(phase)
            self._group.register(f"accumulated{name}TimeMs", total)
            self._group.register(f"{name.lower()}TimeMsPerSecond", RateBetweenReadings(total))

    def _total(self, phase: Phase) -> Callable[[], float]:
        return lambda: self._time.totals_ms(perf_counter())[phase]

    def changed(self, *, paused: bool) -> None:
        """Notes that the split may have been paused, or that its generator may have become idle, or the opposite."""
        phase = _PAUSED if paused else Phase.IDLE if self._tracker.idle else Phase.BUSY
        if phase is not self._time.phase:
            self._time.enter(phase, perf_counter())

    def remove(self) -> None:
        """Removes the metrics of an ended split."""
        self._group.unregister()
