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

#: Names of fields, and names of the metrics whose report completes them.
_TRAFFIC = {
    "read_bytes": "numBytesIn",
    "write_bytes": "numBytesOut",
    "read_records": "numRecordsIn",
    "write_records": "numRecordsOut",
}
#: The same of the others.
_TIMES = {
    "accumulated_backpressured_time": "accumulateBackPressuredTimeMs",
    "accumulated_idle_time": "accumulateIdleTimeMs",
    "accumulated_busy_time": "accumulateBusyTimeMs",
}
_SOURCES = {**_TRAFFIC, **_TIMES}


def io_metrics(attempts: Iterable[AttemptDetails]) -> IOMetrics:
    """Sums over the attempts; a part is complete when every attempt has reported it."""
    reports = [attempt.metrics for attempt in attempts]
    totals: dict[str, float] = {
        name: sum(_finite(report, metric) for report in reports) for name, metric in _SOURCES.items()
    }
    busy = totals.pop("accumulated_busy_time")
    complete = {f"{name}_complete": all(m in each for each in reports) for name, m in _TRAFFIC.items()}
    return IOMetrics.model_validate(
        {**{name: int(total) for name, total in totals.items()}, **complete, "accumulated_busy_time": busy}
    )


def aggregated(attempts: Sequence[AttemptDetails], now: int) -> Aggregated:
    """The distribution of each IO metric and of the times in states."""
    durations = [state_durations(attempt, now) for attempt in attempts]
    return Aggregated(
        metrics={
            name.replace("_", "-"): statistics(
                [int(_finite(attempt.metrics, metric)) for attempt in attempts]
            )
            for name, metric in _SOURCES.items()
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
