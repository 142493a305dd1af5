"""Windows made of slices, held against the model and the general operator, with restarts at other parallelisms.

The general operator may have begun: its open windows are taken up. The way back is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_tumbling_windows_restored import RESTARTS, Shown, ShownReduced
from tests.harness.test_windows_restored import (
    ASSIGNERS,
    KEYS,
    LATENESS,
    Model,
    compare_with_the_model,
    rows_of,
    tuple_of,
    windowing,
)
from tests.support.kept_windows import keeps_nothing
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from tests.support.window_functions import NumbersInPlace, OwnTrigger, ShownInPlace, second_in_place
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.sliced_window import windows_of_slices
from yarrow.container.operators.sliced_window.windows_of_slices import WindowsOfSlices
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.window import SlidingEventTimeWindows, WindowAssigner
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

BACKENDS = ["hashmap", "rocksdb"]
SLICED = ["sliding", "cumulative"]


def sliced(
    assigner: WindowAssigner[Any, Any], *, general: bool, reduced: bool = False, lateness: int = 0
) -> Any:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(assigner).allowed_lateness(lateness)
        windows = windows.trigger(OwnTrigger()) if general else windows
        if reduced:
            return windows.reduce(
                lambda a, b: (a[0], (*tuple_of(a[1]), *tuple_of(b[1]))), ShownReduced()
            ).uid("windows")
        return windows.aggregate(NumbersInPlace(), Shown()).uid("windows")

    return build


class SlicedJob(RestartedJob):
    """A job that the general operator runs for its first starts, and slices from then on."""

    def __init__(
        self,
        assigner: WindowAssigner[Any, Any],
        *,
        reduced: bool = False,
        general_starts: int = 0,
        lateness: int = 0,
        later: int | None = None,
    ) -> None:
        """`later`: the lateness of slices, if it is another one than that of the general operator."""
        latenesses = lateness if later is None else later, lateness
        self._ways = [
            sliced(assigner, general=general, reduced=reduced, lateness=latenesses[general])
            for general in (False, True)
        ]
        self.general_starts = general_starts
        super().__init__(self._ways[0])

    def start(self, parallelism: int, backend: str) -> None:
        general = self.general_starts > 0
        self.general_starts -= 1
        self._build = self._ways[general]
        super().start(parallelism, backend)
        expected = WindowingOperator if general else WindowsOfSlices
        assert all(type(operator) is expected for operator in self.operators)


steps_of = st.lists(
    st.one_of(
        rows_of.map(lambda rows: ("rows", rows)),
        st.integers(0, 45).map(lambda time: ("watermark", time)),
        st.tuples(st.integers(1, 4), st.sampled_from(BACKENDS), st.sampled_from([CANONICAL, OWN])).map(
            lambda how: ("restart", how)
        ),
    ),
    min_size=4,
    max_size=16,
)


@pytest.mark.slow
@pytest.mark.parametrize("reduced", [False, True], ids=["aggregated", "reduced"])
@pytest.mark.parametrize("assigner", SLICED)
@pytest.mark.parametrize("lateness", LATENESS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(BACKENDS), general_starts=st.sampled_from([0, 1]))
def test_slices_are_the_model_also_behind_the_general_operator(
    lateness: int, assigner: str, reduced: bool, steps: list[Any], backend: str, general_starts: int
) -> None:
    job = SlicedJob(ASSIGNERS[assigner], reduced=reduced, general_starts=general_starts, lateness=lateness)
    compare_with_the_model(Model(assigner, lateness), job, steps, backend)


def test_slices_and_the_general_operator_agree_on_any_numbers_of_windows() -> None:
    @settings(max_examples=25, deadline=None)
    @given(
        size=st.integers(1, 24),
        slide=st.integers(1, 30),
        offset=st.integers(-20, 20),
        lateness=st.sampled_from([0, 3, 25]),
        steps=st.lists(
            st.one_of(
                st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 60)), min_size=1, max_size=8),
                st.integers(-30, 70),
            ),
            max_size=12,
        ),
    )
    def holds(size: int, slide: int, offset: int, lateness: int, steps: list[Any]) -> None:
        windows = SlidingEventTimeWindows(size, slide, offset % slide)
        results = []
        for general in (False, True):
            job = RestartedJob(sliced(windows, general=general, lateness=lateness))
            job.start(1, "hashmap")
            number = 0
            found: Counter[Any] = Counter()
            watermark = -(1 << 40)
            for step in [*steps, 1000]:
                if isinstance(step, int):
                    watermark = max(watermark, step)
                    job.watermark(watermark)
                else:
                    job.push([(key, number + at) for at, (key, _) in enumerate(step)], [t for _, t in step])
                    number += len(step)
                found.update(job.take())
            dropped = [operator.late_dropped for operator in windowing(job)]
            assert all(map(keeps_nothing, windowing(job)))
            for fragment in job.fragments:
                fragment.close()
            results.append((found, dropped))
        assert results[0] == results[1]

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("before,behind", [(0, 12), (12, 0), (4, 12), (12, 4)])
def test_slices_and_the_general_operator_agree_on_another_lateness_over_a_savepoint(
    before: int, behind: int
) -> None:
    @settings(max_examples=10, deadline=None)
    @given(
        assigner=st.sampled_from(SLICED),
        steps=st.lists(
            st.one_of(rows_of, st.integers(0, 45)).map(lambda step: [step]), min_size=2, max_size=10
        ),
        cut=st.integers(1, 9),
        start=st.tuples(st.integers(1, 4), st.sampled_from(BACKENDS)),
    )
    def holds(assigner: str, steps: list[list[Any]], cut: int, start: tuple[int, str]) -> None:
        results = []
        for general in (False, True):
            ways = [
                sliced(ASSIGNERS[assigner], general=general, lateness=lateness)
                for lateness in (before, behind)
            ]
            job = RestartedJob(ways[0])
            job.start(2, "hashmap")
            number = dropped = 0
            found: Counter[Any] = Counter()
            for at, (step,) in enumerate([*steps, [1000]]):
                if at == min(cut, len(steps)):
                    dropped += sum(operator.late_dropped for operator in windowing(job))
                    job.stop(CANONICAL)
                    job._build = ways[1]
                    job.start(*start)
                if isinstance(step, int):
                    job.watermark(step)
                else:
                    job.push([(key, number + at) for at, (key, _) in enumerate(step)], [t for _, t in step])
                    number += len(step)
                found.update(row for row, _ in job.take())
            dropped += sum(operator.late_dropped for operator in windowing(job))
            assert all(map(keeps_nothing, windowing(job)))
            job.stop(CANONICAL)
            results.append((found, dropped))
        assert results[0] == results[1]

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("assigner", SLICED)
@pytest.mark.parametrize("lateness", LATENESS)
def test_a_cut_between_any_two_keys_of_windows_that_fire_loses_and_doubles_nothing(
    lateness: int,
    assigner: str,
    backend: str,
    options: CheckpointOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows_of_slices, "_CALLS_AT_ONCE", 1)
    keys = list(range(4))
    model = Model(assigner, lateness)
    job = SlicedJob(ASSIGNERS[assigner], lateness=lateness)
    job.start(1, backend)
    found: Counter[Any] = Counter()
    cuts = number = 0
    # Rows of all slices, rows behind the watermark that still have windows, and the end of all windows.
    for times, watermark in (((1, 5, 9, 13, 14), 15), ((12, 13, 15, 21), 21), ((17, 20, 23), 60)):
        rows = [(key, number + at) for key in keys for at in range(len(times))]
        for (key, each), time in zip(rows, times * len(keys), strict=True):
            model.row(key, each, time)
        number += len(times)
        job.push(rows, [*times] * len(keys))
        found.update(row for row, _ in job.take())
        model.rise(watermark)
        due = True
        while due:
            due = False
            for operator in windowing(job):
                # A deadline that has passed: one key fires in each piece of work.
                operator.on_watermark(watermark)
                if operator.event_timers_due:
                    due = True
                    found.update(row for row, _ in operator.fire_event_timers(0.0))
            cuts += 1
            if cuts % 4 == 0:
                # A late row must not come before all has fired that is due.
                job.stop(options, goes_on=not lateness)
                job.start(cuts // 4 % 4 + 1, backend)
        job.watermark(watermark)
        found.update(row for row, _ in job.take())
        assert found == model.fired
    assert sum(operator.late_dropped for operator in windowing(job)) == 0
    assert model.dropped == 0 and not model.content
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_window_fires_twice_when_subtasks_with_other_watermarks_become_one(backend: str) -> None:
    job = SlicedJob(ASSIGNERS["sliding"])
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    first = [row for row, _ in job.take()]
    ahead = {row[0] for row in first}
    assert 0 < len(ahead) < len(KEYS)
    assert Counter(first) == Counter((key, start, start + 10, (1,)) for key in ahead for start in (-4, 0))
    job.stop(OWN)
    job.start(1, backend)
    # For keys that have fired, a row belongs to the windows that have not; it is late if there is none.
    job.push([(key, 2) for key in KEYS], [6] * len(KEYS))
    job.push([(key, 3) for key in KEYS], [2] * len(KEYS))
    job.stop(OWN)
    job.start(3, backend)
    job.watermark(1000)
    rest = Counter(row for row, _ in job.take())
    expected: Counter[Any] = Counter()
    for key in KEYS:
        if key not in ahead:
            expected[(key, -4, 6, (1, 3))] += 1
            expected[(key, 0, 10, (1, 2, 3))] += 1
        expected[(key, 4, 14, (1, 2))] += 1
    assert rest == expected
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_late_row_fires_windows_again_that_its_former_subtask_had_fired(backend: str) -> None:
    job = SlicedJob(ASSIGNERS["sliding"], lateness=50)
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [1] * len(KEYS))
    job.watermark(11, subtask=0)
    ahead = {row[0] for row, _ in job.take()}
    assert 0 < len(ahead) < len(KEYS)
    job.stop(OWN)
    # The watermark goes back for keys that have fired all windows of their row, and stand at none.
    job.start(1, backend)
    job.push([(key, 2) for key in KEYS], [6] * len(KEYS))
    again = Counter(row for row, _ in job.take())
    assert again == Counter((key, 0, 10, (1, 2)) for key in ahead)
    job.stop(OWN)
    job.start(3, backend)
    job.watermark(20)
    expected: Counter[Any] = Counter((key, 4, 14, (2,)) for key in KEYS)
    expected.update((key, -4, 6, (1,)) for key in KEYS if key not in ahead)
    expected.update((key, -8, 2, (1,)) for key in KEYS if key not in ahead)
    expected.update((key, 0, 10, (1, 2)) for key in KEYS if key not in ahead)
    assert Counter(row for row, _ in job.take()) == expected
    job.push([(key, 3) for key in KEYS], [6] * len(KEYS))
    last: list[Any] = [(key, 0, 10, (1, 2, 3)) for key in KEYS] + [(key, 4, 14, (2, 3)) for key in KEYS]
    assert Counter(row for row, _ in job.take()) == Counter(last)
    job.watermark(1000)
    assert job.take() == []
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


def fired_in_part(job: SlicedJob, backend: str, parallelisms: Sequence[int]) -> list[Any]:
    """The general operator fires two windows for keys of one subtask; it and slices go on at these parallelisms."""
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    fired = [row for row, _ in job.take()]
    assert 0 < len({row[0] for row in fired}) < len(KEYS)
    for parallelism in parallelisms:
        job.stop(CANONICAL)
        job.start(parallelism, backend)
    return fired


@pytest.mark.parametrize(("backend", "parallelisms"), RESTARTS[1:3])
def test_what_the_general_operator_fired_fires_again_for_late_rows_only(
    backend: str, parallelisms: Sequence[int]
) -> None:
    job = SlicedJob(ASSIGNERS["sliding"], lateness=50, general_starts=len(parallelisms))
    first = fired_in_part(job, backend, parallelisms)
    job.watermark(9)
    both = Counter((key, start, start + 10, (1,)) for key in KEYS for start in (-4, 0))
    assert Counter([*first, *(row for row, _ in job.take())]) == both
    job.push([(key, 2) for key in KEYS], [6] * len(KEYS))
    assert Counter(row for row, _ in job.take()) == Counter((key, 0, 10, (1, 2)) for key in KEYS)
    job.watermark(1000)
    assert Counter(row for row, _ in job.take()) == Counter((key, 4, 14, (1, 2)) for key in KEYS)
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize(("backend", "parallelisms"), RESTARTS[1:3])
def test_what_the_general_operator_fired_goes_at_the_end_of_its_window_without_lateness(
    backend: str, parallelisms: Sequence[int]
) -> None:
    job = SlicedJob(ASSIGNERS["sliding"], lateness=50, later=0, general_starts=len(parallelisms))
    first = fired_in_part(job, backend, parallelisms)
    # A row of a key that has fired the window, where all watermarks have gone back.
    again = [] if parallelisms == (3,) else [first[0][0]]
    job.push([(key, 2) for key in again], [6] * len(again))
    job.watermark(9)
    expected: Counter[Any] = Counter((key, start, start + 10, (1,)) for key in KEYS for start in (-4, 0))
    expected.update((key, 0, 10, (1, 2)) for key in again)
    assert Counter([*first, *(row for row, _ in job.take())]) == expected
    job.push([(key, 3) for key in KEYS], [6] * len(KEYS))
    assert job.take() == []
    job.watermark(1000)
    last = {key: (1, 2, 3) if key in again else (1, 3) for key in KEYS}
    assert Counter(row for row, _ in job.take()) == Counter((key, 4, 14, last[key]) for key in KEYS)
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


@pytest.mark.parametrize("assigner", SLICED)
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("reduced", [False, True], ids=["aggregated", "reduced"])
def test_functions_may_change_what_they_get(reduced: bool, lateness: int, assigner: str) -> None:
    results = []
    for general in (False, True):

        def build(rows: DataStream, general: bool = general) -> DataStream:
            windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS[assigner]).allowed_lateness(lateness)
            windows = windows.trigger(OwnTrigger()) if general else windows
            stream = windows.reduce(second_in_place) if reduced else windows.aggregate(ShownInPlace())
            return stream.map(lambda row: tuple(sorted(row[1])) if reduced else row)

        with OperatorHarness(build) as harness:
            # Rows come in front of slices that a window has read, behind them and among them.
            for number, (time, watermark) in enumerate(
                [(4, 9), (7, 9), (8, 13), (12, 13), (10, 15), (5, 15)]
            ):
                harness.push(["a", [number] if reduced else number], timestamps=[time])
                harness.watermark(watermark)
            harness.watermark(1000)
            results.append(Counter(zip(harness.output, harness.timestamps(), strict=True)))
    assert results[0] == results[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_that_wait_for_late_rows_are_cleared_where_the_lateness_goes(backend: str) -> None:
    ways = [
        sliced(ASSIGNERS["sliding"], general=general, lateness=30 if general else 0)
        for general in (True, False)
    ]
    job = RestartedJob(lambda rows: ways[0](rows))
    job.start(1, backend)
    job.push([("a", 1)], [3])
    job.watermark(14)
    assert job.take()
    job.stop(CANONICAL, goes_on=False)
    ways.pop(0)
    job.start(1, backend)
    # Shown asserts that a window is cleared behind its firing, and clears its state.
    job.watermark(1000)
    assert job.take() == []
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_long_window_of_many_keys_goes_on_from_checkpoints_while_it_fires(backend: str) -> None:
    class Count(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: Any, accumulator: int) -> int:
            return accumulator + 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

        def merge(self, acc_a: int, acc_b: int) -> int:
            return acc_a + acc_b

    windows = SlidingEventTimeWindows.of(Time.milliseconds(8), Time.milliseconds(2))

    def build(rows: DataStream) -> DataStream:
        stream = rows.key_by(lambda row: row[0]).window(windows)
        return stream.aggregate(Count(), accumulator_type=Types.LONG()).uid("windows")

    job = RestartedJob(build)
    job.start(1, backend)
    # More keys than one piece of work places, and than one piece of rows has.
    keys = range(4050)
    found: Counter[int] = Counter()
    for time in range(0, 18, 2):
        job.push([(key, 1) for key in keys], [time] * len(keys))
        (operator,) = windowing(job)
        operator.on_watermark(time + 1)
        for _ in range(time // 8):
            found.update(row for row, _ in operator.fire_event_timers(0.0))
        if time % 8 == 0:
            job.stop(OWN)
            job.start(1, backend)
        job.watermark(time + 1)
        found.update(row for row, _ in job.take())
    job.watermark(1000)
    found.update(row for row, _ in job.take())
    assert found == Counter({4: 6 * len(keys), **{count: 2 * len(keys) for count in range(1, 4)}})
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


NO_SLICES = "windows that are made of slices.*of which none is made of slices"
CHANGES: dict[str, tuple[Any, str]] = {
    "general": (
        sliced(ASSIGNERS["sliding"], general=True),
        "windows that are made of slices.*of which none is made of slices",
    ),
    "tumbling": (
        sliced(ASSIGNERS["tumbling"], general=False),
        "windows that are made of slices.*of which none is made of slices",
    ),
    "other size": (
        sliced(SlidingEventTimeWindows(12, 4, 0), general=False),
        "sliding windows of 10 ms by 4 ms with the offset 0 ms.*declares sliding windows of 12 ms by 4 ms",
    ),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_slices_are_refused_by_other_windows(change: str, options: CheckpointOptions) -> None:
    build, message = CHANGES[change]
    job = SlicedJob(ASSIGNERS["sliding"])
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    job.stop(options)
    job._ways[0] = build
    with pytest.raises(FragmentFailedError, match=rf"'_window_slices.*{message}"):
        job.start(1, "hashmap")
    for fragment in job.fragments:
        fragment.close()


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_windows_that_have_fired_and_wait_for_late_rows_are_refused_by_other_windows(
    options: CheckpointOptions,
) -> None:
    fired = sliced(SlidingEventTimeWindows(10, 5, 0), general=False, lateness=50)
    tumbling = sliced(ASSIGNERS["tumbling"], general=False, lateness=50)
    other_slide = sliced(SlidingEventTimeWindows(10, 2, 0), general=False, lateness=50)
    for first, second, message in (
        (fired, tumbling, "'_window_slices.*windows that are made of slices"),
        (fired, sliced(SlidingEventTimeWindows(10, 5, 0), general=True), "'_window_slices"),
        (fired, other_slide, "sliding windows of 10 ms by 5 ms.*declares sliding windows of 10 ms by 2 ms"),
        (tumbling, fired, "'_window_contents/fired'.*tumbling windows that have fired.*made of slices"),
    ):
        job = RestartedJob(first)
        job.start(1, "hashmap")
        job.push([(1, 1)], [5])
        # All windows of the row have fired.
        job.watermark(30)
        job.stop(options)
        job._build = second
        with pytest.raises(FragmentFailedError, match=message):
            job.start(1, "hashmap")
        for fragment in job.fragments:
            fragment.close()


def test_windows_with_other_bounds_are_refused_by_slices() -> None:
    job = RestartedJob(sliced(ASSIGNERS["tumbling"], general=False))
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    job.stop(CANONICAL)
    job._build = sliced(SlidingEventTimeWindows(20, 5, 0), general=False)
    with pytest.raises(FragmentFailedError, match=r"'_window_contents'.*start=0, end=10.*with other bounds"):
        job.start(1, "hashmap")
    for fragment in job.fragments:
        fragment.close()


def test_windows_without_rows_change_their_way_freely() -> None:
    job = SlicedJob(ASSIGNERS["sliding"])
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    job.watermark(1000)
    assert len(job.take()) == 3
    job.stop(CANONICAL)
    job.general_starts = 1
    job.start(1, "hashmap")
    job.push([(1, 1)], [2005])
    job.watermark(3000)
    assert sorted(row for row, _ in job.take()) == [
        (1, start, start + 10, (1,)) for start in (1996, 2000, 2004)
    ]
    job.stop(CANONICAL)
