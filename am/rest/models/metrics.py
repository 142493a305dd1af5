"""Bodies of metric requests.

Owner: none (declarations).
"""

from __future__ import annotations

from pydantic import Field

from yarrow.am.rest.models.base import HyphenModel, NumberOrNaN, RestModel


class MetricBody(RestModel):
    """A metric: its name, and its value as text if `get` names the metric."""

    id: str
    value: str | None = Field(default=None, description="Left out when no metric was asked for by name.")


class AggregatedMetric(RestModel):
    """A metric over several subtasks, TaskExecutors or jobs; `agg` chooses the computation."""

    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None
    #: Mean deviation from the mean in percent of it, at most 100.
    skew: float | None = None


class IOMetrics(HyphenModel):
    """Records and bytes of a subtask or vertex, and its times (milliseconds)."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: NumberOrNaN


class Statistics(RestModel):
    """A number over several subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int
