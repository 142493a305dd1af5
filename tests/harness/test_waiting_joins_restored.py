"""As-of and delayed joins against models in plain Python: rows out of order and late, watermarks, other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.restarted_job import CANONICAL, RestartedJob
from yarrow.common.time import Time
from yarrow.container.operators.join.waiting_join import WaitingJoiningOperator
from yarrow.datastream import AsOfJoin, DataStream, ProcessJoinFunction
from yarrow.runtime.data.elements import MIN_TIMESTAMP

KEYS = [1, "two", None]
END = 100_000

_Times = tuple[int | None, int | None]
#: A result of `Pairs` with its timestamp.
_Result = tuple[tuple[Any, Any, int | None, int | None, int], int]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()


def pair(left: Any, right: Any, result_time: int) -> _Result:
    """The result of two (row, time), either of which may be missing."""
    (left, left_time), (right, right_time) = left or (None, None), right or (None, None)
    return (left, right, left_time, right_time, result_time), result_time


class Model:
    """All rows that were not late. `results` says what has left at the watermark."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.rows: tuple[list[Any], list[Any]] = ([], [])
        self.dropped = 0

    def row(self, side: int, row: Any, time: int) -> None:
        if time <= self.watermark:
            self.dropped += 1
        else:
            self.rows[side].append((row, time))

    def of_key(self, side: int, key: Any) -> list[Any]:
        """The rows of a key by time, equal times as they came."""
        return sorted((each for each in self.rows[side] if each[0][0] == key), key=lambda each: each[1])


class AsOf(Model):
    """Each left row with the one right row of its key that is nearest in the direction."""

    def __init__(self, direction: str, tolerance: int | None, outer: bool) -> None:
        super().__init__()
        self.direction, self.tolerance, self.outer = direction, tolerance, outer

    def build(self, first: DataStream, second: DataStream) -> DataStream:
        left, right = (rows.key_by(lambda row: row[0]) for rows in (first, second))
        joined: AsOfJoin[DataStream] = left.as_of_join(right)
        tolerance = None if self.tolerance is None else Time.milliseconds(self.tolerance)
        directed = getattr(joined, self.direction)(tolerance)
        made: DataStream = (directed.left_outer() if self.outer else directed).process(Pairs())
        return made.uid("join")

    def _found(self, time: int, versions: list[Any]) -> Any:
        def near(version: Any) -> bool:
            apart = version[1] - time
            reaches = self.tolerance is None or abs(apart) <= self.tolerance
            return reaches and not (
                (self.direction == "backward" and apart > 0) or (self.direction == "forward" and apart < 0)
            )

        # Of equal times the last that came, of equal distances the earlier one.
        last = {version[1]: version for version in versions}
        return min(filter(near, last.values()), key=lambda each: (abs(each[1] - time), each[1]), default=None)

    def results(self) -> Counter[_Result]:
        """Rows have left as soon as nothing above the watermark can change their partner."""
        left: Counter[_Result] = Counter()
        for row, time in self.rows[0]:
            versions = [each for each in self.of_key(1, row[0]) if each[1] <= self.watermark]
            found = self._found(time, versions)
            # The nearest rival that could still come.
            rival = self._found(time, [*versions, (None, max(self.watermark + 1, time))])
            if time <= self.watermark and rival == found and (found or self.outer):
                left[pair((row, time), found, max(time, found[1]) if found else time)] += 1
        return left


class Delayed(Model):
    """Rows of a key in batches, each from its first row on."""

    def __init__(self, kind: str, delay: int) -> None:
        super().__init__()
        self.kind, self.delay = kind, delay

    def build(self, first: DataStream, second: DataStream) -> DataStream:
        left, right = (rows.key_by(lambda row: row[0]) for rows in (first, second))
        joined = left.delayed_join(right).after(Time.milliseconds(self.delay))
        made: DataStream = (getattr(joined, self.kind)() if self.kind else joined).process(Pairs())
        return made.uid("join")

    def results(self) -> Counter[_Result]:
        found: Counter[_Result] = Counter()
        for key in KEYS:
            sides = [self.of_key(side, key) for side in (0, 1)]
            while any(sides):
                last = min(rows[0][1] for rows in sides if rows) + self.delay - 1
                if last > self.watermark:
                    break
                left, right = ([row for row in rows if row[1] <= last] for rows in sides)
                sides = [[row for row in rows if row[1] > last] for rows in sides]
                found.update(pair(one, other, last) for one in left for other in right)
                if not right and self.kind in ("left_outer", "full_outer"):
                    found.update(pair(one, None, last) for one in left)
                if not left and self.kind in ("right_outer", "full_outer"):
                    found.update(pair(None, other, last) for other in right)
        return found


rows_of = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.integers(0, 90).map(lambda time: 100 * time)),
    min_size=1,
    max_size=8,
)
steps_of = job_steps(rows_of, st.integers(0, 90).map(lambda time: 100 * time), mostly_rows=True)


def run(model: Any, steps: list[Any], backend: str) -> None:
    """Runs the steps through the operator and the model; the state returns to nothing."""
    job = RestartedJob(model.build, inputs=2)
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for step, what in [*steps, ("watermark", END)]:
            if step == "rows":
                for side, key, time in what:
                    number += 1
                    model.row(side, (key, number), time)
                    job.push([(key, number)], [time], side)
            elif step == "watermark":
                model.watermark = max(model.watermark, what)
                job.watermark(what)
            else:
                dropped += late_dropped(job)
                job.restart(*what)
            found.update(job.take())
            assert found == model.results()
        assert dropped + late_dropped(job) == model.dropped
        job.watermark((1 << 63) - 1)
        found.update(job.take())
        model.watermark = (1 << 63) - 1
        assert found == model.results()
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def late_dropped(job: RestartedJob) -> int:
    """Late rows that all subtasks have dropped."""
    dropped = 0
    for operator in job.operators:
        assert isinstance(operator, WaitingJoiningOperator)
        dropped += operator.late_dropped
    return dropped


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "outer"),
    [
        ("backward", False),
        ("backward", True),
        ("forward", False),
        ("forward", True),
        ("nearest", False),
        ("nearest", True),
    ],
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=steps_of,
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    tolerance=st.sampled_from([0, 700, 3000, None]),
)
def test_as_of_joins_are_those_of_the_model(
    direction: str, outer: bool, steps: list[Any], backend: str, tolerance: int | None
) -> None:
    if tolerance is None and (direction == "nearest" or (outer and direction == "forward")):
        tolerance = 1500
    run(AsOf(direction, tolerance, outer), steps, backend)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "left_outer", "right_outer", "full_outer"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]), delay=st.sampled_from([1, 700, 3000]))
def test_delayed_joins_are_those_of_the_model(kind: str, steps: list[Any], backend: str, delay: int) -> None:
    run(Delayed(kind, delay), steps, backend)


def as_of() -> AsOf:
    return AsOf("backward", None, True)


def delayed() -> Delayed:
    return Delayed("left_outer", 10)


@pytest.mark.parametrize("model", [as_of, delayed])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_among_keys_that_fire_loses_and_doubles_none(backend: str, model: Callable[[], Any]) -> None:
    job = RestartedJob(model().build, inputs=2)
    job.start(1, backend)
    keys = list(range(500))
    job.push([(key, key) for key in keys], [5] * 500)
    (operator,) = job.operators
    operator.on_watermark(5000)
    # A deadline that has passed: the rows of one key leave in each slice.
    left = [result[0] for _ in range(200) for result, _ in operator.fire_event_timers(0.0)]  # type: ignore[misc]
    assert len(left) == 200
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    # A row of the second stream that comes too late changes nothing.
    job.push([(key, "late") for key in keys], [5] * 500, 1)
    job.watermark(5000)
    again = [result[0] for result, _ in job.take()]
    assert len(again) == 300
    assert {*left, *again} == {(key, key) for key in keys}
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def test_versions_without_a_timer_are_forgotten_in_slices_at_the_end() -> None:
    job = RestartedJob(as_of().build, inputs=2)
    job.start(1, "hashmap")
    job.push([(key, key) for key in range(100)], [5] * 100, 1)
    job.watermark(50)
    (operator,) = job.operators
    operator.on_watermark((1 << 63) - 1)
    slices = 0
    while operator.event_timers_due:
        assert list(operator.fire_event_timers(0.0)) == []
        slices += 1
    assert slices >= 100
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())
