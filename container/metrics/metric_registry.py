"""MetricRegistry: the metrics of one subtask: user metrics by operator, and the built-in counters, read once a second.

Owner: the task thread writes; the report thread reads values, and single reads are safe in Python. Names are
Flink's; operator metrics are reported as `<operator name>.<metric>`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from math import inf

from yarrow.common.metrics import Counter, Distribution, Meter, MetricGroup
from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.late_records import LateRecords
from yarrow.runtime.metrics.rate import RateBetweenReadings

_UNSAFE = re.compile(r"[^a-zA-Z0-9]")


def metric_scope(operator_name: str) -> str:
    """An operator's name in Flink's REST ids: characters other than letters and digits become `_`."""
    return _UNSAFE.sub("_", operator_name)


class TaskCounter(Counter):
    """A plain count."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class TaskMeter(Meter):
    """Events per second over the last `span` seconds, from samples a second apart."""

    def __init__(self, clock: Clock, span: int) -> None:
        self._clock = clock
        self._span = max(1, span)
        self._count = 0
        self._samples: deque[tuple[float, int]] = deque([(clock.monotonic(), 0)])

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        now = self._clock.monotonic()
        samples = self._samples
        if now - samples[-1][0] >= 1.0:
            samples.append((now, self._count))
        while len(samples) > 1 and now - samples[0][0] > self._span:
            samples.popleft()
        elapsed = now - samples[0][0]
        return (self._count - samples[0][1]) / elapsed if elapsed > 0 else 0.0


class TaskDistribution(WindowedHistogram, Distribution):
    """Count, sum, minimum, maximum and mean of all reported values, and quantiles of the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self._least = inf
        self._greatest = -inf

    def update(self, value: float) -> None:
        super().update(value)
        self._least = min(self._least, value)
        self._greatest = max(self._greatest, value)

    def statistics(self) -> dict[str, float]:
        found = super().statistics()
        if self.count:
            found |= {"min": self._least, "max": self._greatest, "mean": self.sum / self.count}
        return found


class MetricRegistry:
    """All metrics of one subtask by reported name."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._readers: dict[str, Callable[[], float | None]] = {}
        self._groups: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._histograms: dict[str, WindowedHistogram] = {}
        self._late: list[Callable[[], LateRecords | None]] = []

    def register_late(self, reader: Callable[[], LateRecords | None]) -> None:
        """Registers what an operator tells of late records."""
        self._late.append(reader)

    def late_records(self) -> tuple[LateRecords, ...]:
        """The late records of each operator that has some."""
        return tuple(found for reader in self._late.copy() if (found := reader()) is not None)

    def register(self, name: str, reader: Callable[[], float | None]) -> None:
        """Registers a metric that is read by calling `reader`; a second one of a name replaces the first.

        While `reader` returns None, the metric is left out.
        """
        self._readers[name] = reader

    def register_group(self, prefix: str, reader: Callable[[], Mapping[str, float]]) -> None:
        """Registers metrics whose names may change: `reader` returns those of now, and each gets the prefix."""
        self._groups[prefix] = reader

    def counted(self, name: str, total: Callable[[], float]) -> None:
        """Registers a count, and its growth per second as `<name>PerSecond`."""
        self.register(name, total)
        self.register(f"{name}PerSecond", RateBetweenReadings(total))

    def register_histogram(self, name: str, histogram: WindowedHistogram) -> None:
        """Registers a histogram, reported as one value a field: `<name>_min`, `<name>_p99` and so on."""
        self._histograms[name] = histogram

    def unregister(self, prefix: str) -> None:
        """Removes every metric whose name has that prefix."""
        for name in [name for name in list(self._readers) if name.startswith(prefix)]:
            del self._readers[name]
        for name in [name for name in list(self._groups) if name.startswith(prefix)]:
            del self._groups[name]

    def values(self) -> dict[str, float]:
        """All present values; a gauge that raises is left out."""
        result: dict[str, float] = {}
        for name, reader in list(self._readers.items()):
            try:
                value = reader()
                if value is not None:
                    result[name] = float(value)
            except Exception:  # a user's gauge must not stop the report of the others
                continue
        for prefix, group in list(self._groups.items()):
            try:
                result |= {f"{prefix}{name}": float(value) for name, value in group().items()}
            except Exception:  # so must a connector's metrics
                continue
        for name, histogram in list(self._histograms.items()):
            for field, number in histogram.statistics().items():
                result[f"{name}_{field}"] = number
        return result


class OperatorMetricGroup(MetricGroup):
    """The metric group that functions of one operator get."""

    def __init__(self, registry: MetricRegistry, scope: tuple[str, ...]) -> None:
        self._registry = registry
        self._scope = scope
        self._counters: dict[str, TaskCounter] = {}
        self._meters: dict[str, TaskMeter] = {}
        self._distributions: dict[str, TaskDistribution] = {}

    def register(self, name: str, reader: Callable[[], float | None]) -> None:
        """Registers a metric of the engine that has no value while `reader` returns None."""
        self._registry.register(self.get_metric_identifier(name), reader)

    def register_group(self, reader: Callable[[], Mapping[str, float]]) -> None:
        """Registers what `reader` returns as metrics of this group."""
        self._registry.register_group(self.get_metric_identifier(""), reader)

    def unregister(self) -> None:
        """Removes all metrics of this group."""
        self._registry.unregister(self.get_metric_identifier(""))

    def add_group(self, name: str, extra: str | None = None) -> OperatorMetricGroup:
        added = (name,) if extra is None else (name, extra)
        return OperatorMetricGroup(self._registry, self._scope + added)

    def get_metric_identifier(self, metric_name: str) -> str:
        return ".".join((*self._scope, metric_name))

    def counter(self, name: str) -> Counter:
        if name not in self._counters:
            counter = self._counters[name] = TaskCounter()
            self._registry.register(self.get_metric_identifier(name), counter.get_count)
        return self._counters[name]

    def gauge(self, name: str, obj: Callable[[], int | float]) -> None:
        self._registry.register(self.get_metric_identifier(name), obj)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        if name not in self._meters:
            meter = self._meters[name] = TaskMeter(self._registry.clock, time_span_in_seconds)
            self._registry.register(self.get_metric_identifier(name), meter.get_rate)
        return self._meters[name]

    def distribution(self, name: str) -> Distribution:
        if name not in self._distributions:
            made = self._distributions[name] = TaskDistribution()
            self._registry.register_histogram(self.get_metric_identifier(name), made)
        return self._distributions[name]
