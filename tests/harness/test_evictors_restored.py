"""Windows with evictors against the model of windows: late rows, merging sessions, restarts at other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_windows_restored import (
    ASSIGNERS,
    Model,
    Shown,
    compare_with_the_model,
    steps_of,
    tumbling,
    windowing,
)
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.common.typeinfo import Types
from yarrow.container.operators.window.evicting_windows import CONTENTS_WITH_TIMES
from yarrow.container.operators.window.window_contents import CONTENTS
from yarrow.datastream import DataStream
from yarrow.datastream.window import CountEvictor, Evictor, TimeEvictor
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.testing.operator_harness import FragmentFailedError

#: Milliseconds that the TimeEvictor keeps.
RECENT = 4


class EvictingModel(Model):
    """The model of windows, whose windows lose numbers when they fire."""

    def __init__(self, assigner: str, lateness: int, *, recent: bool, after: bool) -> None:
        """`recent`: those of the last time stay; otherwise the last two."""
        super().__init__(assigner, lateness)
        self.recent, self.after = recent, after
        self.times: dict[int, int] = {}

    def row(self, key: Any, number: int, time: int) -> None:
        self.times[number] = time
        super().row(key, number, time)

    def fire(self, window: Any) -> None:
        numbers = self.content[window]
        cutoff = max(self.times[number] for number in numbers) - RECENT
        left = [number for number in numbers if self.times[number] > cutoff] if self.recent else numbers[-2:]
        self.fired[(*window, tuple(sorted(numbers if self.after else left)))] += 1
        self.content[window] = left


def evicting(
    evictor: Evictor[Any, Any] | None, assigner: str = "tumbling", lateness: int = 0
) -> Callable[[DataStream], DataStream]:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS[assigner]).allowed_lateness(lateness)
        windows = windows if evictor is None else windows.evictor(evictor)
        return windows.apply(Shown()).uid("windows")

    return build


def folding(evictor: Evictor[Any, Any] | None) -> Callable[[DataStream], DataStream]:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"])
        windows = windows if evictor is None else windows.evictor(evictor)
        return windows.reduce(lambda left, right: left, Shown()).uid("windows")

    return build


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("assigner", "recent"), [("tumbling", False), ("sliding", True), ("session", True)])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_windows_with_evictors_are_those_of_the_model(
    assigner: str, recent: bool, after: bool, steps: list[Any], backend: str
) -> None:
    evictor = TimeEvictor.of(RECENT, after) if recent else CountEvictor.of(2, after)
    job = RestartedJob(evicting(evictor, assigner, lateness=7))
    compare_with_the_model(EvictingModel(assigner, 7, recent=recent, after=after), job, steps, backend)


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_in_the_middle_of_firing_keeps_what_is_evicted_out_of_state(
    backend: str, options: CheckpointOptions
) -> None:
    job = RestartedJob(evicting(CountEvictor.of(1), lateness=7))
    job.start(1, backend)
    keys = list(range(60))
    job.push([(key, number) for key in keys for number in (1, 2)], [3] * 120)
    (operator,) = windowing(job)
    operator.on_watermark(9)
    # A deadline that has passed: one window fires in each slice.
    fired = [row for _ in range(20) for row, _ in operator.fire_event_timers(0.0)]
    assert len(fired) == 20
    job.stop(options)
    job.start(3, backend)
    # What was due fires before the first row: the row finds one row in each window.
    job.push([(key, 5) for key in keys], [4] * 60)
    found = [*fired, *(row for row, _ in job.take())]
    assert sorted(found) == sorted((key, 0, 10, (number,)) for key in keys for number in (2, 5))
    (stored,) = {
        tuple(content)
        for each in windowing(job)
        for window in each._contents.values.tables.windows()
        for _, contents in each._contents.values.tables.rows(window)
        for content in ([number for (_, number), _ in rows] for rows in contents)
    }
    assert stored == (5,)
    job.watermark(100)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("typed", [False, True], ids=["undeclared", "declared"])
def test_an_evictor_is_not_added_over_a_savepoint_nor_removed_where_rows_are_folded(
    backend: str, options: CheckpointOptions, typed: bool
) -> None:
    def build(evictor: Evictor[Any, Any] | None) -> Callable[[DataStream], DataStream]:
        row = Types.TUPLE([Types.LONG(), Types.LONG()])
        typing: Any = (lambda rows: rows.map(lambda row: row, row)) if typed else lambda rows: rows
        return lambda rows: folding(evictor)(typing(rows))

    windows = "windows without an evictor, of which none is made of slices", "windows with an evictor"
    for first, second, (was, now), state in (
        (None, CountEvictor.of(1), windows, CONTENTS),
        (CountEvictor.of(1), None, windows[::-1], CONTENTS_WITH_TIMES),
    ):
        job = RestartedJob(build(first))
        job.start(1, backend)
        job.push([(1, 2)], [3])
        job.stop(options)
        job._build = build(second)
        message = (
            f"StateMigrationError.*'{state}': the snapshot holds {was}, the program declares {now}. Declare"
        )
        with pytest.raises(FragmentFailedError, match=message):
            job.start(1, backend)
        for fragment in job.fragments:
            fragment.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_an_evictor_is_removed_where_the_function_gets_all_rows(backend: str) -> None:
    job = RestartedJob(evicting(CountEvictor.of(1)))
    job.start(1, backend)
    job.push([(1, 2), (1, 3)], [3, 4])
    job.stop(CANONICAL)
    job._build = evicting(None)
    job.start(2, backend)
    job.push([(1, 4)], [5])
    job.watermark(9)
    assert job.take() == [((1, 0, 10, (2, 3, 4)), 9)]
    job.stop(CANONICAL)
    job._build = evicting(CountEvictor.of(1))
    job.start(1, backend)
    job.stop(CANONICAL)


def test_an_evictor_may_be_added_and_removed_while_no_window_is_open() -> None:
    job = RestartedJob(evicting(None))
    job.start(1, "hashmap")
    for time, evictor, left in ((3, CountEvictor.of(1), (1, 2)), (13, None, (2,)), (23, None, (1, 2))):
        job.push([(1, 1), (1, 2)], [time, time])
        job.watermark(time + 6)
        assert [row for row, _ in job.take()] == [(1, time - 3, time + 7, left)]
        job.stop(CANONICAL)
        job._build = evicting(evictor)
        job.start(1, "rocksdb")
    job.stop(CANONICAL)


def test_another_evictor_takes_over_a_savepoint() -> None:
    job = RestartedJob(evicting(CountEvictor.of(1)))
    job.start(1, "hashmap")
    job.push([(1, 2), (1, 3), (1, 4)], [3, 4, 8])
    job.stop(CANONICAL)
    job._build = evicting(TimeEvictor.of(5))
    job.start(1, "hashmap")
    job.watermark(9)
    assert job.take() == [((1, 0, 10, (3, 4)), 9)]
    job.stop(CANONICAL)


def test_windows_without_an_evictor_begin_from_savepoints_of_before() -> None:
    job = RestartedJob(tumbling)
    job.start(1, "hashmap")
    job.push([(1, 2)], [3])
    state = job.stop(CANONICAL)
    (handle,) = state.subtasks[0].keyed
    assert "_window_contents" in {each.name for each in handle.states}
    job.start(1, "rocksdb")
    job.watermark(9)
    assert job.take() == [((1, 0, 10, (2,)), 9)]
    job.stop(CANONICAL)
