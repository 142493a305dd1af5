"""Metrics of one subtask: user metrics by operator, and the built-in counters, read once a second.

Owner: the task thread writes; the I/O thread reads values for reports, which Python makes safe for single reads.
Names are Flink's; operator metrics are reported as `<operator name>.<metric>`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from yarrow.common.metrics import Counter, Distribution, Meter, MetricGroup
from yarrow.runtime.common.clock import Clock

_UNSAFE = re.compile(r"[^a-zA-Z0-9]")


def metric_scope(operator_name: str) -> str:
    """An operator's name as Flink's REST ids have it: other characters than letters and digits become `_`."""
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


class TaskDistribution(Distribution):
    """Count, sum, minimum and maximum of reported values."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0

    def update(self, value: int) -> None:
        self.min = value if self.count == 0 else min(self.min, value)
        self.max = value if self.count == 0 else max(self.max, value)
        self.count += 1
        self.sum += value


class MetricRegistry:
    """All metrics of one subtask by reported name."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._readers: dict[str, Callable[[], float]] = {}

    def register(self, name: str, reader: Callable[[], float]) -> None:
        """A metric read by calling `reader`; a second one of a name replaces the first."""
        self._readers[name] = reader

    def values(self) -> dict[str, float]:
        """All present values; a gauge that raises is left out."""
        result: dict[str, float] = {}
        for name, reader in list(self._readers.items()):
            try:
                result[name] = float(reader())
            except Exception:  # a user's gauge must not stop the report of the others
                continue
        return result


class OperatorMetricGroup(MetricGroup):
    """The metric group that functions of one operator get."""

    def __init__(self, registry: MetricRegistry, scope: tuple[str, ...]) -> None:
        self._registry = registry
        self._scope = scope
        self._counters: dict[str, TaskCounter] = {}
        self._meters: dict[str, TaskMeter] = {}
        self._distributions: dict[str, TaskDistribution] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
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
            identifier = self.get_metric_identifier(name)
            for part in ("count", "sum", "min", "max"):
                self._registry.register(f"{identifier}_{part}", lambda p=part, d=made: getattr(d, p))  # type: ignore[misc]
        return self._distributions[name]
