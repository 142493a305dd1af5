"""Latency markers: who measures them, under which names, at each granularity; their fields are those of a histogram."""

from __future__ import annotations

import pytest

from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.container.metrics.metric_registry import MetricRegistry
from yarrow.container.task.latency import LatencySettings, LatencyTracker
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.options.metrics import LatencyGranularity
from yarrow.runtime.data.elements import LatencyMarker

SOURCE = "5" * 32


def tracker(
    clock: ManualClock, granularity: LatencyGranularity = LatencyGranularity.OPERATOR, interval_ms: int = 100
) -> tuple[LatencyTracker, MetricRegistry]:
    registry = MetricRegistry(clock)
    made = LatencyTracker(LatencySettings(interval_ms, granularity, 4), ["a", "b"], 3, registry, clock)
    return made, registry


@pytest.mark.parametrize(
    ("granularity", "scope"),
    [
        (LatencyGranularity.SINGLE, ""),
        (LatencyGranularity.OPERATOR, f"source_id.{SOURCE}."),
        (LatencyGranularity.SUBTASK, f"source_id.{SOURCE}.source_subtask_index.7."),
    ],
)
def test_every_operator_of_the_chain_counts_an_arriving_marker(
    granularity: LatencyGranularity, scope: str
) -> None:
    clock = ManualClock(1000)
    markers, registry = tracker(clock, granularity)
    markers.arrived(LatencyMarker(970, SOURCE, 7))
    markers.arrived(LatencyMarker(990, SOURCE, 7))
    values = registry.values()
    for operator in "ab":
        name = f"latency.{scope}operator_id.{operator}.operator_subtask_index.3.latency"
        assert values[f"{name}_min"] == 10
        assert values[f"{name}_max"] == 30
        assert values[f"{name}_mean"] == 20
        assert values[f"{name}_stddev"] == pytest.approx(14.14, abs=0.01)
        fields = ("median", "p75", "p90", "p95", "p98", "p99", "p999")
        assert [values[f"{name}_{field}"] for field in fields] == [10, *[30] * 6]


def test_a_source_sends_at_intervals_and_its_chain_is_reached_at_once() -> None:
    clock = ManualClock(1000)
    markers, registry = tracker(clock)
    marker = markers.due()
    assert marker is not None
    assert (marker.marked_time_ms, marker.operator_id, marker.subtask) == (1000, "a", 3)
    assert markers.due() is None
    clock.advance(0.1)
    assert markers.seconds_until_due() == 0
    assert markers.due() is not None
    values = registry.values()
    assert values["latency.source_id.a.operator_id.b.operator_subtask_index.3.latency_max"] == 0
    assert not any("operator_id.a." in name for name in values)


def test_an_interval_of_nothing_sends_none() -> None:
    markers, _ = tracker(ManualClock(), interval_ms=0)
    assert markers.due() is None
    assert markers.seconds_until_due() is None


def test_a_histogram_remembers_the_last_values() -> None:
    histogram = WindowedHistogram(3)
    assert set(histogram.statistics().values()) == {0.0}
    for value in (100, 1, 2, 3):
        histogram.update(value)
    found = histogram.statistics()
    assert (found["min"], found["median"], found["max"], found["mean"], found["stddev"]) == (1, 2, 3, 2, 1)
    assert (found["count"], found["sum"]) == (4, 106)


def test_a_quantile_is_the_smallest_value_that_such_a_share_does_not_exceed() -> None:
    histogram = WindowedHistogram(200)
    for value in range(1, 101):
        histogram.update(value)
    found = histogram.statistics()
    assert [found[field] for field in ("median", "p75", "p99", "p999")] == [50, 75, 99, 100]
