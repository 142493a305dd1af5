"""LatencyTracker: when a source sends latency markers, and the latencies that their receivers measure.

Owner: the task thread; the reporting thread reads values. A source stamps a marker every
`metrics.latency.interval`. A marker takes one channel of each output in turn, so that the number of markers
does not grow from task to task. It measures queues and exchanges, not the time inside functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.container.metrics.metric_registry import MetricRegistry
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.options import metrics
from yarrow.runtime.config.options.metrics import LatencyGranularity
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import LatencyMarker


class LatencySettings(msgspec.Struct, frozen=True):
    """The options of latency tracking; an interval of 0 sends no markers."""

    interval_ms: int
    granularity: LatencyGranularity
    history: int

    @staticmethod
    def of(settings: Settings) -> LatencySettings:
        """Reads the job's settings."""
        return LatencySettings(
            interval_ms=round(settings.get(metrics.LATENCY_INTERVAL).seconds * 1000),
            granularity=settings.get(metrics.LATENCY_GRANULARITY),
            history=settings.get(metrics.LATENCY_HISTORY_SIZE),
        )


class LatencyTracker:
    """The latency markers of one task; `operators` are the ids of its chain, head first."""

    def __init__(
        self,
        settings: LatencySettings,
        operators: Sequence[str],
        subtask: int,
        registry: MetricRegistry,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._operators = operators
        self._subtask = subtask
        self._registry = registry
        self._clock = clock
        self._next_at = clock.monotonic()
        self._histograms: dict[str, WindowedHistogram] = {}

    def seconds_until_due(self) -> float | None:
        """Seconds until a source sends its next marker; None = never."""
        return max(0.0, self._next_at - self._clock.monotonic()) if self._settings.interval_ms > 0 else None

    def due(self) -> LatencyMarker | None:
        """The marker that a source must send now; operators chained to the source are reached at once."""
        if self._settings.interval_ms <= 0 or self._clock.monotonic() < self._next_at:
            return None
        self._next_at = self._clock.monotonic() + self._settings.interval_ms / 1000
        marker = LatencyMarker(self._clock.epoch_ms(), self._operators[0], self._subtask)
        self._count(marker, self._operators[1:])
        return marker

    def arrived(self, marker: LatencyMarker) -> None:
        """Counts a marker for each operator of the chain."""
        self._count(marker, self._operators)

    def _count(self, marker: LatencyMarker, operators: Sequence[str]) -> None:
        source = self._source_scope(marker)
        histogram = self._histograms.get(source)
        if histogram is None:
            histogram = self._histograms[source] = WindowedHistogram(self._settings.history)
            self._register(source, operators, histogram)
        histogram.update(max(0, self._clock.epoch_ms() - marker.marked_time_ms))

    def _source_scope(self, marker: LatencyMarker) -> str:
        granularity = self._settings.granularity
        if granularity is LatencyGranularity.SINGLE:
            return ""
        source = f"source_id.{marker.operator_id}."
        if granularity is LatencyGranularity.SUBTASK:
            source += f"source_subtask_index.{marker.subtask}."
        return source

    def _register(self, source: str, operators: Sequence[str], histogram: WindowedHistogram) -> None:
        for operator in operators:
            name = f"latency.{source}operator_id.{operator}.operator_subtask_index.{self._subtask}.latency"
            self._registry.register_histogram(name, histogram)
