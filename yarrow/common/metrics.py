"""Metrics: the interfaces by which user functions count and measure.

Called by the thread that owns the task. The runtime's metrics part registers, reads and reports them; nothing
here keeps a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


class Metric(ABC):  # noqa: B024
    """A counter, a meter or a distribution; a gauge is a function, and no Metric."""


class Counter(Metric):
    """A metric that goes up and down."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add `n`."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the number."""


class Meter(Metric):
    """A rate of events."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Count `value` events now."""

    @abstractmethod
    def get_rate(self) -> float:
        """Return events per second over the time span of the meter."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the number of events so far."""


class Distribution(Metric):
    """Count, sum, least, greatest and mean of whole numbers."""

    @abstractmethod
    def update(self, value: int) -> None:
        """Add a number."""


class MetricGroup(ABC):
    """A named scope of metrics.

    A name that is taken in the group is refused by the runtime with a warning.
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return the group `name` inside this one.

        With `extra`, the group of the key `name` and the value `extra`.
        """

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Register a counter."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int | float]) -> None:
        """Register a function that is asked for the value when metrics are read.

        It must be quick and not block.
        """

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Register a meter whose rate is over `time_span_in_seconds`."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Register a distribution."""

    @abstractmethod
    def get_metric_identifier(self, metric_name: str) -> str:
        """Return the full name of a metric of this group."""
