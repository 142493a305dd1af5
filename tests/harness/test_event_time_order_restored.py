"""Rows in event-time order against a model: rows out of order and late, restarts at parallelism 1 to 4, both backends.

A restart cuts all subtasks and begins anew from the snapshot. The output must be that of a run without restarts.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import RESTARTS
from tests.support.restarted_job import CANONICAL, MAX_PARALLELISM, OWN, RestartedJob
from yarrow.common.typeinfo import Types
from yarrow.container.operators.event_time_order import event_time_buffer
from yarrow.datastream import DataStream
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import key_group_of, operator_index_for_key_group
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.testing.operator_harness import OperatorHarness

KEYS = [1, "two", None, (3, "four")]
KEYS_OF_PAIRS = [1, 2, -3, 2**40]


def by_key(stream: DataStream) -> DataStream:
    return stream.key_by(lambda row: row[0]).in_event_time_order().uid("order")


def by_typed_key(stream: DataStream) -> DataStream:
    typed = stream.map(lambda row: row, Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), Types.INT()]))
    # The job stands in the place of one subtask before the operator.
    typed.set_parallelism(1)
    return typed.key_by(lambda row: row[0]).in_event_time_order().uid("order")


def pairs_by_key(stream: DataStream) -> DataStream:
    """Pairs of key and number, which wait without their key (PairForm)."""
    typed = stream.map(lambda row: row, Types.TUPLE([Types.LONG(), Types.INT()])).set_parallelism(1)
    return typed.key_by(lambda row: row[0]).in_event_time_order().uid("order")


def without_keys(stream: DataStream) -> DataStream:
    return stream.rebalance().in_event_time_order().uid("order")


rows_of = st.lists(
    st.tuples(st.sampled_from(range(len(KEYS))), st.integers(0, 60).map(lambda time: 100 * time)),
    min_size=1,
    max_size=8,
)
steps_of = st.lists(
    st.one_of(
        rows_of.map(lambda rows: ("rows", rows)),
        rows_of.map(lambda rows: ("rows", rows)),
        st.integers(0, 60).map(lambda time: ("watermark", 100 * time)),
        # The rows up to a time become due, but only some leave before what comes next.
        st.integers(0, 60).map(lambda time: ("slice", 100 * time)),
        RESTARTS.map(lambda how: ("restart", how)),
    ),
    min_size=2,
    max_size=16,
)


class Model:
    """Rows that wait, in one list."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.waiting: list[Any] = []
        self.left: list[Any] = []
        self.dropped = 0

    def row(self, row: Any, time: int) -> None:
        if time <= self.watermark:
            self.dropped += 1
        else:
            self.waiting.append((row, time))

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        due = [entry for entry in self.waiting if entry[1] <= self.watermark]
        self.waiting = [entry for entry in self.waiting if entry[1] > self.watermark]
        self.left += sorted(due, key=lambda entry: entry[1])


def of_each_key(entries: list[Any]) -> dict[str, list[Any]]:
    """Rows with their times by key, in their order."""
    ordered = sorted(entries, key=lambda entry: repr(entry[0][0]))
    return {key: list(found) for key, found in groupby(ordered, key=lambda entry: repr(entry[0][0]))}


def one_slice(operator: Any) -> list[Any]:
    """Some rows with their times, as if the deadline had passed."""
    return [
        entry for rows, times in operator.fire_event_timers(0.0) for entry in zip(rows, times, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "keys"), [(by_key, KEYS), (by_typed_key, KEYS), (pairs_by_key, KEYS_OF_PAIRS)]
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=steps_of,
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    in_memory=st.sampled_from([1, 3, event_time_buffer.ROWS_IN_MEMORY]),
)
def test_keyed_rows_leave_as_those_of_the_model(
    build: Any, keys: list[Any], steps: list[Any], backend: str, in_memory: int
) -> None:
    with patch.object(event_time_buffer, "ROWS_IN_MEMORY", in_memory):
        keyed_rows_leave_as_those_of_the_model(build, keys, steps, backend)


def keyed_rows_leave_as_those_of_the_model(
    build: Any, keys: list[Any], steps: list[Any], backend: str
) -> None:
    model, job, number = Model(), RestartedJob(build), 0
    job.start(1, backend)
    found: list[Any] = []
    dropped = 0
    try:
        for step, what in [*steps, ("watermark", 100_000)]:
            if step == "rows":
                for at, time in what:
                    number += 1
                    row = (keys[at], number)
                    model.row(row, time)
                    job.push([row], [time])
            elif step == "watermark":
                model.advance(what)
                job.watermark(what)
            elif step == "slice":
                model.advance(what)
                for operator in job.operators:
                    operator.on_watermark(what)
                    found += one_slice(operator)
                continue
            else:
                dropped += sum(operator.late_dropped for operator in job.operators)  # type: ignore[attr-defined]
                found += job.take()
                job.restart(*what)
            found += job.take()
            seen, expected = of_each_key(found), of_each_key(model.left)
            assert all(expected[key][: len(rows)] == rows for key, rows in seen.items())
        assert of_each_key(found) == of_each_key(model.left)
        assert dropped + sum(operator.late_dropped for operator in job.operators) == model.dropped  # type: ignore[attr-defined]
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, rescales=st.booleans())
def test_rows_without_keys_leave_once_and_in_order(steps: list[Any], rescales: bool) -> None:
    model, job, number = Model(), RestartedJob(without_keys), 0
    job.start(2, "hashmap")
    found: list[Any] = []
    try:
        for step, what in [*steps, ("watermark", 100_000)]:
            if step == "rows":
                for at, time in what:
                    number += 1
                    row = (KEYS[at], number)
                    model.row(row, time)
                    job.push([row], [time])
            elif step in ("watermark", "slice"):
                model.advance(what)
                job.watermark(what)
            else:
                job.stop(what[2])
                job.start(what[0] if rescales else 2, "hashmap")
            found += job.take()
            assert sorted(found, key=repr) == sorted(model.left, key=repr)
        if not rescales:
            # The job sends rows of a key to one subtask.
            assert of_each_key(found) == of_each_key(model.left)
        job.stop(CANONICAL)
    finally:
        for fragment in job.fragments:
            fragment.close()


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_cut_among_rows_of_one_time_loses_and_doubles_none(
    backend: str, options: CheckpointOptions
) -> None:
    job = RestartedJob(by_key)
    job.start(1, backend)
    keys = list(range(1000))
    job.push([(key, key) for key in keys], [5] * 1000)
    (operator,) = job.operators
    operator.on_watermark(7)
    left = one_slice(operator)
    assert left == [((key, key), 5) for key in keys[: len(left)]]
    assert 0 < len(left) < 1000
    assert operator.event_timers_due
    job.stop(options)
    job.start(3, backend)
    job.push([(2, "late"), (2, "next")], [7, 8])
    job.watermark(8)
    again = job.take()
    assert [*left, *again].count(((2, "next"), 8)) == 1
    assert sorted(row[0] for row, time in [*left, *again] if time == 5) == keys
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


def test_rows_beyond_the_bound_wait_in_state_alone_and_are_read_in_parts_of_a_second() -> None:
    with patch.object(event_time_buffer, "ROWS_IN_MEMORY", 50):
        job = RestartedJob(by_key)
        job.start(1, "rocksdb")
        times = [100 + number * 7919 % 2900 for number in range(1000)]
        for at in range(0, 1000, 20):
            job.push([(at % 7, time) for time in times[at : at + 20]], times[at : at + 20])
        (operator,) = job.operators
        in_order: Any = operator._buffer._in_order  # type: ignore[attr-defined]
        assert 50 <= in_order.count <= 100
        operator.on_watermark(2999)
        found: list[Any] = []
        while operator.event_timers_due:
            # A piece holds no more rows than were read into memory.
            piece = one_slice(operator)
            assert 0 < len(piece) <= 100
            found += piece
        assert [time for _, time in found] == sorted(times)
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())


def key_of_subtask(subtask: int) -> int:
    """A key that the subtask of two has."""
    return next(
        key
        for key in range(100)
        if operator_index_for_key_group(MAX_PARALLELISM, 2, key_group_of(key, MAX_PARALLELISM)) == subtask
    )


def test_a_key_stays_as_strict_as_it_was_beside_others_that_had_come_less_far() -> None:
    behind, ahead = key_of_subtask(0), key_of_subtask(1)
    job = RestartedJob(by_key)
    job.start(2, "hashmap")
    job.push([(ahead, "left")], [90])
    job.watermark(50, 0)
    job.watermark(100, 1)
    assert job.take() == [((ahead, "left"), 90)]
    for parallelism in (1, 2, 1):
        job.stop(CANONICAL)
        job.start(parallelism, "hashmap")
    job.push([(ahead, "late"), (behind, "in time"), (behind, "late")], [80, 80, 50])
    assert [operator.late_dropped for operator in job.operators] == [2]  # type: ignore[attr-defined]
    job.watermark(100)
    assert job.take() == [((behind, "in time"), 80)]
    job.push([(behind, "late now")], [100])
    assert [operator.late_dropped for operator in job.operators] == [3]  # type: ignore[attr-defined]
    job.stop(CANONICAL)


def test_a_restart_without_keys_is_as_strict_as_before() -> None:
    job = RestartedJob(without_keys)
    job.start(2, "hashmap")
    for subtask, time in ((0, 50), (1, 100)):
        job.watermark(time, subtask)
    job.stop(CANONICAL)
    job.start(2, "hashmap")
    assert [operator._buffer.watermark for operator in job.operators] == [50, 100]  # type: ignore[attr-defined]
    job.stop(CANONICAL)
    job.start(3, "hashmap")
    assert [operator._buffer.watermark for operator in job.operators] == [50] * 3  # type: ignore[attr-defined]
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            by_key,
            without_keys,
            "holds the state of rows of a keyed stream .* declares rows of a stream without",
        ),
        (
            without_keys,
            by_key,
            "holds the state of rows of a stream without .* declares rows of a keyed stream",
        ),
    ],
)
def test_waiting_rows_are_refused_where_keys_are_added_or_removed(
    backend: str, before: Any, after: Any, message: str
) -> None:
    with OperatorHarness(before, configuration={"state.backend.type": backend}) as harness:
        harness.push((1, 100), timestamps=[100])
        snapshot = harness.snapshot()
        with pytest.raises(SavepointMismatchError, match=message):
            harness.restarted(snapshot, fragment=after).close()
    with OperatorHarness(before, configuration={"state.backend.type": backend}).restarted(
        fragment=after
    ) as empty:
        empty.push((1, 100), timestamps=[100])
        empty.watermark(100)
        assert empty.output == [(1, 100)]
