"""SourceAlignment: reports, bounds, pauses of splits, idleness while a split waits, and the bound in the state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.container.operators.sources.test_source_watermarks import MONOTONOUS, Bench
from yarrow.common import Duration, WatermarkStrategy
from yarrow.container.operators.base import ReaderProgress
from yarrow.container.operators.sources.source_alignment import SourceAlignment
from yarrow.container.protocol.errors import WatermarkAlignmentError
from yarrow.datastream.connectors.base import NothingAvailable, SourceReader
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


class Whole(SourceReader[Any, Any]):
    """Cannot pause single splits."""

    def poll(self, max_rows: int) -> NothingAvailable:
        return NothingAvailable()

    def add_splits(self, splits: Any) -> None:
        return None

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return []


class Pausing(Whole):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[list[str], list[str]]] = []

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        self.told.append((list(splits_to_pause), list(splits_to_resume)))


class Kept:
    """A list of operator state."""

    def __init__(self, *elements: int) -> None:
        self.elements = list(elements)

    def get(self) -> list[int]:
        return self.elements

    def update(self, elements: list[int]) -> None:
        self.elements = elements


ALIGNED = MONOTONOUS.with_watermark_alignment("group", Duration.of_millis(10), Duration.of_millis(500))
ALLOWED = {"pipeline_watermark-alignment_allow-unaligned-source-splits": "true"}


class Aligning(Bench):
    """A reader with its splits' times and its alignment; reports are kept."""

    def __init__(
        self,
        reader: SourceReader[Any, Any],
        *restored: int,
        strategy: WatermarkStrategy = ALIGNED,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(strategy, **(options or {}))
        self.reports: list[ReaderProgress] = []
        self.state = Kept(*restored)
        context: Any = self.context
        context.operator_state = SimpleNamespace(union_list_state=lambda descriptor: self.state)
        assert strategy.alignment is not None
        self.alignment = SourceAlignment(
            "numbers", strategy.alignment, context, self.time, self.reports.append
        )
        self.alignment.read_by(reader)
        self.alignment.begin()

    def add(self, *splits: str) -> None:
        self.time.add_splits(splits)
        self.alignment.splits_added()

    def read(self, *rows: Any, split: str | None = None, ended: Collection[str] = ()) -> None:
        super().read(*rows, split=split, ended=tuple(ended))
        self.alignment.rows_ran()

    def tick(self, seconds: float = 0.2) -> None:
        super().tick(seconds)
        self.alignment.report_if_due(self.clock.epoch_ms())

    @property
    def reached(self) -> list[int | None]:
        return [report.reached for report in self.reports]


def test_a_reader_waits_for_its_first_bound_and_goes_on_up_to_it() -> None:
    bench = Aligning(Pausing())
    bench.add("a")
    assert bench.alignment.may_poll()
    bench.read(100, split="a")
    assert not bench.alignment.may_poll()
    assert bench.reports[-1] == ReaderProgress("group", 99, 10, 500, True)
    bench.alignment.take_bound(99)
    assert bench.alignment.may_poll()
    bench.read(101, split="a")
    assert not bench.alignment.may_poll()
    bench.alignment.take_bound(MAX_TIMESTAMP)
    assert bench.alignment.may_poll()


def test_reports_follow_at_the_interval_where_something_has_changed() -> None:
    bench = Aligning(Pausing(), 1000)
    bench.add("a")
    assert bench.reached == [None, MIN_TIMESTAMP]
    bench.read(100, split="a")
    assert bench.alignment.may_poll()
    for _ in range(3):
        bench.tick()
    assert bench.reached == [None, MIN_TIMESTAMP, 99]
    for _ in range(6):
        bench.tick()
    assert len(bench.reports) == 3
    assert not bench.reports[-1].needs_bound


def test_a_reader_that_has_ended_holds_nobody_back() -> None:
    """Its task may go on: with subtask 0 lives the coordinator of all readers."""
    bench = Aligning(Pausing(), 1000)
    bench.add("a")
    bench.read(100, split="a")
    bench.alignment.end()
    assert bench.reached == [None, MIN_TIMESTAMP, None]
    for _ in range(6):
        bench.tick()
    assert len(bench.reports) == 3


def test_the_split_that_is_ahead_is_paused_and_resumed() -> None:
    reader = Pausing()
    bench = Aligning(reader, 50)
    bench.add("a", "b")
    bench.read(100, split="a")
    bench.read(20, split="b")
    assert bench.alignment.may_poll()
    assert reader.told == [(["a"], [])]
    assert bench.alignment.may_poll()
    assert len(reader.told) == 1
    bench.alignment.take_bound(99)
    assert bench.alignment.may_poll()
    assert reader.told == [(["a"], []), ([], ["a"])]


def test_a_split_that_ends_while_it_is_paused_is_not_resumed() -> None:
    reader = Pausing()
    bench = Aligning(reader, 50)
    bench.add("a", "b", "c")
    bench.read(100, split="a")
    assert bench.alignment.may_poll()
    bench.read(20, split="b", ended=["a"])
    bench.alignment.take_bound(200)
    assert bench.alignment.may_poll()
    assert reader.told == [(["a"], [])]


def test_several_splits_of_a_reader_that_cannot_pause_them_are_refused() -> None:
    bench = Aligning(Whole())
    bench.add("a")
    with pytest.raises(
        WatermarkAlignmentError, match=r"'numbers'.*'group'.*Whole has got 2 splits.*allow-unaligned"
    ):
        bench.add("b")


def test_where_it_is_allowed_such_a_reader_waits_by_its_slowest_split() -> None:
    bench = Aligning(Whole(), 50, options=ALLOWED)
    bench.add("a", "b")
    bench.read(100, split="a")
    bench.read(20, split="b")
    assert bench.alignment.may_poll()
    bench.read(60, split="b")
    assert not bench.alignment.may_poll()


def test_records_that_name_no_split_are_aligned_as_one() -> None:
    bench = Aligning(Whole(), 50)
    bench.read(20)
    assert bench.alignment.may_poll()
    bench.read(60)
    assert not bench.alignment.may_poll()


@pytest.mark.parametrize("ahead", ["one split", "all splits"])
def test_a_split_does_not_become_idle_while_it_is_paused(ahead: str) -> None:
    bench = Aligning(Pausing(), 50, strategy=ALIGNED.with_idleness(Duration.of_seconds(1)))
    bench.add("a", "b")
    bench.read(100, split="a")
    bench.read(20 if ahead == "one split" else 100, split="b")
    bench.alignment.may_poll()
    for round_ in range(30):
        bench.tick()
        if ahead == "one split":
            bench.read(21 + round_ % 2, split="b")
    idle = {split_id for split_id, split in bench.time.splits() if split.tracker.idle}
    assert idle == set()
    # Read again, and without rows: now the time counts.
    bench.alignment.take_bound(MAX_TIMESTAMP)
    bench.alignment.may_poll()
    for _ in range(8):
        bench.tick()
    assert "a" in {split_id for split_id, split in bench.time.splits() if split.tracker.idle}


def test_idle_splits_hold_no_group_back() -> None:
    bench = Aligning(Pausing(), MAX_TIMESTAMP, strategy=ALIGNED.with_idleness(Duration.of_seconds(1)))
    bench.add("a", "b")
    bench.read(20, split="b")
    for time in range(100, 120):
        bench.read(time, split="a")
        bench.tick()
    assert bench.reached[-1] is not None
    assert bench.reached[-1] > 100
    for _ in range(12):
        bench.tick()
    assert bench.reached[-1] is None


def test_the_bound_is_in_the_state_and_the_least_one_is_restored() -> None:
    bench = Aligning(Pausing(), 70, 50, 60)
    assert bench.alignment.bound == 50
    bench.alignment.take_bound(80)
    bench.alignment.snapshot()
    assert bench.state.elements == [80]
    fresh = Aligning(Pausing())
    fresh.alignment.snapshot()
    assert fresh.state.elements == []


def test_the_metric_is_the_drift_from_the_slowest_of_the_group() -> None:
    bench = Aligning(Pausing())
    metrics = bench.context.environment.metrics
    name = "numbers.watermarkAlignmentDrift"
    bench.add("a")
    assert name not in metrics.values()
    bench.read(100, split="a")
    bench.alignment.take_bound(105)
    assert metrics.values()[name] == 99 - 95
    bench.alignment.take_bound(MAX_TIMESTAMP)
    assert name not in metrics.values()


def test_the_time_of_a_paused_split_is_measured() -> None:
    bench = Aligning(Pausing(), 50)
    bench.add("a")
    bench.read(100, split="a")
    bench.alignment.may_poll()
    values = bench.context.environment.metrics.values()
    assert values["numbers.split.a.watermark.accumulatedPausedTimeMs"] >= 0
    assert "numbers.split.a.watermark.pausedTimeMsPerSecond" in values
