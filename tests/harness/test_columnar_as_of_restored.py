"""As-of joins of columns against the model of those of rows: late rows, watermarks, restarts at other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_waiting_joins_restored import END, AsOf
from tests.support.columnar_joins import run_steps, steps_of
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL, MAX_PARALLELISM
from yarrow.common.time import Time
from yarrow.container.operators.columnar_join import columnar_as_of_join, columnar_join
from yarrow.datastream import DataStream
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.testing.operator_harness import FragmentFailedError

KEYS = [1, -7, None]
LEFT = pa.schema([("k", pa.int64()), ("left", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("right", pa.int64())])
MAX = (1 << 63) - 1
YEAR = 365 * 86_400_000


def joining(
    direction: str, tolerance: int | None, outer: bool
) -> Callable[[DataStream, DataStream], DataStream]:
    def build(first: DataStream, second: DataStream) -> DataStream:
        join: Any = first.key_by("k").as_of_join(second.key_by("k"))
        directed = getattr(join, direction)(None if tolerance is None else Time.milliseconds(tolerance))
        made: DataStream = (directed.left_outer() if outer else directed).to_columns()
        return made.uid("join")

    return build


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Little is looked at together, and replaced versions go soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_as_of_join, "MOST_PAIRS", 2)
        patch.setattr(columnar_as_of_join, "LEAST_VERSIONS", 2)
        yield


rows_of = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 90).map(lambda time: 100 * time)), min_size=1, max_size=8
)
STEPS = steps_of(rows_of, st.integers(0, 90).map(lambda time: 100 * time))


def run(model: AsOf, job: RestartedColumns, steps: list[Any], backend: str) -> None:
    """Runs the steps through the operator and the model; the state returns to nothing."""
    number = 0

    def push(side: int, rows: list[Any]) -> None:
        nonlocal number
        numbered = []
        for key, time in rows:
            number += 1
            model.row(side, (key, number), time)
            numbered.append((key, number))
        job.push_rows(numbered, [time for _, time in rows], side)

    def rise(time: int) -> None:
        model.watermark = max(model.watermark, time)
        job.watermark(time)

    def check(found: Counter[Any]) -> None:
        assert found == expected(model)

    steps = [*steps, ("watermark", END, None), ("watermark", MAX, None)]
    run_steps(job, steps, backend, push=push, rise=rise, check=check, dropped=lambda: model.dropped)


def expected(model: AsOf) -> Counter[Any]:
    """Results of the model by the numbers of their rows."""
    return Counter(
        {
            ((left[1], right and right[1]), time): count
            for ((left, right, *_), time), count in model.results().items()
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    tolerance=st.sampled_from([0, 700, 3000, None]),
)
def test_as_of_joins_of_columns_are_those_of_rows(
    direction: str, outer: bool, steps: list[Any], backend: str, tolerance: int | None
) -> None:
    if tolerance is None and (direction == "nearest" or (outer and direction == "forward")):
        tolerance = 1500
    job = RestartedColumns(joining(direction, tolerance, outer), LEFT, "k", others=(RIGHT,))
    run(AsOf(direction, tolerance, outer), job, steps, backend)


def test_a_cut_among_rows_that_leave_loses_and_doubles_none() -> None:
    job = RestartedColumns(joining("backward", None, True), LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    keys = list(range(50))
    job.push_rows([(key, key) for key in keys], [5] * 50)
    (operator,) = job.operators
    operator.on_watermark(5000)
    # A deadline that has passed: two rows leave in each slice.
    batches = [batch for _ in range(10) for batch in operator.fire_event_timers(0.0)]
    left = [row["left"] for batch in batches for row in batch.batch.to_pylist()]  # type: ignore[union-attr]
    assert len(left) == 20
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, "rocksdb")
    # A row of the second stream that comes too late changes nothing.
    job.push_rows([(key, -1) for key in keys], [5] * 50, 1)
    job.watermark(5000)
    again = [row for row, _ in job.take()]
    assert {row["right"] for row in again} == {None}
    assert sorted([*left, *(row["left"] for row in again)]) == keys
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def test_rows_that_lie_far_apart_meet_behind_a_restart() -> None:
    job = RestartedColumns(joining("backward", None, False), LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    # Times are counted from that of the first record on, which is no longer there.
    job.push_rows([(9, 0)], [0])
    job.watermark(-60 * YEAR)
    job.push_rows([(1, 10), (2, 20)], [1 - 60 * YEAR] * 2, 1)
    job.push_rows([(1, 1), (2, 2)], [60 * YEAR] * 2)
    job.stop(CANONICAL)
    job.start(1, "hashmap")
    job.watermark(60 * YEAR)
    found = sorted((row["left"], row["right"], time) for row, time in job.take())
    assert found == [(1, 10, 60 * YEAR), (2, 20, 60 * YEAR)]
    job.stop(CANONICAL)


def test_a_subtask_refuses_restored_rows_that_lie_too_far_apart() -> None:
    job = RestartedColumns(joining("backward", None, False), LEFT, "k", others=(RIGHT,))
    job.start(2, "hashmap")
    batch = pa.record_batch([range(20), range(20)], schema=LEFT)
    of_second = BatchKey("k").hashes(batch) % np.uint64(MAX_PARALLELISM) >= MAX_PARALLELISM // 2
    # Each of both subtasks counts from its own first record on.
    job.push_batch(batch, pa.array(np.where(of_second, 160 * YEAR, 0)))
    job.stop(CANONICAL)
    with pytest.raises(FragmentFailedError, match=r"(?s)between the times 0 and .*more than 139 years"):
        job.start(1, "hashmap")


def test_a_subtask_refuses_more_restored_keys_than_it_can_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    job = RestartedColumns(joining("backward", None, False), LEFT, "k", others=(RIGHT,))
    monkeypatch.setattr(columnar_join, "MOST_SLOTS", 15)
    job.start(2, "hashmap")
    job.push_rows([(key, key) for key in range(20)], [5] * 20)
    job.stop(CANONICAL)
    with pytest.raises(FragmentFailedError, match=r"keeps 15 keys at most\. Set a higher parallelism"):
        job.start(1, "hashmap")


@pytest.mark.parametrize(("before", "after"), [(3000, 500), (500, 3000)])
def test_the_tolerance_may_change_over_a_savepoint(before: int, after: int) -> None:
    tolerance = before

    def build(first: DataStream, second: DataStream) -> DataStream:
        return joining("forward", tolerance, True)(first, second)

    job = RestartedColumns(build, LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    job.push_rows([(1, 10), (2, 20)], [1000, 1000])
    job.watermark(1200)
    assert job.take() == []
    job.stop(CANONICAL)
    tolerance = after
    job.start(2, "hashmap")
    job.push_rows([(1, 11)], [2000], 1)
    job.watermark(1600)
    assert len(job.take()) == (2 if after == 500 else 0)
    job.watermark(2000)
    assert [row["right"] for row, _ in job.take()] == ([] if after == 500 else [11])
    job.stop(CANONICAL)
