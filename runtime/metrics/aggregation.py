"""One metric over several subtasks, TaskExecutors or jobs: min, max, avg, sum, skew; and percentiles.

Owner: none (pure). Skew is Flink's: the mean absolute deviation from the mean in percent of the mean, at
most 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The five numbers."""

    min: float
    max: float
    avg: float
    sum: float
    skew: float


def aggregate(values: Sequence[float]) -> Aggregate:
    """The aggregates of at least one finite value; ValueError when there is none."""
    if not values:
        raise ValueError("there is nothing to aggregate: pass at least one value")
    total = math.fsum(values)
    # Between the extremes whatever rounding does.
    mean = min(max(total / len(values), min(values)), max(values))
    return Aggregate(min(values), max(values), mean, total, _skew(values, mean))


def _skew(values: Sequence[float], mean: float) -> float:
    if mean == 0:
        return 0.0
    deviation = math.fsum(abs(value - mean) for value in values) / len(values)
    return min(100.0, 100.0 * deviation / abs(mean))


def percentile(ordered: Sequence[int], part: float) -> int:
    """The value below which `part` (0..1) of the ordered values lie, between two by proportion; 0 if none."""
    if not ordered:
        return 0
    position = part * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return int(ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower))
