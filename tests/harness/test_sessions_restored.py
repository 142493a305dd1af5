"""Sessions in one list a key against the model of windows: restarts anywhere, both backends, parallelism 1 to 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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
    steps_of,
    windowing,
)
from tests.support.kept_windows import keeps_nothing
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from tests.support.window_functions import NumbersInPlace, OwnTrigger
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.window.session_windows import SessionWindows
from yarrow.datastream import DataStream
from yarrow.datastream.functions import WindowFunction
from yarrow.datastream.window import CountEvictor, EventTimeSessionWindows
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.testing.operator_harness import FragmentFailedError

NUMBERS = Types.LIST(Types.LONG())


class Shown(WindowFunction[Any, Any, Any, Any]):
    """Shows each firing: key, bounds of the session, numbers."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        (numbers,) = inputs
        yield key, window.start, window.end, numbers


def sessions(lateness: int = 0, *, declared: bool = True, trigger: Any = None, evictor: Any = None) -> Any:
    def build(rows: DataStream) -> DataStream:
        windows = rows.key_by(lambda row: row[0]).window(ASSIGNERS["session"]).allowed_lateness(lateness)
        windows = windows if trigger is None else windows.trigger(trigger)
        windows = windows if evictor is None else windows.evictor(evictor)
        kept = NUMBERS if declared else None
        return windows.aggregate(NumbersInPlace(), Shown(), accumulator_type=kept).uid("windows")

    return build


@pytest.mark.slow
@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "declared"])
@pytest.mark.parametrize("lateness", LATENESS)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_sessions_are_those_of_the_model(
    lateness: int, declared: bool, steps: list[Any], backend: str
) -> None:
    job = RestartedJob(sessions(lateness, declared=declared))
    compare_with_the_model(Model("session", lateness), job, steps, backend)


#: Rows that begin, prolong and join sessions, come late and inside the lateness, and watermarks between them.
SCRIPT: list[Any] = [
    [(1, 0), (2, 3), ("three", 8)], [(1, 9), (1, 4), (2, 8)], 7, [(1, 6), (None, 2), (4.5, 13)], 12,
    [(2, 12), (1, 16), ("three", 9)], [(1, 24), (2, 22)], 15, [(1, 20), (2, 17)], 21, [(1, 3), (2, 24)], 30,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", LATENESS)
def test_a_restart_at_any_position_changes_nothing(backend: str, lateness: int) -> None:
    for cut in range(len(SCRIPT) + 1):
        steps: list[Any] = [
            ("watermark", step) if isinstance(step, int) else ("rows", step) for step in SCRIPT
        ]
        steps.insert(cut, ("restart", ((cut + 2) % 4 + 1, backend, OWN if cut % 2 else CANONICAL)))
        compare_with_the_model(Model("session", lateness), RestartedJob(sessions(lateness)), steps, backend)


@pytest.mark.slow
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", LATENESS)
def test_a_cut_between_any_two_sessions_that_fire_loses_and_doubles_nothing(
    backend: str, lateness: int, options: CheckpointOptions
) -> None:
    job = RestartedJob(sessions(lateness))
    job.start(1, backend)
    keys = list(range(30))
    job.push([(key, key) for key in keys], [5] * len(keys))
    # The timers come too early.
    job.push([(key, key) for key in keys], [7] * len(keys))
    fired: list[Any] = []
    cuts = 0
    while len(fired) < len(keys):
        # A deadline that has passed: one timer fires in each slice.
        for operator in windowing(job):
            operator.on_watermark(11)
            if operator.event_timers_due:
                fired += [row for row, _ in operator.fire_event_timers(0.0)]
        cuts += 1
        if cuts % 3 == 0:
            job.stop(options)
            job.start(cuts // 3 % 4 + 1, backend)
            if cuts % 9 == 0:
                # A row comes before any watermark: what was due fires first, without it.
                job.push([(key, 1000) for key in (28, 29)], [6, 6])
                fired += [row for row, _ in job.take() if 1000 not in row[3]]
    assert sorted(fired) == [(key, 5, 12, (key, key)) for key in keys]
    job.watermark(11)
    job.take()
    job.watermark(100)
    assert job.take() == []
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_no_session_fires_twice_when_subtasks_with_other_watermarks_become_one(backend: str) -> None:
    job = RestartedJob(sessions(100))
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.watermark(9, subtask=0)
    first = [row for row, _ in job.take()]
    assert 0 < len(first) < len(KEYS)
    job.stop(OWN)
    job.start(1, backend)
    # The session has fired for some keys, and its end is before the watermark of none. A row opens it again.
    job.push([(first[0][0], 2)], [5])
    job.stop(OWN)
    job.start(3, backend)
    job.watermark(9)
    second = [row for row, _ in job.take()]
    others = set(KEYS) - {row[0] for row in first}
    expected = [(key, 5, 10, (1,)) for key in others] + [(first[0][0], 5, 10, (1, 2))]
    assert Counter(second) == Counter(expected)
    job.watermark(200)
    assert job.take() == [] and all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_another_lateness_counts_from_the_savepoint_on(options: CheckpointOptions) -> None:
    job = RestartedJob(sessions(0))
    job.start(1, "hashmap")
    job.push([(1, 2)], [5])
    job.stop(options)
    job._build = sessions(50)
    job.start(2, "hashmap")
    job.watermark(20)
    job.push([(1, 3)], [7])
    assert [row for row, _ in job.take()] == [(1, 5, 10, (2,)), (1, 5, 12, (2, 3))]
    job.stop(options)
    job._build = sessions(0)
    job.start(1, "hashmap")
    job.watermark(100)
    assert job.take() == [] and all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("trigger", [None, OwnTrigger()], ids=["fast", "general"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lateness", [0, 3])
def test_a_shorter_lateness_makes_rows_late_for_sessions_that_were_kept_longer(
    lateness: int, backend: str, trigger: Any
) -> None:
    job = RestartedJob(sessions(30, trigger=trigger))
    job.start(1, backend)
    job.push([(1, 2), (2, 2)], [5, 5])
    job.watermark(20)
    assert sorted(row for row, _ in job.take()) == [(1, 5, 10, (2,)), (2, 5, 10, (2,))]
    job.stop(CANONICAL)
    job._build = sessions(lateness, trigger=trigger)
    job.start(1, backend)
    # One row prolongs a session that is kept, the other one lies in it.
    job.push([(1, 3), (2, 3)], [7, 5])
    job.watermark(21)
    job.push([(1, 4)], [50])
    job.watermark(100)
    assert [row for row, _ in job.take()] == [(1, 50, 55, (4,))], "the rows at 7 and 5 were late"
    assert [operator.late_dropped for operator in windowing(job)] == [2]
    assert all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


@pytest.mark.parametrize("trigger", [None, OwnTrigger()], ids=["fast", "general"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_longer_lateness_keeps_sessions_that_have_fired(backend: str, trigger: Any) -> None:
    job = RestartedJob(sessions(20, trigger=trigger))
    job.start(1, backend)
    job.push([(1, 2), (2, 2)], [5, 5])
    job.watermark(15)
    assert sorted(row for row, _ in job.take()) == [(1, 5, 10, (2,)), (2, 5, 10, (2,))]
    job.stop(CANONICAL)
    job._build = sessions(60, trigger=trigger)
    job.start(1, backend)
    job.watermark(40)
    job.push([(1, 3)], [7])
    assert [row for row, _ in job.take()] == [(1, 5, 12, (2, 3))]
    job.watermark(100)
    assert job.take() == [] and all(map(keeps_nothing, windowing(job)))
    job.stop(CANONICAL)


def test_another_gap_counts_for_rows_from_the_savepoint_on() -> None:
    def build(gap: int) -> Any:
        def fragment(rows: DataStream) -> DataStream:
            assigner = EventTimeSessionWindows.with_gap(Time.milliseconds(gap))
            return (
                rows.key_by(lambda row: row[0])
                .window(assigner)
                .aggregate(NumbersInPlace(), Shown())
                .uid("windows")
            )

        return fragment

    job = RestartedJob(build(5))
    job.start(1, "hashmap")
    job.push([(1, 2), (2, 2)], [5, 5])
    job.stop(CANONICAL)
    job._build = build(8)
    job.start(3, "rocksdb")
    job.push([(1, 3), (2, 3)], [10, 11])
    job.watermark(100)
    assert Counter(row for row, _ in job.take()) == Counter(
        [(1, 5, 18, (2, 3)), (2, 5, 10, (2,)), (2, 11, 19, (3,))]
    )
    job.stop(CANONICAL)


ONE_LIST, BY_WINDOW = (
    "sessions in one list a key",
    "windows without an evictor, of which none is made of slices",
)
WITH_EVICTOR = "windows with an evictor"


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("first", "second", "was", "now"),
    [
        (sessions(), sessions(trigger=OwnTrigger()), ONE_LIST, BY_WINDOW),
        (sessions(trigger=OwnTrigger()), sessions(), BY_WINDOW, ONE_LIST),
        (sessions(), sessions(evictor=CountEvictor.of(2)), ONE_LIST, WITH_EVICTOR),
        (sessions(evictor=CountEvictor.of(2)), sessions(), WITH_EVICTOR, ONE_LIST),
    ],
    ids=["trigger", "no trigger", "evictor", "no evictor"],
)
def test_sessions_of_another_way_are_refused_by_name(
    backend: str, options: CheckpointOptions, first: Any, second: Any, was: str, now: str
) -> None:
    job = RestartedJob(first)
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS], [5] * len(KEYS))
    job.stop(options)
    job._build = second
    with pytest.raises(FragmentFailedError, match=f"the snapshot holds {was}, the program declares {now}"):
        job.start(2, backend)
    for fragment in job.fragments:
        fragment.close()


def test_the_refusal_of_the_form_of_the_general_operator_names_both_causes_and_a_way_on() -> None:
    job = RestartedJob(sessions(trigger=OwnTrigger()))
    job.start(1, "hashmap")
    job.push([(1, 1)], [5])
    job.stop(CANONICAL)
    job._build = sessions()
    causes = "Either the program has changed, or it is the same, and an earlier version of Yarrow ran these windows"
    with pytest.raises(FragmentFailedError, match=f"{causes}.* set a trigger of a class of your own"):
        job.start(1, "hashmap")
    for fragment in job.fragments:
        fragment.close()
    # The message advises a class that means the default trigger.
    job._build = sessions(trigger=OwnTrigger())
    job.start(1, "hashmap")
    job.push([(1, 2)], [7])
    job.watermark(20)
    assert [row for row, _ in job.take()] == [(1, 5, 12, (1, 2))]
    job.stop(CANONICAL)


def test_the_jobs_above_take_the_fast_way() -> None:
    job = RestartedJob(sessions())
    job.start(2, "hashmap")
    assert all(type(operator) is SessionWindows for operator in job.operators)
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(("key", "equal"), [(1, True), (5, 5.0)])
def test_a_key_that_is_equal_to_a_known_one_may_begin_a_session(backend: str, key: Any, equal: Any) -> None:
    job = RestartedJob(sessions())
    job.start(1, backend)
    job.push([(key, 1)], [10])
    job.push([(equal, 2)], [1000])
    job.stop(CANONICAL)
    job.start(2, backend)
    job.watermark(5000)
    taken = sorted((row[0], row[3]) for row, _ in job.take())
    job.stop(CANONICAL)
    assert taken == [(key, (1,)), (key, (2,))]
