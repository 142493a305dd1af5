"""The metrics of a source and of its splits: lags of event time, idleness, what is still to be read.

Owner: the task thread notes once a poll or a part of it; the reporting thread reads, about once a second. Nothing is
noted for a single record. The rules are those of Flink's source metrics (FLIP-33): an idle source's lags stand still,
and a lag is absent until there is an event time or a watermark to measure.
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
    """What the metrics of one source are made of; `watermark` gives the last one that the source sent on."""

    def __init__(self, group: OperatorMetricGroup, clock: Clock, watermark: Callable[[], int]) -> None:
        self._clock = clock
        self._watermark = watermark
        #: Epoch ms at which the last poll with records returned.
        self._fetched_at = 0
        #: Timestamp of the last record emitted; None before the first that has one.
        self._event_time: int | None = None
        #: Epoch ms since when nothing is there; None while records come.
        self._idle_since: int | None = None
        group.register("currentEmitEventTimeLag", self._emit_lag)
        group.register("currentFetchEventTimeLag", self._fetch_lag)
        group.register("watermarkLag", self._watermark_lag)
        group.register("sourceIdleTime", self._idle_time)

    # ------------------------------------------------------------------ task thread

    def fetched(self) -> None:
        """A poll has given records."""
        self._fetched_at = self._clock.epoch_ms()
        self._idle_since = None

    def nothing_there(self) -> None:
        """A poll has found nothing."""
        if self._idle_since is None:
            self._idle_since = self._clock.epoch_ms()

    def emitted(self, records: SourceRecords) -> None:
        """Records with their timestamps went into the chain."""
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


def register_pending(group: OperatorMetricGroup, reader: SourceReader[Any, Any]) -> None:
    """Registers what the reader can tell of records and bytes that it has still to read."""
    kind = type(reader)
    if kind.pending_records is not SourceReader.pending_records:
        group.register("pendingRecords", reader.pending_records)
    if kind.pending_bytes is not SourceReader.pending_bytes:
        group.register("pendingBytes", reader.pending_bytes)


class SplitMetrics:
    """Watermark of one split, and how long it was active and idle."""

    def __init__(self, group: OperatorMetricGroup, split_id: str, tracker: WatermarkTracker) -> None:
        self._group = group.add_group("split", split_id).add_group("watermark")
        self._tracker = tracker
        now = perf_counter()
        self._time = TimeAccounting(now)
        self._time.enter(Phase.BUSY, now)
        self._group.register("currentWatermark", lambda: tracker.watermark)
        for name, phase in (("Active", Phase.BUSY), ("Idle", Phase.IDLE)):
            total = self._total(phase)
            self._group.register(f"accumulated{name}TimeMs", total)
            self._group.register(f"{name.lower()}TimeMsPerSecond", RateBetweenReadings(total))

    def _total(self, phase: Phase) -> Callable[[], float]:
        return lambda: self._time.totals_ms(perf_counter())[phase]

    def changed(self) -> None:
        """The split's generator may have become idle, or active again."""
        phase = Phase.IDLE if self._tracker.idle else Phase.BUSY
        if phase is not self._time.phase:
            self._time.enter(phase, perf_counter())

    def remove(self) -> None:
        """The split has ended."""
        self._group.unregister()
