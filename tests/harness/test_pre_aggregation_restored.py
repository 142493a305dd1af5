"""Pre-aggregated windows against the model of windows, with restarts at parallelism 1 to 4 on both backends.

Subtasks before the exchange have watermarks of their own, and may be idle. A restart may add the pre-aggregation to the
program, or take it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_tumbling_windows_restored import Shown, ShownReduced
from tests.harness.test_windows_restored import ASSIGNERS, KEYS, LATENESS, Model, tuple_of
from tests.support.kept_windows import keeps_nothing
from tests.support.pre_aggregated_job import Build, PreAggregatedJob
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from tests.support.window_functions import NumbersInPlace, second_in_place
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.window import SlidingEventTimeWindows
from yarrow.runtime.data.checkpoint_options import CheckpointOptions

BACKENDS = ["hashmap", "rocksdb"]
SHAPES = [(assigner, lateness) for assigner in ("tumbling", "sliding", "cumulative") for lateness in LATENESS]
#: Windows of slices that are reduced; the others are aggregated.
REDUCED = [("sliding", 7), ("cumulative", 0)]
#: Shapes, and whether they are reduced: tumbling windows are aggregated and reduced.
CASES = [
    pytest.param(shape, reduced, id="-".join([*map(str, shape), "reduced" if reduced else "aggregated"]))
    for shape in SHAPES
    for reduced in (False, True)
    if shape[0] == "tumbling" or reduced == (shape in REDUCED)
]


def windows(assigner: str, lateness: int, *, reduced: bool, pre_aggregate: bool = True) -> Build:
    def build(rows: DataStream) -> DataStream:
        cut = rows.key_by(lambda row: row[0]).window(ASSIGNERS[assigner]).allowed_lateness(lateness)
        if reduced:
            return cut.reduce(
                lambda a, b: (a[0], (*tuple_of(a[1]), *tuple_of(b[1]))),
                ShownReduced(),
                pre_aggregate=pre_aggregate,
            ).uid("windows")
        return cut.aggregate(NumbersInPlace(), Shown(), pre_aggregate=pre_aggregate).uid("windows")

    return build


subtasks_of = st.integers(0, 3)
steps_of = st.lists(
    st.one_of(
        st.tuples(
            st.just("rows"),
            subtasks_of,
            st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 40)), min_size=1, max_size=6),
        ),
        st.tuples(st.just("watermark"), subtasks_of, st.integers(0, 45)),
        st.tuples(st.just("all watermarks"), subtasks_of, st.integers(0, 45)),
        st.tuples(st.just("idle"), subtasks_of, st.none()),
        st.tuples(
            st.just("restart"),
            st.integers(1, 4),
            st.tuples(
                st.sampled_from(BACKENDS), st.sampled_from([CANONICAL, OWN]), st.integers(0, 3).map(bool)
            ),
        ),
    ),
    min_size=2,
    max_size=14,
)


class Compared:
    """Runs steps in a job and in the model, whose watermark is that of the operator of the windows."""

    def __init__(self, shape: tuple[str, int], *, reduced: bool, backend: str, max_entries: int) -> None:
        assigner, lateness = shape
        self._builds = [
            windows(assigner, lateness, reduced=reduced, pre_aggregate=each) for each in (False, True)
        ]
        self.job = PreAggregatedJob(self._builds[True], max_entries)
        self._model = Model(assigner, lateness)
        self._backend = backend
        self._found: Counter[Any] = Counter()
        self._number = self._dropped = 0
        self._start(2)

    def _start(self, parallelism: int) -> None:
        self.job.start(parallelism, self._backend)
        self._idle: set[int] = set()

    def run(self, steps: list[Any]) -> None:
        for kind, where, what in [*steps, ("all watermarks", 0, 1000)]:
            if kind == "rows":
                self._push(where, what)
            elif kind == "watermark":
                self._watermark(where, what)
            elif kind == "idle":
                self._set_idle(where)
            elif kind == "all watermarks":
                for subtask in range(self.job.parallelism):
                    self._watermark(subtask, what)
            else:
                self._restart(where, *what)
            self._compare()
        self._count_dropped()
        assert self._dropped == self._model.dropped
        assert not self._model.content
        assert all(map(keeps_nothing, self.job.windows))
        assert all(not subtask.keyed for state in self.job.stop() for subtask in state.subtasks.values())

    def _push(self, subtask: int, keys_and_times: list[tuple[Any, int]]) -> None:
        rows = []
        for key, time in keys_and_times:
            self._number += 1
            self._model.row(key, self._number, time)
            rows.append((key, self._number))
        self.job.push(rows, [time for _, time in keys_and_times], subtask % self.job.parallelism)

    def _watermark(self, subtask: int, time: int) -> None:
        subtask %= self.job.parallelism
        if subtask in self._idle:
            # A stream becomes active with its next watermark.
            self._idle.discard(subtask)
            self.job.idle(subtask, idle=False)
        self.job.watermark(time, subtask)
        self._rise()

    def _set_idle(self, subtask: int) -> None:
        subtask %= self.job.parallelism
        if len(self._idle | {subtask}) < self.job.parallelism:
            self._idle.add(subtask)
            self.job.idle(subtask)
            self._rise()

    def _restart(self, parallelism: int, other: str, options: CheckpointOptions, pre_aggregate: bool) -> None:
        self._count_dropped()
        self.job.stop(options)
        # Only the same backend can read a native snapshot.
        self._backend = self._backend if options is OWN else other
        self.job.build = self._builds[pre_aggregate]
        self._start(parallelism)

    def _rise(self) -> None:
        (reached,) = {operator._timers.watermark for operator in self.job.windows}
        self._model.rise(reached)

    def _count_dropped(self) -> None:
        self._dropped += sum(operator.late_dropped for operator in self.job.windows)

    def _compare(self) -> None:
        for row, stamp in self.job.take():
            assert stamp == row[2] - 1
            self._found[row] += 1
        assert self._found == self._model.fired


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "reduced"), CASES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(BACKENDS), max_entries=st.sampled_from([3, 1000]))
def test_pre_aggregated_windows_are_those_of_the_model(
    shape: tuple[str, int], reduced: bool, steps: list[Any], backend: str, max_entries: int
) -> None:
    compared = Compared(shape, reduced=reduced, backend=backend, max_entries=max_entries)
    try:
        compared.run(steps)
    finally:
        compared.job.close()


LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


def with_late_rows(*, pre_aggregate: bool = True, lateness: int = 0) -> Build:
    """Sums by key, and late rows as ("late", row)."""

    def build(rows: DataStream) -> DataStream:
        cut = rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"]).allowed_lateness(lateness)
        made = cut.side_output_late_data(LATE).reduce(
            lambda a, b: (a[0], a[1] + b[1]), pre_aggregate=pre_aggregate
        )
        late = made.uid("windows").get_side_output(LATE)
        return made.union(late.map(lambda row: ("late", row)))

    return build


@pytest.fixture
def run() -> Iterator[Callable[..., PreAggregatedJob]]:
    """Starts a job: run(what stands behind the stream, parallelism, backend)."""
    jobs: list[PreAggregatedJob] = []

    def start(build: Build, parallelism: int = 2, backend: str = "hashmap") -> PreAggregatedJob:
        jobs.append(PreAggregatedJob(build))
        jobs[-1].start(parallelism, backend)
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def test_windows_get_one_value_of_each_subtask_key_and_window(run: Any) -> None:
    job = run(with_late_rows())
    for subtask in (0, 1):
        job.push([(key, 1) for key in ("a", "b") for _ in range(50)], [3, 14] * 50, subtask)
    job.watermark(9)
    assert job.rows_into_windows == 4
    job.watermark(19)
    assert job.rows_into_windows == 8
    assert Counter(job.take()) == Counter({((key, 50), end): 1 for key in ("a", "b") for end in (9, 19)})


def test_a_late_row_reaches_the_side_output_as_itself(run: Any) -> None:
    job = run(with_late_rows())
    job.watermark(9)
    job.push([("a", 1), ("a", 2), ("a", 4)], [3, 4, 12])
    assert Counter(job.take()) == Counter({(("late", ("a", 1)), 3): 1, (("late", ("a", 2)), 4): 1})
    job.watermark(19)
    assert job.take() == [(("a", 4), 19)]


def test_rows_inside_the_lateness_fire_one_by_one(run: Any) -> None:
    job = run(with_late_rows(lateness=5))
    job.push([("a", 1)], [3])
    job.watermark(9)
    job.push([("a", 2), ("a", 4)], [3, 4])
    assert job.take() == [(("a", 1), 9), (("a", 3), 9), (("a", 7), 9)]
    job.watermark(14)
    job.push([("a", 8)], [3])
    assert job.take() == [(("late", ("a", 8)), 3)]


def test_rows_of_a_subtask_that_was_idle_are_late_one_by_one(run: Any) -> None:
    job = run(with_late_rows())
    job.idle(1)
    job.watermark(9, subtask=0)
    # The windows follow the other subtask, which this one does not know.
    job.push([("a", 1), ("a", 2)], [3, 4], 1)
    job.idle(1, idle=False)
    job.push([("a", 4), ("a", 8)], [5, 6], 1)
    late = {(("late", ("a", number)), time): 1 for number, time in ((1, 3), (2, 4), (4, 5), (8, 6))}
    assert Counter(job.take()) == Counter(late)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("added", [False, True], ids=["restart", "added over a savepoint"])
def test_rows_behind_a_restore_are_as_late_as_before(run: Any, added: bool, backend: str) -> None:
    job = run(with_late_rows(pre_aggregate=not added), 3, backend)
    job.push([("a", 1)], [13])
    job.watermark(9)
    job.stop()
    job.build = with_late_rows()
    job.start(2, backend)
    # No watermark has come since, and these rows come before those that the sources repeat.
    job.push([("a", 2), ("a", 4), ("a", 8)], [3, 4, 14], 1)
    assert Counter(job.take()) == Counter({(("late", ("a", 2)), 3): 1, (("late", ("a", 4)), 4): 1})
    job.watermark(19)
    assert job.take() == [(("a", 9), 19)]


@pytest.mark.parametrize("lateness", LATENESS)
def test_rows_come_singly_for_keys_that_are_ahead_of_the_watermark(lateness: int) -> None:
    plain = RestartedJob(windows("sliding", lateness, reduced=False, pre_aggregate=False))
    plain.start(2, "hashmap")
    plain.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    plain.watermark(9, subtask=0)
    fired = [row for row, _ in plain.take()]
    ahead = {row[0] for row in fired}
    assert 0 < len(ahead) < len(KEYS)
    plain.stop(CANONICAL)
    job = PreAggregatedJob(windows("sliding", lateness, reduced=False))
    job.metadata = plain.metadata
    try:
        # The watermark of the windows goes back with the first restart, and no later one may forget how far it was.
        for parallelism in (1, 1, 2):
            job.start(parallelism, "hashmap")
            job.stop()
        job.start(2, "hashmap")
        for number in (2, 3):
            job.push([(key, number) for key in KEYS], [2] * len(KEYS))
        again = Counter((*row[:3], (1, *late)) for row in fired for late in ((2,), (2, 3)) if row[1] <= 2)
        assert Counter(row for row, _ in job.take()) == (again if lateness else Counter())
        dropped = sum(operator.late_dropped for operator in job.windows)
        assert dropped == (0 if lateness else 2 * len(ahead))
        job.watermark(1000)
        assert {row[0] for row, _ in job.take()} == set(KEYS)
        assert all(map(keeps_nothing, job.windows))
    finally:
        job.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pre_aggregation_is_added_and_taken_out_over_a_savepoint(run: Any, backend: str) -> None:
    job = run(with_late_rows(pre_aggregate=False), 2, backend)
    for parallelism, pre_aggregate, into_windows in ((3, True, 0), (1, False, 2), (2, True, 0)):
        job.push([("a", 1)] * 2, [14, 15])
        job.stop()
        job.build = with_late_rows(pre_aggregate=pre_aggregate)
        job.start(parallelism, backend)
        job.push([("a", 1)] * 2, [16, 17])
        assert job.rows_into_windows == into_windows
    job.watermark(19)
    assert job.take() == [(("a", 12), 19)]


def test_functions_may_change_a_row_that_passes_by_itself(run: Any) -> None:
    def build(rows: DataStream) -> DataStream:
        sliding = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4))
        windows = rows.key_by(lambda row: row[0]).window(sliding)
        reduced = windows.reduce(second_in_place, pre_aggregate=True).uid("windows")
        return reduced.map(lambda row: tuple(sorted(row[1])))

    job = run(build)
    job.push([["b", [1]]], [7])
    job.watermark(9)
    job.push([["b", [2]]], [8])
    job.watermark(1000)
    assert sorted(job.take()) == [((1,), 9), ((1, 2), 13), ((2,), 17)]


def test_a_subtask_that_was_idle_folds_again_behind_a_restart(run: Any) -> None:
    job = run(with_late_rows())
    job.idle(1)
    job.push([("a", 1)] * 2, [14, 15], 1)
    assert job.rows_into_windows == 2
    job.stop()
    job.start(2, "hashmap")
    job.push([("a", 1)] * 2, [16, 17], 1)
    assert job.rows_into_windows == 0
    job.watermark(19)
    assert job.take() == [(("a", 4), 19)]


SCRIPT: list[Any] = [
    ("rows", 0, [(1, 3), ("three", 12)]),
    ("rows", 1, [(1, 4), (None, 25)]),
    ("watermark", 0, 12),
    ("rows", 1, [(2, 13), (1, 14)]),
    ("watermark", 1, 11),
    ("rows", 0, [(1, 2), (4.5, 16)]),
    ("idle", 1, None),
    ("watermark", 0, 21),
    ("rows", 1, [(2, 15), (2, 26)]),
    ("watermark", 1, 24),
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[0], *SHAPES[1::2]], ids=lambda shape: "-".join(map(str, shape)))
@pytest.mark.parametrize("at", range(1, len(SCRIPT), 2))
def test_a_restart_at_any_place_loses_and_doubles_nothing(shape: tuple[str, int], at: int) -> None:
    backend = BACKENDS[at // 2 % 2]
    restart = ("restart", at % 4 + 1, (backend, CANONICAL, True))
    compared = Compared(shape, reduced=False, backend=BACKENDS[0], max_entries=1000)
    try:
        compared.run([*SCRIPT[:at], restart, *SCRIPT[at : at + 1], restart, *SCRIPT[at + 1 :]])
    finally:
        compared.job.close()
