"""Patterns against all subsequences of each key: rows out of order and late, watermarks, other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.pattern_model import Kind, Whole, all_matches
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.cep import CEP, Pattern, PatternProcessFunction
from yarrow.common import Time, Types
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.cep.pattern_operator import PatternMatchingOperator
from yarrow.datastream import DataStream
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.testing import OperatorHarness, check_crashes

KEYS = [1, 2, 3]
WHOLES = [
    Whole((Kind("a", "a"), Kind("b", "b")), 40),
    Whole((Kind("a", "a"), Kind("b", "b", "next"), Kind("c", "c")), 40),
    Whole((Kind("a", "a"), Kind("b", "b", least=1, most=None), Kind("c", "c")), 30),
    Whole((Kind("a", "ab"), Kind("n", "c", "not_followed_by")), 30),
    Whole((Kind("a", "a", least=1, most=None, inner="followed_by_any"),), 25),
]
ROW = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])


class Shown(PatternProcessFunction):
    """The rows of each match with their steps."""

    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        found = [(name, row) for name, rows in match.items() for row in rows]
        yield tuple(sorted(found, key=lambda entry: entry[1][2]))


def on_letters(whole: Whole) -> Pattern:
    """The pattern over rows (key, letter, number)."""
    return whole.pattern(lambda row: row[1])


def matching(pattern: Callable[[], Pattern], *, typed: bool) -> Callable[[DataStream], DataStream]:
    def build(rows: DataStream) -> DataStream:
        rows = rows.map(lambda row: row, ROW).set_parallelism(1) if typed else rows
        return CEP.pattern(rows.key_by(lambda row: row[0]), pattern()).process(Shown()).uid("pattern")

    return build


class Model:
    """All rows that were not late, by key."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self.watermark = MIN_TIMESTAMP
        self.rows: dict[int, list[tuple[int, Any]]] = {key: [] for key in KEYS}
        self.dropped = 0

    def row(self, row: Any, time: int) -> None:
        if time <= self.watermark:
            self.dropped += 1
        else:
            self.rows[row[0]].append((time, row))

    def matches(self) -> Counter[Any]:
        """The matches that the watermark has passed."""
        found: Counter[Any] = Counter()
        for rows in self.rows.values():
            rows.sort(key=lambda entry: entry[0])
            for match in all_matches(self.whole, [(row[1], time) for time, row in rows]):
                if match.time <= self.watermark:
                    taken = [(name, rows[at][1]) for name, at in match.taken]
                    found[tuple(sorted(taken, key=lambda entry: entry[1][2])), match.time] += 1
        return found


rows_of = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from("aabbcx"), st.integers(0, 100)), min_size=1, max_size=6
)
steps_of = job_steps(rows_of, st.integers(0, 100), most=9, mostly_rows=True)


@pytest.mark.slow
@pytest.mark.parametrize("whole", WHOLES, ids=lambda whole: "".join(kind.name for kind in whole.kinds))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]), typed=st.booleans())
def test_matches_are_those_of_the_model(whole: Whole, steps: list[Any], backend: str, typed: bool) -> None:
    model = Model(whole)
    job = RestartedJob(matching(lambda: on_letters(whole), typed=typed))
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for step, what in [*steps, ("watermark", 100_000)]:
            if step == "rows":
                for key, letter, time in what:
                    number += 1
                    model.row((key, letter, number), time)
                    job.push([(key, letter, number)], [time])
            elif step == "watermark":
                model.watermark = max(model.watermark, what)
                job.watermark(what)
            else:
                dropped += sum(operator.late_dropped for operator in operators(job))
                job.restart(*what)
            for row, time in job.take():
                found[row, time] += 1
            assert found == model.matches()
        assert dropped + sum(operator.late_dropped for operator in operators(job)) == model.dropped
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def operators(job: RestartedJob) -> Iterator[PatternMatchingOperator]:
    for operator in job.operators:
        assert isinstance(operator, PatternMatchingOperator)
        yield operator


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_among_keys_loses_and_doubles_none(backend: str) -> None:
    whole = WHOLES[0]
    job = RestartedJob(matching(lambda: on_letters(whole), typed=True))
    job.start(1, backend)
    keys = list(range(300))
    for letter, time in (("a", 5), ("b", 6)):
        job.push([(key, letter, time) for key in keys], [time] * len(keys))
    (operator,) = operators(job)
    operator.on_watermark(50)
    # A deadline that has passed: a few rows, or a key, leave in each slice.
    left: list[Any] = []
    while not left and operator.event_timers_due:
        left += [row for row, _ in operator.fire_event_timers(0.0)]
    assert 0 < len(left) < 300
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    job.watermark(50)
    again = [row for row, _ in job.take()]
    assert len(again) == 300 - len(left)
    assert {row[0][1][0] for row in [*left, *again]} == set(keys)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def row_at(letter: str, time: int) -> Callable[[OperatorHarness], None]:
    """A step that sends a row to each key: its number is its time."""
    return lambda harness: harness.push(*((key, letter, time) for key in KEYS), timestamps=[time] * len(KEYS))


def watermark(time: int) -> Callable[[OperatorHarness], None]:
    """A step that sends a watermark."""
    return lambda harness: harness.watermark(time)


#: Rows that wait, begin a match, go on with it, run out of time, and come too late.
STEPS = [
    row_at("a", 5), row_at("b", 12), watermark(6), row_at("a", 9), watermark(12), row_at("b", 14), row_at("b", 11),
    watermark(20), row_at("c", 30), row_at("a", 31), watermark(30), row_at("c", 90), watermark(89),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whole", "backend"),
    [(WHOLES[2], "hashmap"), (WHOLES[2], "rocksdb"), (WHOLES[3], "hashmap")],
    ids=["loops on the heap", "loops in RocksDB", "absence on the heap"],
)
def test_a_crash_behind_the_barrier_of_each_step_loses_and_doubles_nothing(
    whole: Whole, backend: str
) -> None:
    check_crashes(
        matching(lambda: on_letters(whole), typed=False),
        STEPS,
        configuration={"state.backend.type": backend},
        parallelisms=[1, 3],
    )


def test_a_late_row_is_as_late_after_a_restore_as_before() -> None:
    job = RestartedJob(matching(lambda: on_letters(WHOLES[0]), typed=False))
    job.start(2, "hashmap")
    job.push([(1, "a", 0)], [15])
    job.watermark(20)
    job.stop(CANONICAL)
    job.start(3, "hashmap")
    job.push([(1, "b", 1)], [20])
    assert sum(operator.late_dropped for operator in operators(job)) == 1
    job.push([(1, "b", 2)], [21])
    job.watermark(21)
    assert [time for _, time in job.take()] == [21]
    job.stop(CANONICAL)


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_conditions_and_limits_may_change_over_a_savepoint_but_no_steps(options: CheckpointOptions) -> None:
    patterns = [on_letters(WHOLES[0])]
    job = RestartedJob(matching(lambda: patterns[0], typed=True))
    job.start(1, "hashmap")
    job.push([(1, "a", 0)], [10])
    job.watermark(10)
    job.stop(options)
    patterns[0] = on_letters(Whole((Kind("a", "a"), Kind("b", "c")), 90))
    job.start(2, "hashmap")
    job.push([(1, "b", 1), (1, "c", 2)], [60, 61])
    job.watermark(99)
    assert [time for _, time in job.take()] == [61]
    job.stop(options)
    patterns[0] = on_letters(WHOLES[1])
    message = r"belong to another pattern, with the steps a\|b, and this one has "
    with pytest.raises(FragmentFailedError, match=rf"{message}the steps a\|b\|c"):
        job.start(1, "hashmap")
    patterns[0] = on_letters(Whole((Kind("a", "a"), Kind("b", "b", "next")), 90))
    with pytest.raises(FragmentFailedError, match=rf"{message}other ways from one to the next"):
        job.start(1, "hashmap")


def test_a_pattern_without_a_limit_keeps_its_partial_matches() -> None:
    pattern = Pattern.begin("a").where(lambda row: row[1] == "a").next("b").where(lambda row: row[1] == "b")
    pattern = pattern.times(2, window_time=Time.days(1))
    job = RestartedJob(matching(lambda: pattern, typed=True))
    job.start(1, "rocksdb")
    for number, letter in enumerate("abb"):
        job.push([(1, letter, number)], [number])
        job.watermark(number)
        assert bool(job.take()) is (number == 2)
        job.stop(OWN)
        job.start(number + 2, "rocksdb")
    job.watermark(10**12)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_match_may_begin_where_the_first_test_fails(backend: str) -> None:
    def pattern() -> Pattern:
        return (
            Pattern.begin("a")
            .where(lambda row: row[1] == "a")
            .optional()
            .next("b")
            .within(Time.milliseconds(40))
        )

    job = RestartedJob(matching(pattern, typed=True))
    job.start(1, backend)
    job.push([(1, "x", 1), (1, "a", 2), (1, "y", 3), (2, "z", 4)], [10, 11, 12, 13])
    job.watermark(100)
    found = sorted(tuple((name, row[1]) for name, row in match) for match, _ in job.take())
    job.stop(CANONICAL)
    assert found == [(("a", "a"), ("b", "y")), (("b", "a"),), (("b", "x"),), (("b", "y"),), (("b", "z"),)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(("key", "equal"), [(1, True), (5, 5.0)])
def test_rows_of_equal_keys_are_of_one_key(backend: str, key: Any, equal: Any) -> None:
    def pattern() -> Pattern:
        whole = Pattern.begin("a").where(lambda row: row[1] == "a").next("b").where(lambda row: row[1] == "b")
        return whole.within(Time.milliseconds(40))

    job = RestartedJob(matching(pattern, typed=False))
    job.start(1, backend)
    job.push([(equal, "a", 1)], [10])
    job.watermark(10)
    job.push([(key, "x", 2), (equal, "a", 3)], [11, 12])
    job.stop(CANONICAL)
    job.start(2, backend)
    job.watermark(12)
    job.push([(key, "b", 4)], [13])
    job.watermark(100)
    taken = [tuple(row[2] for _, row in match) for match, _ in job.take()]
    job.stop(CANONICAL)
    assert taken == [(3, 4)]
