"""Rows of patterns that wait by time alone: what a cut has of them and of timers, and how other backends go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.restarted_job import CANONICAL, RestartedJob
from yarrow.cep import CEP, Pattern
from yarrow.common import Time, Types
from yarrow.container.operators.cep.pattern_operator import PatternMatchingOperator
from yarrow.container.operators.cep.time_ordered_rows import RowTimers, TimeOrderedRows
from yarrow.container.state.backend import Timer
from yarrow.datastream import DataStream

ROW = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])


class Sections:
    """A state backend that only takes sections."""

    def register_section(self, name: str, section: Any) -> None:
        assert name == "_pattern_pending_rows"


@pytest.fixture
def rows() -> TimeOrderedRows:
    state: Any = Sections()
    return TimeOrderedRows(state, ROW)


def test_stored_rows_stand_by_key_in_order_of_time(rows: TimeOrderedRows) -> None:
    for key, time, row in [("a", 5, 1), ("b", 3, 2), ("a", 3, 3), ("a", 5, 4)]:
        rows.add(key, time, row)
    frozen = rows.freeze_entries()
    rows.add("c", 1, 5)
    ((keys, values),) = frozen
    assert dict(zip(keys, values, strict=True)) == {"b": [(3, 2)], "a": [(3, 3), (5, 1), (5, 4)]}
    again: Any = Sections()
    restored = TimeOrderedRows(again, ROW)
    restored.restore_entries(zip(keys, values, strict=True))
    assert restored.take_with_keys(9, 9) == [(3, ["b", 2, "a", 3]), (5, ["a", 1, "a", 4])]


def test_a_cut_has_the_first_timer_of_each_key_with_those_of_rows(rows: TimeOrderedRows) -> None:
    timers = RowTimers(rows)
    for key, time in [("a", 5), ("a", 8), ("b", 6), ("c", 9)]:
        rows.add(key, time, None)
    for time, key in [(7, "a"), (4, "b"), (3, "d")]:
        timers.register(time, key)
    assert timers.next_timestamp == 3
    cut = timers.snapshot_timers()
    rows.add("a", 2, None)
    assert timers.next_timestamp == 2
    assert timers.pop_any(9) == ("d", None)
    assert len(cut) == 4
    assert set(cut) == {Timer(5, "a"), Timer(4, "b"), Timer(9, "c"), Timer(3, "d")}
    assert Timer(5, "a") in cut
    assert set(timers.drain()) == {Timer(7, "a"), Timer(4, "b")}
    assert not timers
    assert timers.next_timestamp == 2


def operators(job: RestartedJob) -> Iterator[Any]:
    for operator in job.operators:
        assert isinstance(operator, PatternMatchingOperator)
        yield operator


@pytest.mark.parametrize("limit", [50, 20])
def test_a_savepoint_goes_to_disk_and_back_with_rows_that_wait_and_partial_matches(limit: int) -> None:
    pattern = [
        Pattern.begin("a").where(lambda row: row[1] == "a").followed_by("b").where(lambda row: row[1] == "b")
    ]

    def build(stream: DataStream) -> DataStream:
        typed = stream.map(lambda row: row, ROW).set_parallelism(1).key_by(lambda row: row[0])
        made = CEP.pattern(typed, pattern[0].within(Time.milliseconds(limit)))
        return made.select(lambda match: [row[2] for rows in match.values() for row in rows]).uid("pattern")

    job = RestartedJob(build)
    job.start(1, "hashmap")
    letters = [(1, "a", 0), (2, "b", 1), (2, "a", 2), (1, "b", 3), (2, "b", 4)]
    job.push(letters, [10, 15, 20, 30, 31])
    job.watermark(12)
    for parallelism, backend in [(2, "rocksdb"), (1, "hashmap"), (3, "rocksdb"), (1, "hashmap")]:
        job.stop(CANONICAL)
        job.start(parallelism, backend)
        assert [operator._ordered is None for operator in operators(job)] == [
            backend == "rocksdb"
        ] * parallelism
    (operator,) = operators(job)
    assert operator._ordered.rows.count == 4
    job.watermark(40)
    # A row that comes `limit` later does not match.
    assert sorted(row for row, _ in job.take()) == ([[0, 3], [2, 4]] if limit == 50 else [[2, 4]])
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())
