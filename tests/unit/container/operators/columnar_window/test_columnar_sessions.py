"""Sessions of columns in the harness: bounds, merging, late rows, memory of sessions and keys that are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from tests.unit.container.operators.columnar_window.test_columnar_windows import (
    LATE,
    SCHEMA,
    batch,
    failing,
    results,
)
from yarrow.common.time import Time
from yarrow.container.operators.columnar_window.session_windows import ColumnarSessions
from yarrow.datastream import DataStream
from yarrow.datastream.window import EventTimeSessionWindows
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.testing.operator_harness import OperatorHarness

NAME = "EventTimeSessionWindows"


def sessions(stream: DataStream, lateness: int = 0, gap: int = 5) -> DataStream:
    windows = stream.key_by("k").window(EventTimeSessionWindows.with_gap(Time.milliseconds(gap)), "at")
    return windows.allowed_lateness(lateness).aggregate([("v", "sum"), (None, "count")])


def head(harness: OperatorHarness) -> ColumnarSessions:
    operator = harness.tasks[0].chain.head
    assert isinstance(operator, ColumnarSessions)
    return operator


def test_a_session_ends_a_gap_behind_its_last_row_and_sessions_that_touch_merge() -> None:
    with OperatorHarness(sessions, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 8), ("a", 2, 3), ("b", 4, 3), ("b", 8, 9)))
        harness.watermark(6)
        assert results(harness) == []
        harness.watermark(12)
        assert results(harness) == [("b", 3, 8, 4, 1), ("a", 3, 13, 3, 2)]
        harness.watermark(13)
        assert results(harness)[2:] == [("b", 9, 14, 8, 1)]
        stamps = [
            stamp
            for element in harness.elements()
            if isinstance(element, ArrowBatch) and element.timestamps is not None
            for stamp in element.timestamps.to_pylist()
        ]
        assert stamps == [7, 12, 13]


def test_a_row_joins_sessions_of_former_batches() -> None:
    with OperatorHarness(sessions, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 0), ("a", 2, 10), ("a", 4, 30)))
        harness.push_batch(batch(("a", 8, 5)))
        harness.watermark(100)
        assert results(harness) == [("a", 0, 15, 11, 3), ("a", 30, 35, 4, 1)]


def test_a_late_row_that_touches_a_live_session_belongs_to_it() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.key_by("k").window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)), "at")
        made = windows.side_output_late_data(LATE).count()
        return [made, made.get_side_output(LATE)]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 10)))
        harness.watermark(11)
        # Late by themselves: the session of `a` is there, and `b` has none.
        harness.push_batch(batch(("a", 2, 6), ("b", 4, 6), ("a", 8, 2)))
        harness.watermark(100)
        assert results(harness) == [("a", 2, 15, 3)]
        assert results(harness, 1) == [("b", 4, 6)]


def test_whether_a_late_row_has_a_session_depends_on_the_rows_before_it_alone() -> None:
    with OperatorHarness(sessions, types=[SCHEMA]) as harness:
        harness.watermark(11)
        harness.push_batch(batch(("a", 1, 6), ("a", 2, 9), ("a", 4, 6)))
        harness.watermark(100)
        assert results(harness) == [("a", 6, 14, 6, 2)]
        assert harness.metrics()[f"{NAME}.numLateRecordsDropped"] == 1


def test_rows_behind_the_watermark_fire_their_session_once_a_batch() -> None:
    with OperatorHarness(lambda stream: sessions(stream, 20), types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 0), ("b", 1, 0)))
        harness.watermark(10)
        harness.push_batch(batch(("a", 2, 3), ("a", 4, 5)))
        harness.push_batch(batch(("a", 8, 9)))
        harness.watermark(13)
        assert results(harness) == [
            ("a", 0, 5, 1, 1),
            ("b", 0, 5, 1, 1),
            ("a", 0, 10, 7, 3),
            ("a", 0, 14, 15, 4),
        ]
        assert head(harness).entry_count == 2
        harness.watermark(33)
        assert head(harness).entry_count == 0


def test_dead_sessions_and_keys_do_not_grow_memory() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])
    with OperatorHarness(sessions, types=[schema]) as harness:
        operator, most_keys, most_sessions = head(harness), 0, 0
        for step in range(50):
            keys = np.append(np.arange(step * 1500, (step + 1) * 1500), -1)
            harness.push_batch(
                pa.record_batch([keys, np.ones(1501, np.int64), np.full(1501, step * 4)], schema=schema)
            )
            assert operator._keys is not None
            most_keys = max(most_keys, operator._keys.size)
            most_sessions = max(most_sessions, operator._live.size)
            harness.watermark(step * 4)
        harness.watermark(1000)
        assert most_keys <= 8 * 1500 and most_sessions <= 8 * 1500
        found = results(harness)
        assert len(found) == 50 * 1500 + 1
        assert found[-1] == (-1, 0, 49 * 4 + 5, 50, 50) or (-1, 0, 49 * 4 + 5, 50, 50) in found


def test_another_gap_and_lateness_are_taken_over_a_restore() -> None:
    def build(gap: int, lateness: int) -> Any:
        return lambda stream: sessions(stream, lateness, gap).uid("windows")

    job = RestartedColumns(build(5, 0), SCHEMA, "k")
    job.start(1, "hashmap")
    job.push_rows([("a", 1, 0), ("b", 2, 0)])
    job.stop(CANONICAL)
    job._build = RestartedColumns(build(20, 30), SCHEMA, "k")._build
    job.start(3, "rocksdb")
    job.push_rows([("a", 4, 5)])
    job.watermark(30)
    assert sorted(tuple(row) for row, _ in job.take()) == [("a", 0, 25, 5, 2), ("b", 0, 5, 2, 1)]
    job.stop(CANONICAL)


def test_a_sum_that_is_too_large_names_key_and_session() -> None:
    most = 2**63 - 1
    cause = failing(sessions, batch(("b", 1, 0), ("a", most, 3)), batch(("a", 1, 6)))
    assert "for the key 'a' in the session from 3 to 11 ms is 9223372036854775808" in cause.message
    cause = failing(sessions, batch(("a", most, 0), ("a", 1, 9)), batch(("a", 0, 5)))
    assert "for the key 'a' in the session from" in cause.message


@pytest.mark.parametrize("time", [None, 2**63 - 3])
def test_a_row_without_a_possible_time_is_refused(time: int | None) -> None:
    cause = failing(sessions, batch(("a", 1, 3), ("b", 2, time)))
    assert "'k': 'b'" in cause.record
