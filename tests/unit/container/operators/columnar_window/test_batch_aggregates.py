"""Aggregates of users over windows of columns in the harness: what the function gets, and what it may return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from tests.unit.container.operators.columnar_window.test_columnar_windows import (
    LATE,
    SCHEMA,
    batch,
    failing,
    push,
    results,
    tumbling,
)
from yarrow.common.time import Time
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.columnar_window.row_lists import RowLists
from yarrow.container.operators.columnar_window.session_windows import ColumnarSessions
from yarrow.datastream import DataStream, WindowGroups
from yarrow.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, WindowAssigner
from yarrow.testing.operator_harness import OperatorHarness

TOTALS = pa.schema([("total", pa.int64())])
SESSIONS = EventTimeSessionWindows.with_gap(Time.milliseconds(5))


def totals(rows: pa.RecordBatch, groups: WindowGroups) -> dict[str, Any]:
    return {"total": np.add.reduceat(rows["v"].to_numpy(), groups.offsets[:-1])}


def aggregating(
    function: Any, schema: pa.Schema = TOTALS, assigner: WindowAssigner[Any, Any] | None = None
) -> Callable[[DataStream], DataStream]:
    windows = tumbling() if assigner is None else assigner
    return lambda s: s.key_by("k").window(windows, "at").aggregate_batches(function, schema)


# ---------------------------------------------------------------------- what the function gets


#: What a function has got, as its results: it runs as a copy, which cannot note anything here.
GOT = pa.schema(
    [
        ("v", pa.list_(pa.int64())),
        ("at", pa.list_(pa.int64())),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("groups", pa.int64()),
    ]
)


def shown(rows: pa.RecordBatch, groups: WindowGroups) -> pa.RecordBatch:
    assert rows.schema == SCHEMA
    assert rows.num_rows == groups.offsets[-1]
    offsets = pa.array(groups.offsets, pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, rows[name]) for name in ("v", "at")]
    counted = np.full(len(groups), len(groups))
    return pa.RecordBatch.from_arrays(
        [*lists, pa.array(groups.window_starts), pa.array(groups.window_ends), pa.array(counted)],
        names=GOT.names,
    )


def test_a_function_gets_all_columns_by_group_in_order_of_time() -> None:
    with OperatorHarness(aggregating(shown, GOT), types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 5), ("b", 2, 3), ("a", 4, 4)))
        harness.push_batch(batch(("b", 8, 2), ("a", 16, 5), ("a", 32, 15)))
        harness.watermark(9)
        harness.watermark(19)
        assert results(harness) == [
            ("a", 0, 10, [4, 1, 16], [4, 5, 5], 0, 10, 2),
            ("b", 0, 10, [8, 2], [2, 3], 0, 10, 2),
            ("a", 10, 20, [32], [15], 10, 20, 1),
        ]
        assert harness.record_batches()[0].schema.names == ["k", "window_start", "window_end", *GOT.names]


def test_sessions_of_several_bounds_come_in_one_batch() -> None:
    with OperatorHarness(aggregating(shown, GOT, SESSIONS), types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 0), ("b", 2, 3), ("a", 4, 9)))
        # One row makes two sessions one, whose rows stand in order of time.
        harness.push_batch(batch(("a", 8, 4), ("a", 16, 30)))
        harness.watermark(100)
        assert results(harness) == [
            ("b", 3, 8, [2], [3], 3, 8, 3),
            ("a", 0, 14, [1, 8, 4], [0, 4, 9], 0, 14, 3),
            ("a", 30, 35, [16], [30], 30, 35, 3),
        ]


def test_late_rows_fire_again_inside_the_lateness_and_leave_as_they_came_behind_it() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.key_by("k").window(tumbling(), "at").allowed_lateness(5)
        made = windows.side_output_late_data(LATE).aggregate_batches(totals, TOTALS)
        return [made, made.get_side_output(LATE)]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 3), ("b", 2, 4)))
        harness.watermark(13)
        harness.push_batch(batch(("a", 4, 5), ("a", 8, 6)))
        harness.watermark(14)
        harness.push_batch(batch(("a", 16, 7), ("a", 32, 11)))
        harness.watermark(100)
        assert results(harness) == [
            ("a", 0, 10, 1), ("b", 0, 10, 2), ("a", 0, 10, 13), ("a", 10, 20, 32),
        ]  # fmt: skip
        (late,) = harness.record_batches(1)
        assert late == batch(("a", 16, 7))


class Opened:
    """Tells by its results that it was opened; None if it was not."""

    subtask: int | None = None

    def open(self, context: Any) -> None:
        self.subtask = context.get_index_of_this_subtask()

    def aggregate_batches(self, rows: pa.RecordBatch, groups: WindowGroups) -> pa.Table:
        return pa.table({"total": pa.array([self.subtask] * len(groups), pa.int64())})


def test_an_object_is_opened_and_may_return_a_table() -> None:
    with OperatorHarness(aggregating(Opened()), types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 3), ("b", 1, 3)))
        harness.watermark(9)
        assert results(harness) == [("a", 0, 10, 0), ("b", 0, 10, 0)]


def test_a_column_of_views_comes_as_values() -> None:
    schema = pa.schema([("k", pa.string()), ("name", pa.string_view()), ("at", pa.int64())])
    found = pa.schema([("last", pa.string())])

    def last(rows: pa.RecordBatch, groups: WindowGroups) -> Any:
        return {"last": rows["name"].take(pa.array(groups.offsets[1:] - 1))}

    with OperatorHarness(aggregating(last, found), types=[schema]) as harness:
        columns = [pa.array(["a", "a"]), pa.array(["x", "y"], pa.string_view()), pa.array([4, 3])]
        harness.push_batch(pa.record_batch(columns, schema=schema))
        harness.watermark(9)
        assert results(harness) == [("a", 0, 10, "x")]


def test_columns_of_each_kind_come_as_values_also_across_a_restore() -> None:
    schema = pa.schema(
        [
            ("k", pa.dictionary(pa.int8(), pa.string())),
            ("name", pa.string()),
            ("tags", pa.list_(pa.int16())),
            ("when", pa.timestamp("ns", "UTC")),
            ("at", pa.int64()),
        ]
    )
    found = pa.schema([("names", pa.list_(pa.string())), ("tags", pa.list_(pa.list_(pa.int16())))])

    def lists(rows: pa.RecordBatch, groups: WindowGroups) -> pa.RecordBatch:
        offsets = pa.array(groups.offsets, pa.int32())
        assert rows.schema.field("when").type == pa.timestamp("ns", "UTC")
        columns = [pa.ListArray.from_arrays(offsets, rows[name]) for name in ("name", "tags")]
        return pa.RecordBatch.from_arrays(columns, names=found.names)

    job = RestartedColumns(
        lambda s: s.key_by("k").window(tumbling(), "at").aggregate_batches(lists, found).uid("w"), schema, "k"
    )
    job.start(1, "hashmap")
    for keys, names in ((["a", "b"], ["x", None]), (["b", None], ["z" * 40, "y"])):
        columns = [
            pa.array(keys).dictionary_encode().cast(schema.field("k").type),
            pa.array(names, pa.string()),
            pa.array([[1], None], pa.list_(pa.int16())),
            pa.array([7, 8], pa.timestamp("ns", "UTC")),
            pa.array([3, 4]),
        ]
        job.push_batch(pa.record_batch(columns, schema=schema))
        job.stop(CANONICAL)
        job.start(2, "rocksdb")
    job.watermark(9)
    assert sorted((str(row.k), row.names, row.tags) for row, _ in job.take()) == [
        ("None", ["y"], [None]), ("a", ["x"], [[1]]), ("b", ["z" * 40, None], [[1], None]),
    ]  # fmt: skip
    job.stop(CANONICAL)


# ---------------------------------------------------------------------- rows that are kept


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 9), min_size=1, max_size=8).map(lambda slots: ("rows", slots)),
            st.integers(0, 9).map(lambda slot: ("forget", [slot])),
        ),
        max_size=12,
    )
)
def test_kept_rows_are_lists_by_slot_in_the_order_in_which_they_came(steps: list[Any]) -> None:
    schema = pa.schema([("n", pa.int64())])
    state = RowLists(schema)
    lists: dict[int, list[Any]] = {slot: [] for slot in range(60)}
    number = offset = 0
    for kind, slots in steps:
        if kind == "rows":
            numbers = list(range(number, number + len(slots)))
            number += len(slots)
            rows = pa.record_batch([pa.array(numbers)], schema=schema).to_struct_array()
            state.update(np.array(slots) + offset, rows, 60)
            for slot, each in zip(slots, numbers, strict=True):
                lists[slot + offset].append({"n": each})
        elif offset < 50:
            state.forget(np.array(slots) + offset)
            # Nobody asks for it any more, and it does not come again.
            del lists[slots[0] + offset]
            offset += 10
    asked = [slot for slot in reversed(range(60)) if slot in lists]
    assert state.values(np.array(asked)).to_pylist() == [lists[slot] for slot in asked]
    entries = state.frozen(60).entries(0, 60)
    restored = RowLists(schema)
    restored.restore(entries)
    assert restored.values(np.array(asked)).to_pylist() == [lists[slot] for slot in asked]


def test_rows_of_sessions_that_are_gone_take_no_memory() -> None:
    with OperatorHarness(aggregating(totals, assigner=SESSIONS), types=[SCHEMA]) as harness:
        operator = harness.tasks[0].chain.head
        assert isinstance(operator, ColumnarSessions)
        most = 0
        for step in range(30):
            harness.push_batch(
                batch(*(("a", number, step * 10) for number in range(50)), ("b", 1, 10 * step))
            )
            (state,) = operator._live.states.states
            assert isinstance(state, RowLists)
            most = max(most, sum(len(piece.slots) for piece in state._pieces))
            harness.watermark(step * 10 + 7)
        assert most <= 2 * 51
        assert len(results(harness)) == 60


# ---------------------------------------------------------------------- bad results


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"total": [1]}, "returned 1 rows for 2 groups; return one row for each group"),
        ({"sum": [1, 2]}, "expected the columns ['total'], got ['sum']"),
        ({"total": [1, 2], "more": [1, 2]}, "expected the columns ['total'], got ['total', 'more']"),
        ({"total": ["a", "b"]}, "column 'total' of the result: expected int64, got string"),
        ({"total": [1.5, 2]}, "column 'total' of the result: expected int64, got double"),
        ([1, 2], "returned list; return a pyarrow RecordBatch or Table, or a dict of columns by name"),
        (None, "returned NoneType; return a pyarrow RecordBatch"),
        (pa.table({"other": [1, 2]}), "expected the columns ['total'], got ['other']"),
    ],
)
def test_a_bad_result_names_operator_and_window(returned: Any, expected: str) -> None:
    cause = failing(aggregating(lambda rows, groups: returned), batch(("a", 1, 3), ("b", 2, 4)))
    assert cause.operator_name == "TumblingEventTimeWindows"
    assert expected in cause.message
    assert cause.record == "2 rows of 2 keys in the window from 0 to 10 ms"


def test_columns_of_different_lengths_are_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    cause = failing(aggregating(lambda rows, groups: {"a": [1], "b": []}, schema), batch(("a", 1, 3)))
    assert "columns of different lengths: {'a': 1, 'b': 0}" in cause.message


def test_an_error_of_the_function_names_the_sessions_at_hand() -> None:
    def broken(rows: pa.RecordBatch, groups: WindowGroups) -> Any:
        raise ValueError("no good")

    cause = failing(aggregating(broken, assigner=SESSIONS), batch(("a", 1, 3), ("b", 2, 9)))
    assert cause.operator_name == "EventTimeSessionWindows"
    assert "no good" in cause.message
    assert cause.record == "2 rows of 2 windows that end between 8 and 14 ms"


def test_columns_that_change_are_refused() -> None:
    other = pa.schema([("k", pa.string()), ("v", pa.int32()), ("at", pa.int64())])
    with (
        pytest.raises(
            FragmentFailedError, match="column 'v' is of type int32, in earlier batches it was int64"
        ),
        OperatorHarness(aggregating(totals), types=[SCHEMA]) as harness,
    ):
        harness.push_batch(batch(("a", 1, 3)))
        harness.push_batch(batch(("a", 1, 3), schema=other))


def test_a_restore_refuses_to_change_between_functions_and_built_in_aggregates() -> None:
    def built_in(stream: DataStream) -> DataStream:
        return stream.key_by("k").window(tumbling(), "at").sum("v").uid("windows")

    def own(stream: DataStream) -> DataStream:
        return stream.key_by("k").window(tumbling(), "at").aggregate_batches(totals, TOTALS).uid("windows")

    for before, after, name in ((built_in, own, "rows"), (own, built_in, r"sum\(v\)")):
        job = RestartedColumns(before, SCHEMA, "k")
        job.start(1, "hashmap")
        job.push_rows([("a", 1, 3)])
        job.stop(CANONICAL)
        job._build = RestartedColumns(after, SCHEMA, "k")._build
        with pytest.raises(Exception, match=f"the restored state has no aggregate {name}"):
            job.start(1, "hashmap")


def test_overlapping_windows_get_the_rows_of_all_their_slices() -> None:
    windows = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(5))
    with OperatorHarness(aggregating(totals, assigner=windows), types=[SCHEMA]) as harness:
        push(harness, batch(("a", 1, 1), ("a", 2, 6), ("a", 4, 11)), None)
        harness.watermark(1000)
        assert results(harness) == [
            ("a", -15, 5, 1), ("a", -10, 10, 3), ("a", -5, 15, 7), ("a", 0, 20, 7), ("a", 5, 25, 6), ("a", 10, 30, 4),
        ]  # fmt: skip
