"""Latency markers: when a source sends one, and what the tasks they reach have measured.

Owner: the task thread; values are read by the reporting thread. A marker is stamped at a source every
`metrics.latency.interval` and takes one channel of each output in turn, so that their number does not grow from task to
task. It measures queues and exchanges, not the time inside functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import stdev

from yarrow.container.task.metric_registry import MetricRegistry
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.options import metrics
from yarrow.runtime.config.options.metrics import LatencyGranularity
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import LatencyMarker

#: The fields of a histogram in Flink's REST API, apart from min, max, mean and stddev.
_QUANTILES = {
    "median": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p98": 0.98,
    "p99": 0.99,
    "p999": 0.999,
}


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """The options of latency tracking; an interval of 0 sends no markers."""

    interval_ms: int
    granularity: LatencyGranularity
    history: int

    @staticmethod
    def of(settings: Settings) -> LatencySettings:
        """From the job's settings."""
        return LatencySettings(
            interval_ms=round(settings.get(metrics.LATENCY_INTERVAL).seconds * 1000),
            granularity=settings.get(metrics.LATENCY_GRANULARITY),
            history=settings.get(metrics.LATENCY_HISTORY_SIZE),
        )


class LatencyHistogram:
    """The last so many latencies in milliseconds."""

    def __init__(self, size: int) -> None:
        self._values: deque[int] = deque(maxlen=size)

    def update(self, milliseconds: int) -> None:
        """A marker took that long from its source to here."""
        self._values.append(milliseconds)

    def quantile(self, share: float) -> float:
        """The smallest value that at least that share of the values does not exceed; 0 without values."""
        values = sorted(self._values)
        return float(values[max(0, ceil(share * len(values)) - 1)]) if values else 0.0

    @property
    def mean(self) -> float:
        """Mean of the values; 0 without values."""
        values = list(self._values)
        return sum(values) / len(values) if values else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the values; 0 below two."""
        values = list(self._values)
        return stdev(values) if len(values) > 1 else 0.0


class LatencyTracker:
    """The markers of one task; `operators` are the ids of its chain, head first."""

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
        self._histograms: dict[str, LatencyHistogram] = {}

    def seconds_until_due(self) -> float | None:
        """When a source sends its next marker; None = never."""
        return max(0.0, self._next_at - self._clock.monotonic()) if self._settings.interval_ms > 0 else None

    def due(self) -> LatencyMarker | None:
        """The marker that a source has to send now; operators chained to the source are reached at once."""
        if self._settings.interval_ms <= 0 or self._clock.monotonic() < self._next_at:
            return None
        self._next_at = self._clock.monotonic() + self._settings.interval_ms / 1000
        marker = LatencyMarker(self._clock.epoch_ms(), self._operators[0], self._subtask)
        self._count(marker, self._operators[1:])
        return marker

    def arrived(self, marker: LatencyMarker) -> None:
        """A marker has come to this task: each operator of the chain counts it."""
        self._count(marker, self._operators)

    def _count(self, marker: LatencyMarker, operators: Sequence[str]) -> None:
        source = self._source_scope(marker)
        histogram = self._histograms.get(source)
        if histogram is None:
            histogram = self._histograms[source] = LatencyHistogram(self._settings.history)
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

    def _register(self, source: str, operators: Sequence[str], histogram: LatencyHistogram) -> None:
        for operator in operators:
            name = f"latency.{source}operator_id.{operator}.operator_subtask_index.{self._subtask}.latency"
            self._registry.register(f"{name}_mean", lambda: histogram.mean)
            self._registry.register(f"{name}_stddev", lambda: histogram.deviation)
            self._registry.register(f"{name}_min", partial(histogram.quantile, 0.0))
            self._registry.register(f"{name}_max", partial(histogram.quantile, 1.0))
            for label, share in _QUANTILES.items():
                self._registry.register(f"{name}_{label}", partial(histogram.quantile, share))
