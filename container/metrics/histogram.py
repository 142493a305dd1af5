"""Histogram: statistics of the last values, under the field names of Flink's histograms.

Owner: one thread updates it; any thread may read `statistics`, about once a second. Must not know the meaning
of values.
"""

from __future__ import annotations

from collections import deque
from math import ceil, fsum, sqrt

#: The quantiles that Flink's reporters and REST API show of a histogram.
QUANTILES = {
    "median": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p98": 0.98,
    "p99": 0.99,
    "p999": 0.999,
}
#: Default number of remembered values.
WINDOW = 128


class WindowedHistogram:
    """Count and sum of all values; minimum, maximum, mean, deviation and quantiles of the last `size`."""

    def __init__(self, size: int = WINDOW) -> None:
        self.count = 0
        self.sum = 0.0
        self._values: deque[float] = deque(maxlen=size)

    def update(self, value: float) -> None:
        """Adds a value."""
        self.count += 1
        self.sum += value
        self._values.append(value)

    def statistics(self) -> dict[str, float]:
        """Every number by its field name; all are 0 before the first value."""
        values = sorted(self._values)
        mean = fsum(values) / len(values) if values else 0.0
        squares = fsum((value - mean) ** 2 for value in values)
        found = {
            "count": float(self.count),
            "sum": float(self.sum),
            "min": float(values[0]) if values else 0.0,
            "max": float(values[-1]) if values else 0.0,
            "mean": mean,
            "stddev": sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0,
        }
        for label, share in QUANTILES.items():
            found[label] = float(values[max(0, ceil(share * len(values)) - 1)]) if values else 0.0
        return found
