"""IO metrics of attempts, vertices and TaskExecutors, and statistics over several subtasks.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from yarrow.am.rest.models.metrics import IOMetrics, Statistics
from yarrow.am.rest.models.vertices import Aggregated
from yarrow.am.rest.views.times import LIVING, state_durations
from yarrow.runtime.metrics.aggregation import percentile
from yarrow.runtime.rpc.messages import AttemptDetails

#: Names in REST and names of the metrics.
_SOURCES = (
    ("read-bytes", "numBytesIn"),
    ("write-bytes", "numBytesOut"),
    ("read-records", "numRecordsIn"),
    ("write-records", "numRecordsOut"),
    ("accumulated-backpressured-time", "accumulateBackPressuredTimeMs"),
    ("accumulated-idle-time", "accumulateIdleTimeMs"),
    ("accumulated-busy-time", "accumulateBusyTimeMs"),
)


def io_metrics(attempts: Iterable[AttemptDetails]) -> IOMetrics:
    """Sums over the attempts; a sum is complete when every attempt has reported its part."""
    reports = [attempt.metrics for attempt in attempts]

    def total(metric: str) -> float:
        return sum(_finite(report, metric) for report in reports)

    def complete(metric: str) -> bool:
        return all(metric in report for report in reports)

    return IOMetrics(
        read_bytes=int(total("numBytesIn")),
        read_bytes_complete=complete("numBytesIn"),
        write_bytes=int(total("numBytesOut")),
        write_bytes_complete=complete("numBytesOut"),
        read_records=int(total("numRecordsIn")),
        read_records_complete=complete("numRecordsIn"),
        write_records=int(total("numRecordsOut")),
        write_records_complete=complete("numRecordsOut"),
        accumulated_backpressured_time=int(total("accumulateBackPressuredTimeMs")),
        accumulated_idle_time=int(total("accumulateIdleTimeMs")),
        accumulated_busy_time=total("accumulateBusyTimeMs"),
    )


def aggregated(attempts: Sequence[AttemptDetails], now: int) -> Aggregated:
    """The distribution of each IO metric and of the times in states."""
    durations = [state_durations(attempt, now) for attempt in attempts]
    return Aggregated(
        metrics={
            name: statistics([int(_finite(attempt.metrics, metric)) for attempt in attempts])
            for name, metric in _SOURCES
        },
        status_duration={state: statistics([each[state] for each in durations]) for state in LIVING},
    )


def statistics(values: Sequence[int]) -> Statistics:
    """Whole numbers over the values; zeros when there are none."""
    ordered = sorted(values)
    if not ordered:
        return Statistics(min=0, max=0, avg=0, sum=0, median=0, p25=0, p75=0, p95=0)
    return Statistics(
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) // len(ordered),
        sum=sum(ordered),
        median=percentile(ordered, 0.5),
        p25=percentile(ordered, 0.25),
        p75=percentile(ordered, 0.75),
        p95=percentile(ordered, 0.95),
    )


def _finite(report: Mapping[str, float], metric: str) -> float:
    value = report.get(metric, 0.0)
    return value if abs(value) < float("inf") else 0.0
