"""Windows against a model in plain Python: rows out of order and late, watermarks, restarts at other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts, late rows included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.kept_windows import keeps_nothing
from tests.support.restarted_job import CANONICAL, MAX_PARALLELISM, OWN, RestartedJob
from yarrow.common.time import Time
from yarrow.container.operators.window.windowing_base import WindowingBase
from yarrow.datastream import DataStream
from yarrow.datastream.functions import WindowFunction
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import key_group_of

KEYS = [1, 2, "three", None, 4.5]
LATENESS = (0, 7)


class Shown(WindowFunction[Any, Any, Any, Any]):
    """Shows each firing: key, bounds of the window, numbers."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, window.end, tuple(sorted(number for _, number in inputs)))]


class OwnTrigger(PurgingTrigger[Any, Any]):
    """Means what the default trigger of count windows means, and takes the general way."""


class Model:
    """Windows by key in dicts; the windows of a row are (start, end), and those of sessions merge."""

    def __init__(self, assigner: str, lateness: int) -> None:
        self.assigner, self.lateness = assigner, lateness
        self.watermark = MIN_TIMESTAMP
        self.content: dict[tuple[Any, int, int], list[int]] = {}
        self.fired: Counter[Any] = Counter()
        self.dropped = 0

    def windows_of(self, time: int) -> list[tuple[int, int]]:
        if self.assigner == "tumbling":
            return [(time - time % 10, time - time % 10 + 10)]
        if self.assigner == "cumulative":
            start = time - time % 12
            return [(start, end) for end in range(start + 4, start + 13, 4) if end > time]
        if self.assigner == "sliding":
            last = time - time % 4
            return [(start, start + 10) for start in range(last, time - 10, -4)]
        return [(time, time + 5)]

    def row(self, key: Any, number: int, time: int) -> None:
        taken = False
        for start, end in self.windows_of(time):
            numbers: list[int] = []
            merged: list[Any] = []
            if self.assigner == "session":
                for other in [w for w in self.content if w[0] == key]:
                    if other[1] <= end and start <= other[2]:
                        merged.append(other)
                start = min([start, *(w[1] for w in merged)])
                end = max([end, *(w[2] for w in merged)])
            if end - 1 + self.lateness <= self.watermark:
                continue
            taken = True
            for other in merged:
                numbers += self.content.pop(other)
            kept = self.content.setdefault((key, start, end), numbers)
            kept.append(number)
            if end - 1 <= self.watermark:
                self.fire((key, start, end))
        self.dropped += not taken

    def fire(self, window: Any) -> None:
        self.fired[(*window, tuple(sorted(self.content[window])))] += 1

    def rise(self, watermark: int) -> None:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        for window in list(self.content):
            if before < window[2] - 1 <= self.watermark:
                self.fire(window)
            if window[2] - 1 + self.lateness <= self.watermark:
                del self.content[window]


ASSIGNERS: dict[str, WindowAssigner[Any, Any]] = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(10)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4)),
    "cumulative": CumulativeEventTimeWindows.of(Time.milliseconds(12), Time.milliseconds(4)),
    "session": EventTimeSessionWindows.with_gap(Time.milliseconds(5)),
}


def windowed(assigner: str, lateness: int, *, reduced: bool) -> Any:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS[assigner]).allowed_lateness(lateness)
        if reduced:
            # The reduced row holds all numbers, so that it shows which rows it comes from.
            reduced_rows = windows.reduce(lambda a, b: (a[0], (*tuple_of(a[1]), *tuple_of(b[1]))), Reduced())
            return reduced_rows.uid("windows")
        return windows.apply(Shown()).uid("windows")

    return build


def tuple_of(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


class Reduced(WindowFunction[Any, Any, Any, Any]):
    """Shows each firing of reduced windows as `Shown` does."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        ((_, numbers),) = inputs
        return [(key, window.start, window.end, tuple(sorted(tuple_of(numbers))))]


rows_of = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 40)), min_size=1, max_size=6)
steps_of = job_steps(rows_of, st.integers(0, 45))


@pytest.mark.slow
@pytest.mark.parametrize("reduced", [False, True], ids=["rows", "reduced"])
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("assigner", sorted(ASSIGNERS))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_windows_are_those_of_the_model(
    assigner: str, lateness: int, reduced: bool, steps: list[Any], backend: str
) -> None:
    compare_with_the_model(
        Model(assigner, lateness), RestartedJob(windowed(assigner, lateness, reduced=reduced)), steps, backend
    )


def compare_with_the_model(model: Model, job: RestartedJob, steps: list[Any], backend: str) -> None:
    """Runs the steps in both: each firing is that of the model, and in the end no state is left."""
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for kind, what in [*steps, ("watermark", 1000)]:
            if kind == "rows":
                rows = []
                for key, time in what:
                    number += 1
                    model.row(key, number, time)
                    rows.append((key, number))
                job.push(rows, [time for _, time in what])
            elif kind == "watermark":
                model.rise(what)
                job.watermark(what)
            else:
                dropped += sum(operator.late_dropped for operator in windowing(job))
                job.restart(*what)
            for row, stamp in job.take():
                assert stamp == row[2] - 1
                found[row] += 1
            assert found == model.fired
        dropped += sum(operator.late_dropped for operator in windowing(job))
        assert dropped == model.dropped
        assert not model.content
        assert all(map(keeps_nothing, windowing(job)))
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def windowing(job: RestartedJob) -> Iterator[Any]:
    for operator in job.operators:
        assert isinstance(operator, WindowingBase)
        yield operator


def tumbling(rows: DataStream) -> DataStream:
    return windowed("tumbling", 0, reduced=False)(rows)  # type: ignore[no-any-return]


def test_a_rescaled_subtask_begins_at_the_least_watermark_of_its_key_groups() -> None:
    job = RestartedJob(tumbling)
    job.start(2, "hashmap")
    job.watermark(30, subtask=0)
    job.watermark(12, subtask=1)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    assert [operator._timers.watermark for operator in windowing(job)] == [12]
    job.watermark(30)
    job.stop(CANONICAL)
    job.start(4, "hashmap")
    assert [operator._timers.watermark for operator in windowing(job)] == [30] * 4
    job.watermark(40, subtask=0)
    job.watermark(50, subtask=1)
    job.watermark(60, subtask=2)
    job.watermark(70, subtask=3)
    job.stop(CANONICAL)
    job.start(2, "hashmap")
    assert [operator._timers.watermark for operator in windowing(job)] == [40, 60]
    job.stop(CANONICAL)


@pytest.mark.differs("KeyedStream.window", told="PyFlink forgets the watermark")
def test_a_late_row_is_as_late_after_a_restore_as_before() -> None:
    job = RestartedJob(tumbling)
    job.start(1, "hashmap")
    job.watermark(9)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.push([(1, 5), (1, 6)], [3, 11])
    assert [operator.late_dropped for operator in windowing(job)] == [1]
    # The inputs begin below the restored watermark.
    job.watermark(4)
    job.push([(1, 7)], [9])
    assert [operator.late_dropped for operator in windowing(job)] == [2]
    job.watermark(19)
    assert job.take() == [((1, 10, 20, (6,)), 19)]
    job.stop(CANONICAL)


def test_event_time_begins_anew_behind_a_stream_that_has_ended() -> None:
    job = RestartedJob(tumbling)
    job.start(1, "hashmap")
    job.watermark((1 << 63) - 1)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.push([(1, 5)], [3])
    job.watermark(9)
    assert job.take() == [((1, 0, 10, (5,)), 9)]
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", LATENESS)
def test_a_cut_in_the_middle_of_firing_loses_and_doubles_nothing(backend: str, lateness: int) -> None:
    job = RestartedJob(windowed("tumbling", lateness, reduced=False))
    job.start(1, backend)
    keys = list(range(500))
    job.push([(key, key) for key in keys], [5] * 500)
    (operator,) = windowing(job)
    operator.on_watermark(9)
    # A deadline that has passed: one window fires in each slice.
    fired = [row for _ in range(200) for row, _ in operator.fire_event_timers(0.0)]
    assert len(fired) == 200
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    # A row inside the lateness comes before any watermark: what was due fires first, without it.
    owed = sorted(set(keys) - {row[0] for row in fired})[:5]
    job.push([(key, 1000) for key in owed], [6] * 5)
    if not lateness:
        assert sum(operator.late_dropped for operator in windowing(job)) == 5
    job.watermark(9)
    again = [row for row, _ in job.take()]
    first = {row for row in [*fired, *again] if len(row[3]) == 1}
    assert first == {(key, 0, 10, (key,)) for key in keys}
    more = sorted(row for row in again if len(row[3]) > 1)
    assert more == ([(key, 0, 10, (key, 1000)) for key in owed] if lateness else [])
    assert len(fired) + len(again) == 500 + len(more)
    job.watermark(100)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_of_triggers_and_assigners_outlives_restores_that_no_row_saw(
    backend: str, options: CheckpointOptions
) -> None:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).count_window(3).trigger(OwnTrigger(CountTrigger.of(3)))
        return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows")

    job = RestartedJob(build)
    job.start(1, backend)
    job.push([(key, 1) for key in KEYS])
    for parallelism in (2, 3, 1):
        job.stop(options)
        job.start(parallelism, backend)
    job.push([(key, 10) for key in KEYS])
    assert job.take() == []
    job.stop(options)
    job.start(4, backend)
    job.push([(key, 100) for key in KEYS])
    assert Counter(row for row, _ in job.take()) == Counter((key, 111) for key in KEYS)
    job.stop(options)


def continuous(rows: DataStream) -> DataStream:
    """Shows the numbers of a window at each fifth of its time."""
    windows = rows.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    early = windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(20)))
    return early.apply(Shown()).uid("windows")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_timer_below_the_watermark_waits_for_the_next_one_behind_a_restore_too(backend: str) -> None:
    job = RestartedJob(continuous)
    job.start(1, backend)
    job.watermark(50)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    assert job.take() == []
    # A second restore comes before any watermark.
    for parallelism in (2, 1, 3):
        job.stop(CANONICAL)
        job.start(parallelism, backend)
        # The inputs begin below the restored watermark.
        job.watermark(40)
        job.push([(key, parallelism) for key in KEYS], [6] * len(KEYS))
        job.watermark(50)
        assert job.take() == []
    # The timers of 20 and 40, then those of 60, 80 and 99.
    for watermark, timers in ((51, 2), (200, 3)):
        job.watermark(watermark)
        shown = Counter(row for row, _ in job.take())
        assert shown == {(key, 0, 100, (1, 1, 2, 3)): timers for key in KEYS}
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def test_a_timer_set_behind_a_restore_without_due_timers_waits_for_the_next_watermark() -> None:
    job = RestartedJob(continuous)
    job.start(1, "hashmap")
    job.watermark(50)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    # The inputs begin below the restored watermark, and a second restore comes before they have passed it.
    job.watermark(40)
    assert job.take() == []
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.watermark(40)
    assert job.take() == []
    job.watermark(51)
    assert [row for row, _ in job.take()] == [(1, 0, 100, (1,))] * 2
    job.stop(CANONICAL)


@pytest.mark.parametrize("rescaled", [1, 2])
def test_timers_that_were_firing_go_on_and_those_that_waited_wait(rescaled: int) -> None:
    """One of two subtasks is cut while it fires, the other one has timers below its watermark."""
    job = RestartedJob(continuous)
    job.start(2, "hashmap")
    job.watermark(10)
    job.push([(key, 1) for key in range(20)], [15] * 20)
    firing, waiting = windowing(job)
    firing.on_watermark(30)
    fired = [row for row, _ in firing.fire_event_timers(0.0)]
    assert len(fired) == 1 and firing.event_timers_due
    job.watermark(30, subtask=1)
    of_waiting = {row for row, _ in job.take()}
    assert of_waiting
    first, last = waiting._waiting._own
    below = [key for key in range(20, 60) if first <= key_group_of(key, MAX_PARALLELISM) <= last]
    job.push([(key, 2) for key in below], [3] * len(below))
    job.stop(CANONICAL)
    job.start(rescaled, "hashmap")
    job.watermark(30)
    owed = {(key, 0, 100, (1,)) for key in range(20)} - of_waiting - set(fired)
    assert owed and Counter(row for row, _ in job.take()) == Counter(owed)
    job.stop(CANONICAL)
    job.start(2, "hashmap")
    job.watermark(30)
    assert job.take() == []
    job.watermark(31)
    assert below and Counter(row for row, _ in job.take()) == Counter((key, 0, 100, (2,)) for key in below)
    job.stop(CANONICAL)


def test_timers_of_a_savepoint_without_marks_fire_at_once() -> None:
    job = RestartedJob(continuous)
    job.start(1, "hashmap")
    job.watermark(50)
    job.push([(1, 1)], [5])
    (operator,) = windowing(job)
    operator._waiting.store = lambda *, due: None
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.watermark(40)
    assert [row for row, _ in job.take()] == [(1, 0, 100, (1,))] * 2
    job.stop(CANONICAL)
