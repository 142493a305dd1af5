"""Interval joins of columns against those of rows: late rows, watermarks, restarts at other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The pairs must be those that the model
of the interval join of rows has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_interval_joins_restored import BOUNDS, Model
from tests.support.columnar_joins import kept, run_steps, steps_of
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from yarrow.common.time import Time
from yarrow.datastream import DataStream
from yarrow.runtime.graph.data_set_spec import JoinKind

KEYS = [1, -7, None, 2**40]
LEFT = pa.schema([("k", pa.int64()), ("left", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("right", pa.int64())])
#: Keys of two columns, of which one is text.
PAIRS = [("a", 1), ("a", None), (None, 1)]
LEFT_OF_PAIRS = pa.schema([("k", pa.string()), ("m", pa.int64()), ("left", pa.int64())])
RIGHT_OF_PAIRS = pa.schema([("k", pa.string()), ("m", pa.int64()), ("right", pa.int64())])


def joining(
    bounds: tuple[int, int], kind: JoinKind, *keys: str
) -> Callable[[DataStream, DataStream], DataStream]:
    def build(first: DataStream, second: DataStream) -> DataStream:
        left, right = (batches.key_by(*keys) for batches in (first, second))
        joined = left.interval_join(right).between(*map(Time.milliseconds, bounds))
        return kept(joined, kind).to_columns().uid("join")  # type: ignore[no-any-return]

    return build


STEPS = steps_of(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90)), min_size=1, max_size=8), st.integers(0, 90)
)


def run(
    model: Model, job: RestartedColumns, keys: list[Any], kind: JoinKind, steps: list[Any], backend: str
) -> None:
    number = 0

    def push(side: int, rows: list[Any]) -> None:
        nonlocal number
        numbered = []
        for key, time in rows:
            number += 1
            of_key = keys[key] if isinstance(keys[key], tuple) else (keys[key],)
            model.row(side, (keys[key], number), 100 * time)
            numbered.append((*of_key, number))
        job.push_rows(numbered, [100 * time for _, time in rows], side)

    def rise(time: int) -> None:
        model.watermark = max(model.watermark, 100 * time)
        job.watermark(100 * time)

    def check(found: Counter[Any]) -> None:
        pairs = expected(model.pairs)
        assert Counter({each: found[each] for each in found if None not in each[0]}) == pairs

    steps = [*steps, ("watermark", 1000, None)]
    found = run_steps(job, steps, backend, push=push, rise=rise, check=check, dropped=lambda: model.dropped)
    assert found == expected(model.pairs) + expected(model.unmatched(kind))


def expected(results: Counter[Any]) -> Counter[Any]:
    """Results of the model by the numbers of their rows."""
    return Counter(
        {
            ((left and left[1], right and right[1]), time): number
            for ((left, right, *_), time), number in results.items()
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", JoinKind)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, backend=st.sampled_from(["hashmap", "rocksdb"]), bounds=st.sampled_from(BOUNDS))
def test_interval_joins_of_columns_are_those_of_rows(
    kind: JoinKind, steps: list[Any], backend: str, bounds: tuple[int, int]
) -> None:
    job = RestartedColumns(joining(bounds, kind, "k"), LEFT, "k", others=(RIGHT,))
    run(Model(bounds), job, KEYS, kind, steps, backend)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_keys_may_be_of_several_columns(steps: list[Any], backend: str) -> None:
    build = joining((-700, 1500), JoinKind.FULL_OUTER, "k", "m")
    job = RestartedColumns(build, LEFT_OF_PAIRS, ("k", "m"), others=(RIGHT_OF_PAIRS,))
    run(Model((-700, 1500)), job, PAIRS, JoinKind.FULL_OUTER, steps, backend)


def test_a_cut_among_runs_that_leave_loses_and_doubles_none() -> None:
    job = RestartedColumns(joining((0, 10), JoinKind.LEFT_OUTER, "k"), LEFT, "k", others=(RIGHT,))
    job.start(1, "hashmap")
    # Each batch is smaller than half of the one before, so that it stays a run of its own.
    sizes = [400, 100, 20, 4, 1]
    number = 0
    for size in sizes:
        job.push_rows([(number + at, number + at) for at in range(size)], [5] * size)
        number += size
    (operator,) = job.operators
    operator.on_watermark(5000)
    left = [
        row
        for _ in range(2)
        for batch in operator.fire_event_timers(0.0)
        for row in batch.batch.to_pylist()  # type: ignore[union-attr]
    ]
    assert len(left) == 500
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, "rocksdb")
    job.watermark(5000)
    again = [row for row, _ in job.take()]
    assert len(again) == 25
    assert {row["left"] for row in [*left, *again]} == set(range(number))
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_columns_may_have_the_names_of_what_the_state_holds_in_front_of_them(backend: str) -> None:
    left, right = (pa.schema([("k", pa.int64()), (name, pa.int64())]) for name in ("time", "has met"))
    job = RestartedColumns(joining((-5, 5), JoinKind.FULL_OUTER, "k"), left, "k", others=(right,))
    job.start(2, backend)
    job.push_rows([(1, 7), (2, 8)], [10, 10], 0)
    job.push_rows([(3, 9)], [10], 1)
    job.stop(CANONICAL)
    job.start(1, backend)
    job.push_rows([(1, 4)], [12], 1)
    job.watermark(5000)
    found = sorted((row["time"] or 0, row["has met"] or 0) for row, _ in job.take())
    assert found == [(0, 9), (7, 4), (8, 0)]
