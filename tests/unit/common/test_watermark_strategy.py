"""Watermark generators: how far behind they stay, idleness by an injected clock, immutable strategies."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Duration, TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.common.watermark_strategy import MIN_TIMESTAMP


class Recorder:
    """A WatermarkOutput that remembers what it was told, in order."""

    def __init__(self) -> None:
        self.events: list[int | str] = []

    def emit_watermark(self, watermark: int) -> None:
        self.events.append(watermark)

    def mark_idle(self) -> None:
        self.events.append("idle")

    def mark_active(self) -> None:
        self.events.append("active")


class HandClock:
    """Processing time moved by the test."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class FirstField(TimestampAssigner):
    """Takes the first field."""

    def extract_timestamp(self, value: tuple[int, str], record_timestamp: int) -> int:
        return value[0]


def generator_of(strategy: WatermarkStrategy) -> WatermarkGenerator:
    return strategy.create_watermark_generator(HandClock())


def test_nothing_is_emitted_before_the_first_record() -> None:
    output = Recorder()
    generator_of(WatermarkStrategy.for_monotonous_timestamps()).on_periodic_emit(output)
    assert output.events == []


@given(st.lists(st.integers(min_value=-(10**9), max_value=10**9), min_size=1), st.integers(0, 10**6))
def test_the_watermark_is_behind_the_greatest_timestamp(timestamps: list[int], delay: int) -> None:
    output = Recorder()
    generator = generator_of(WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay)))
    for timestamp in timestamps:
        generator.on_event(None, timestamp, output)
        generator.on_periodic_emit(output)
    assert output.events == [max(timestamps[: n + 1]) - delay - 1 for n in range(len(timestamps))]


def test_a_watermark_never_falls_below_the_least_time() -> None:
    output = Recorder()
    generator = generator_of(WatermarkStrategy.for_monotonous_timestamps())
    generator.on_event(None, MIN_TIMESTAMP, output)
    generator.on_periodic_emit(output)
    assert output.events == [MIN_TIMESTAMP]


def test_no_watermarks() -> None:
    output = Recorder()
    generator = generator_of(WatermarkStrategy.no_watermarks())
    generator.on_event(None, 5, output)
    generator.on_periodic_emit(output)
    assert output.events == []


def test_a_quiet_stream_becomes_idle_once_and_active_at_the_next_record() -> None:
    clock, output = HandClock(), Recorder()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(100))
    generator = strategy.create_watermark_generator(clock)
    generator.on_event(None, 10, output)
    for clock.now in (0, 50, 100, 149):
        generator.on_periodic_emit(output)
    assert output.events == [9, 9, 9, 9]
    for clock.now in (150, 300):
        generator.on_periodic_emit(output)
    assert output.events[4:] == ["idle"]
    generator.on_event(None, 20, output)
    generator.on_periodic_emit(output)
    assert output.events[5:] == ["active", 19]


def test_strategies_do_not_change() -> None:
    base = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=1))
    assigner = FirstField()
    changed = base.with_timestamp_assigner(assigner).with_idleness(Duration.of_seconds(2))
    assert (base.timestamp_assigner, base.idle_timeout_ms) == (None, None)
    assert (changed.timestamp_assigner, changed.idle_timeout_ms) == (assigner, 2_000)
    aligned = base.with_watermark_alignment("group", Duration.of_seconds(5))
    assert aligned.alignment is not None
    assert (aligned.alignment.max_allowed_watermark_drift, aligned.alignment.update_interval) == (
        5_000,
        1_000,
    )
    assert pickle.loads(pickle.dumps(base)) == base


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="-1 ms"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(ValueError, match="idle_timeout"):
        WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(0))
    with pytest.raises(TypeError, match="TimestampAssigner"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(len)  # type: ignore[arg-type]


def test_alignment_takes_a_group_a_drift_and_an_interval() -> None:
    base = WatermarkStrategy.for_monotonous_timestamps()
    second = Duration.of_seconds(1)
    with pytest.raises(ValueError, match="watermark_group must be a non-empty text, not ''"):
        base.with_watermark_alignment("", second)
    with pytest.raises(ValueError, match="max_allowed_watermark_drift must not be negative: -1 ms"):
        base.with_watermark_alignment("group", Duration.of_millis(-1))
    with pytest.raises(ValueError, match="update_interval must be at least 1 ms, not 0 ms"):
        base.with_watermark_alignment("group", second, Duration.of_millis(0))
