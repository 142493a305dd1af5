"""Interval joins against a model in plain Python: rows out of order and late, watermarks, other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.common.time import Time
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.join.interval_join import IntervalJoiningOperator
from yarrow.datastream import DataStream, IntervalJoined, ProcessJoinFunction
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.data_set_spec import JoinKind

KEYS = [1, "two", None]
#: Rows of this type wait without their key (PairForm).
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
KEYS_OF_PAIRS = [1, 2, -3]
#: The bounds in the second line are narrow.
BOUNDS = [
    *[(-700, 1500), (300, 2600), (-3000, -400)],
    *[(0, 0), (100, 100), (-100, -100), (-100, -99), (-150, 40)],
]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()


def in_form(joined: IntervalJoined[DataStream], kind: JoinKind) -> IntervalJoined[DataStream]:
    """The join with the rows that it keeps."""
    match kind:
        case JoinKind.LEFT_OUTER:
            return joined.left_outer()
        case JoinKind.RIGHT_OUTER:
            return joined.right_outer()
        case JoinKind.FULL_OUTER:
            return joined.full_outer()
    return joined


def interval_join(bounds: tuple[int, int], kind: JoinKind, row_type: TypeInformation | None = None) -> Any:
    def build(first: DataStream, second: DataStream) -> DataStream:
        typed = (first, second) if row_type is None else (as_is(rows, row_type) for rows in (first, second))
        left, right = (rows.key_by(lambda row: row[0]) for rows in typed)
        joined = left.interval_join(right).between(*map(Time.milliseconds, bounds))
        return in_form(joined, kind).process(Pairs()).uid("join")

    return build


def as_is(rows: DataStream, row_type: TypeInformation) -> DataStream:
    """The rows, of a declared type. The job stands in the place of one subtask before the join."""
    return rows.map(lambda row: row, row_type).set_parallelism(1)


class Model:
    """All rows that were not late, in two lists: those that come meet those that have come."""

    def __init__(self, bounds: tuple[int, int]) -> None:
        self.lower, self.upper = bounds
        self.watermark = MIN_TIMESTAMP
        self.rows: tuple[list[Any], list[Any]] = ([], [])
        self.pairs: Counter[Any] = Counter()
        self.met: set[Any] = set()
        self.dropped = 0

    def row(self, side: int, row: Any, time: int) -> None:
        if time < self.watermark:
            self.dropped += 1
            return
        self.rows[side].append((row, time))
        for other, other_time in self.rows[1 - side]:
            pair = (other, row, other_time, time) if side else (row, other, time, other_time)
            if row[0] == other[0] and self.lower <= pair[3] - pair[2] <= self.upper:
                self.pairs[(*pair, max(time, other_time)), max(time, other_time)] += 1
                self.met |= {row, other}

    def unmatched(self, kind: JoinKind) -> Counter[Any]:
        """The results of rows that have met none."""
        left = [((row, None, time, None, time), time) for row, time in self.rows[0] if row not in self.met]
        right = [((None, row, None, time, time), time) for row, time in self.rows[1] if row not in self.met]
        return Counter(left * kind.keeps_first + right * kind.keeps_second)


#: Most are whole tenths of a second, and so meet in each of the narrow intervals.
times_of = st.builds(
    lambda tenths, rest: 100 * tenths + rest, st.integers(0, 90), st.sampled_from([0, 0, 0, 1, 60])
)
rows_of = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(range(len(KEYS))), times_of),
    min_size=1,
    max_size=8,
)
steps_of = job_steps(rows_of, st.integers(0, 90).map(lambda time: 100 * time), mostly_rows=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JoinKind)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=steps_of,
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    bounds=st.sampled_from(BOUNDS),
    are_pairs=st.booleans(),
)
def test_interval_joins_are_those_of_the_model(
    kind: JoinKind, steps: list[Any], backend: str, bounds: tuple[int, int], are_pairs: bool
) -> None:
    model = Model(bounds)
    job = RestartedJob(interval_join(bounds, kind, PAIR if are_pairs else None), inputs=2)
    keys = KEYS_OF_PAIRS if are_pairs else KEYS
    job.start(1, backend)
    pairs: Counter[Any] = Counter()
    alone: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for step, what in [*steps, ("watermark", 100_000)]:
            if step == "rows":
                for side, at, time in what:
                    number += 1
                    row = (keys[at], number)
                    model.row(side, row, time)
                    job.push([row], [time], side)
            elif step == "watermark":
                model.watermark = max(model.watermark, what)
                job.watermark(what)
            else:
                dropped += sum(operator.late_dropped for operator in joining(job))
                job.restart(*what)
            for result in job.take():
                (alone if None in result[0][:2] else pairs)[result] += 1
            assert pairs == model.pairs
            assert alone <= model.unmatched(kind)
            check_times(alone, model)
        assert alone == model.unmatched(kind)
        assert dropped + sum(operator.late_dropped for operator in joining(job)) == model.dropped
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def check_times(alone: Counter[Any], model: Model) -> None:
    """Unmatched rows have left only if no partner can come."""
    for (left, *_), time in alone:
        last_partner = time + (model.upper if left is not None else -model.lower)
        assert last_partner < model.watermark


def joining(job: RestartedJob) -> Iterator[IntervalJoiningOperator]:
    for operator in job.operators:
        assert isinstance(operator, IntervalJoiningOperator)
        yield operator


def test_a_late_row_is_as_late_after_a_restore_as_before() -> None:
    job = RestartedJob(interval_join((0, 10), JoinKind.INNER), inputs=2)
    job.start(2, "hashmap")
    job.watermark(2000)
    job.stop(CANONICAL)
    job.start(3, "hashmap")
    job.push([(1, 1)], [1999])
    job.push([(1, 2)], [2000])
    assert [operator.late_dropped for operator in joining(job)].count(1) == 1
    job.push([(1, 3)], [2000], 1)
    assert [row[:2] for row, _ in job.take()] == [((1, 2), (1, 3))]
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_among_unmatched_rows_loses_and_doubles_none(backend: str) -> None:
    job = RestartedJob(interval_join((0, 10), JoinKind.LEFT_OUTER), inputs=2)
    job.start(1, backend)
    keys = list(range(500))
    job.push([(key, key) for key in keys], [5] * 500)
    (operator,) = joining(job)
    operator.on_watermark(5000)
    # A deadline that has passed: the rows of one key leave in each slice.
    left = [row for _ in range(200) for row, _ in operator.fire_event_timers(0.0)]
    assert len(left) == 200
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    job.watermark(5000)
    again = [row for row, _ in job.take()]
    assert len(again) == 300
    assert {row[0] for row in [*left, *again]} == {(key, key) for key in keys}
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("bounds", [(0, 0), (40, 40), (-150, 40)])
@pytest.mark.parametrize(
    "row_type", [None, Types.TUPLE([Types.LONG(), Types.STRING()])], ids=["any", "declared"]
)
def test_each_backend_finds_the_rows_that_one_in_memory_has_stored(
    bounds: tuple[int, int], backend: str, row_type: TypeInformation | None
) -> None:
    """Also those near the start of a second, on which the buckets of either backend begin."""
    job = RestartedJob(interval_join(bounds, JoinKind.INNER, row_type), inputs=2)
    job.start(1, "hashmap")
    times = [960, 999, 1000, 1000, 1001, 1055]
    job.push([(7, f"left {number}") for number in range(len(times))], times)
    job.restart(2, backend, CANONICAL)
    for time in times:
        job.push([(7, "right")], [time + bounds[1]], 1)
    met = Counter((row[2], row[3]) for row, _ in job.take())
    assert met == Counter(
        (left, right + bounds[1])
        for left in times
        for right in times
        if bounds[0] <= right + bounds[1] - left <= bounds[1]
    )
    job.stop(CANONICAL)


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_bounds_may_change_over_a_savepoint(backend: str, options: CheckpointOptions) -> None:
    bounds = [(0, 9000)]
    job = RestartedJob(lambda *rows: interval_join(bounds[0], JoinKind.FULL_OUTER)(*rows), inputs=2)
    job.start(1, backend)
    job.push([(1, "early"), (1, "middle")], [1000, 4000])
    pairs = set()
    for parallelism, new in ((2, (0, 1500)), (1, (-500, 5000))):
        job.stop(options)
        bounds[0] = new
        job.start(parallelism, backend)
        job.push([(1, f"right of {new}")], [5200], 1)
        pairs |= {(row[0][1], row[1][1]) for row, _ in job.take()}
    assert pairs == {
        ("middle", "right of (0, 1500)"),
        ("early", "right of (-500, 5000)"),
        ("middle", "right of (-500, 5000)"),
    }
    job.watermark(100_000)
    assert job.take() == []
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())
