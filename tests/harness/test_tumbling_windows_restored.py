"""Tumbling windows without timers, held against the general operator: restarts change the operator and the backend.

A trigger that extends the default one means the same, and takes the general way. So each restart of a run may change
from one operator to the other, over a savepoint or a checkpoint of the backend's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from tests.support.job_steps import job_steps
from tests.support.kept_windows import keeps_nothing
from tests.support.restarted_job import CANONICAL, MAX_PARALLELISM, OWN, RestartedJob
from tests.support.window_functions import Numbers, OwnTrigger
from yarrow.common.time import Time
from yarrow.container.operators.window.tumbling_windows import TumblingWindows
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.functions import ProcessWindowFunction, WindowFunction
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.datastream.window import CountTrigger, Trigger, TumblingEventTimeWindows
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import canonicalize
from yarrow.testing.operator_harness import FragmentFailedError


class Shown(ProcessWindowFunction[Any, Any, Any, Any]):
    """Shows each firing: key, bounds of the window, numbers. Its state must be gone with the window."""

    FIRED: ValueStateDescriptor[int] = ValueStateDescriptor("fired")

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        (numbers,) = elements
        fired = context.window_state().get_state(self.FIRED)
        fired.update((fired.value() or 0) + 1)
        window = context.window()
        yield key, window.start, window.end, tuple(sorted(numbers))

    def clear(self, context: Any) -> None:
        assert context.window_state().get_state(self.FIRED).value()


class ShownReduced(Shown):
    """The same of a reduced row."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        ((_, numbers),) = elements
        return super().process(key, context, [tuple_of(numbers)])


def tumbling(lateness: int, *, general: bool, reduced: bool, size: int = 10, offset: int = 0) -> Any:
    assigner = TumblingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(offset))

    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(assigner).allowed_lateness(lateness)
        windows = windows.trigger(OwnTrigger()) if general else windows
        if reduced:
            return windows.reduce(
                lambda a, b: (a[0], (*tuple_of(a[1]), *tuple_of(b[1]))), ShownReduced()
            ).uid("windows")
        return windows.aggregate(Numbers(), Shown()).uid("windows")

    return build


class ChangingJob(RestartedJob):
    """A job that takes another way at each start that says so."""

    def __init__(self, lateness: int, *, reduced: bool, ways: Iterable[bool] = ()) -> None:
        self._options: dict[str, Any] = {"lateness": lateness, "reduced": reduced}
        self._ways = iter(ways)
        super().__init__(tumbling(general=False, **self._options))

    def change(self, **options: Any) -> None:
        """Changes what the next start builds."""
        self._options |= options

    def start(self, parallelism: int, backend: str, *, general: bool | None = None) -> None:
        general = next(self._ways, False) if general is None else general
        self._build = tumbling(general=general, **self._options)
        super().start(parallelism, backend)
        expected = WindowingOperator if general else TumblingWindows
        assert all(type(operator) is expected for operator in self.operators)


steps_of = job_steps(rows_of, st.integers(0, 45))


@pytest.mark.slow
@pytest.mark.parametrize("reduced", [False, True], ids=["aggregated", "reduced"])
@pytest.mark.parametrize("lateness", LATENESS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=steps_of,
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    ways=st.lists(st.booleans(), max_size=6),
)
def test_both_operators_are_the_model_whichever_began(
    lateness: int, reduced: bool, steps: list[Any], backend: str, ways: list[bool]
) -> None:
    job = ChangingJob(lateness, reduced=reduced, ways=ways)
    compare_with_the_model(Model("tumbling", lateness), job, steps, backend)


@pytest.mark.slow
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
def test_a_cut_between_any_two_keys_of_a_window_loses_and_doubles_nothing(
    backend: str, lateness: int, general: bool, options: CheckpointOptions
) -> None:
    job = ChangingJob(lateness, reduced=False)
    job.start(1, backend)
    keys = list(range(40))
    job.push([(key, key) for key in keys], [5] * len(keys))
    fired: list[Any] = []
    cuts = 0
    while len(fired) < len(keys):
        # A deadline that has passed: one key fires in each slice.
        for operator in windowing(job):
            operator.on_watermark(9)
            if operator.event_timers_due:
                fired += [row for row, _ in operator.fire_event_timers(0.0)]
        cuts += 1
        if cuts % 4 == 0:
            job.stop(options, goes_on=False)
            job.start(cuts // 4 % 4 + 1, backend, general=general and cuts % 8 == 0)
    assert sorted(fired) == [(key, 0, 10, (key,)) for key in keys]
    job.watermark(9)
    assert job.take() == []
    # Rows of the window: late, or inside the lateness, where each key fires again with what it had.
    job.push([(key, 1000) for key in keys], [6] * len(keys))
    again = [(key, 0, 10, (key, 1000)) for key in keys] if lateness else []
    assert sorted(row for row, _ in job.take()) == again
    job.watermark(100)
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_between_slices_of_a_large_window_finds_the_fired_keys_gone(backend: str) -> None:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"])
        return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows")

    job = RestartedJob(build)
    job.start(1, backend)
    keys = list(range(9000))
    for _ in range(2):
        job.push([(key, 1) for key in keys], [5] * len(keys))
    fired: list[Any] = []
    for slices in (1, 17, 3):
        (operator,) = windowing(job)
        assert isinstance(operator, TumblingWindows)
        operator.on_watermark(9)
        for _ in range(slices):
            fired += [row for rows, _ in operator.fire_event_timers(0.0) for row in rows]
        assert 0 < len(fired) < len(keys) and operator.event_timers_due
        state = job.stop(OWN)
        assert all(subtask.keyed for subtask in state.subtasks.values())
        job.start(1, backend)
        (operator,) = windowing(job)
        assert isinstance(operator, TumblingWindows)
        (window,) = operator._tables.windows()
        left = [key for found, _ in operator._tables.rows(window) for key in found]
        assert sorted(left) == sorted(set(keys) - {key for key, _ in fired})
    job.watermark(9)
    fired += [row for row, _ in job.take()]
    assert sorted(fired) == [(key, 2) for key in keys]
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_no_window_fires_twice_when_subtasks_with_other_watermarks_become_one(backend: str) -> None:
    job = ChangingJob(100, reduced=False)
    job.start(2, backend, general=False)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    first = [row for row, _ in job.take()]
    assert 0 < len(first) < len(KEYS)
    job.stop(OWN, goes_on=False)
    job.start(1, backend, general=False)
    # The window is open for all keys, and has fired for some. A row takes its key's content along.
    job.push([(first[0][0], 2)], [6])
    job.stop(OWN, goes_on=False)
    job.start(3, backend, general=False)
    job.watermark(9)
    second = [row for row, _ in job.take()]
    others = set(KEYS) - {row[0] for row in first}
    expected = [(key, 0, 10, (1,)) for key in others] + [(first[0][0], 0, 10, (1, 2))]
    assert Counter(second) == Counter(expected)
    job.watermark(200)
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize(
    "general", [(False, False), (True, False), (False, True)], ids=["fast", "to fast", "to general"]
)
@pytest.mark.parametrize(
    "cuts", [[(20, 0)], [(5, 0)], [(10, 3)], [(7, 0), (5, 0)], [(20, 0), (10, 0)]], ids=str
)
def test_windows_of_another_size_fire_at_their_own_ends(
    cuts: list[tuple[int, int]], general: tuple[bool, bool], lateness: int, backend: str
) -> None:
    """Rows of both operators, and the way from one to the other, are those of the general operator."""

    def run(first: bool, then: bool) -> Counter[Any]:
        fired: list[Any] = []
        job = ChangingJob(lateness, reduced=True)
        job.start(1, backend, general=first)
        # [0, 10) has fired, [10, 20) and [20, 30) are open.
        job.push([("a", 1), ("b", 2)], [1, 2])
        job.watermark(9)
        job.push([("a", 4), ("b", 8), ("a", 16)], [11, 12, 25])
        fired += job.take()
        for (size, offset), parallelism in zip(cuts, (2, 1), strict=False):
            job.stop(CANONICAL, goes_on=False)
            job.change(size=size, offset=offset)
            job.start(parallelism, backend, general=then)
            # Late rows, rows of open windows, and rows of windows with the start or the end of a former one.
            job.push(
                [(key, 1 << bit) for bit, key in enumerate("abababab", 5)], [3, 4, 11, 13, 16, 19, 20, 26]
            )
            fired += job.take()
        for watermark in (12, 19, 24, 100):
            job.watermark(watermark)
            fired += job.take()
        assert all(map(keeps_nothing, windowing(job)))
        assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())
        return Counter(fired)

    fired = run(*general)
    assert fired == run(True, True)
    assert {(row[:3], stamp) for row, stamp in fired} >= {
        (("a", 10, 20), 19),
        (("b", 10, 20), 19),
        (("a", 20, 30), 29),
    }


def fired_in_part(job: ChangingJob, backend: str, parallelisms: Sequence[int]) -> list[Any]:
    """The general operator fires [0, 10) for keys of one subtask, then goes on at all parallelisms but the last."""
    job.start(2, backend, general=True)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    fired = [row for row, _ in job.take()]
    assert 0 < len(fired) < len(KEYS)
    for parallelism in parallelisms[:-1]:
        job.stop(CANONICAL)
        job.start(parallelism, backend, general=True)
    job.stop(CANONICAL)
    return fired


#: Backends, and parallelisms of the restarts.
RESTARTS = [("hashmap", (1,)), ("rocksdb", (3,)), ("rocksdb", (1, 4)), ("hashmap", (3, 1, 2))]


@pytest.mark.parametrize(("backend", "parallelisms"), RESTARTS)
def test_what_the_general_operator_fired_fires_again_for_late_rows_only(
    backend: str, parallelisms: Sequence[int]
) -> None:
    job = ChangingJob(100, reduced=False)
    first = fired_in_part(job, backend, parallelisms)
    job.start(parallelisms[-1], backend, general=False)
    job.watermark(9)
    assert Counter([*first, *(row for row, _ in job.take())]) == Counter((key, 0, 10, (1,)) for key in KEYS)
    job.push([(key, 2) for key in KEYS], [6] * len(KEYS))
    assert Counter(row for row, _ in job.take()) == Counter((key, 0, 10, (1, 2)) for key in KEYS)
    job.watermark(200)
    assert job.take() == []
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize(("backend", "parallelisms"), RESTARTS)
def test_what_the_general_operator_fired_goes_at_the_end_of_its_window_without_lateness(
    backend: str, parallelisms: Sequence[int]
) -> None:
    job = ChangingJob(100, reduced=False)
    first = fired_in_part(job, backend, parallelisms)
    job.change(lateness=0)
    job.start(parallelisms[-1], backend, general=False)
    # Where all watermarks have gone back, a row is in time. Its key fires the whole window once more, at its end.
    again = [] if parallelisms == (3,) else [first[0][0]]
    job.push([(key, 2) for key in again], [6] * len(again))
    assert job.take() == []
    job.watermark(9)
    expected = Counter([*((key, 0, 10, (1,)) for key in KEYS), *((key, 0, 10, (1, 2)) for key in again)])
    assert Counter([*first, *(row for row, _ in job.take())]) == expected
    # Each function has heard of the end of its windows, and nothing waits for late rows.
    assert all(map(keeps_nothing, windowing(job)))
    job.push([(key, 3) for key in KEYS], [7] * len(KEYS))
    assert job.take() == []
    assert sum(operator.late_dropped for operator in windowing(job)) == len(KEYS)
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


def test_windows_of_a_trigger_without_timers_fire_where_their_end_was_not_reached() -> None:
    def build(trigger: Trigger[Any, Any] | None) -> Any:
        def fragment(rows: DataStream) -> DataStream:
            windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"]).allowed_lateness(100)
            windows = windows if trigger is None else windows.trigger(trigger)
            return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows")

        return fragment

    job = RestartedJob(build(CountTrigger.of(2)))
    job.start(2, "hashmap")
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    groups = [operator.context.state.context.key_groups for operator in job.operators]  # type: ignore[attr-defined]
    waiting = [key for key in KEYS if groups[1].holds(key_group_of(canonicalize(key), MAX_PARALLELISM))]
    assert job.take() == [] and 0 < len(waiting) < len(KEYS)
    job.stop(CANONICAL)
    job._build = build(None)
    job.start(1, "hashmap")
    job.watermark(9)
    assert Counter(row for row, _ in job.take()) == Counter((key, 1) for key in waiting)
    job.stop(CANONICAL)


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_trigger_is_added_and_removed_over_a_savepoint(backend: str, options: CheckpointOptions) -> None:
    def build(trigger: Trigger[Any, Any] | None) -> Any:
        def fragment(rows: DataStream) -> DataStream:
            windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"])
            windows = windows if trigger is None else windows.trigger(trigger)
            return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows")

        return fragment

    job = RestartedJob(build(None))
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.stop(options)
    job._build = build(CountTrigger.of(2))
    job.start(3, backend)
    job.push([(key, 10) for key in KEYS], [6] * len(KEYS))
    assert job.take() == []
    job.push([(key, 100) for key in KEYS], [7] * len(KEYS))
    assert Counter(row for row, _ in job.take()) == Counter((key, 111) for key in KEYS)
    job.stop(options)
    job._build = build(None)
    job.start(1, backend)
    job.push([(KEYS[0], 1000)], [8])
    job.watermark(9)
    assert Counter(row for row, _ in job.take()) == Counter(
        [(KEYS[0], 1111), *((key, 111) for key in KEYS[1:])]
    )
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(options)


def test_windows_that_kept_a_row_are_refused_where_all_rows_are_kept() -> None:
    job = ChangingJob(0, reduced=True)
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    job.stop(CANONICAL)

    class All(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
            return list(inputs)

    def all_rows(rows: DataStream) -> DataStream:
        return rows.key_by(lambda row: row[0]).window(ASSIGNERS["tumbling"]).apply(All()).uid("windows")

    plain = RestartedJob(all_rows)
    plain.metadata, plain._checkpoint_id = job.metadata, job._checkpoint_id
    message = r"a reduced row or an accumulator.*declares windows with all rows"
    with pytest.raises(FragmentFailedError, match=message):
        plain.start(1, "hashmap")
    for fragment in plain.fragments:
        fragment.close()
