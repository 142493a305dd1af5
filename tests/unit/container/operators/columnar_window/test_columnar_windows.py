"""Windows of columns in the harness: times, results, late rows, keys of each type, errors, and memory of dead keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, times_of
from yarrow.common.time import Time
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.columnar_window import divided_rows
from yarrow.container.operators.columnar_window.columnar_windows import MOST_ROWS
from yarrow.container.operators.columnar_window.sliced_windows import SlicedColumnarWindows
from yarrow.container.operators.columnar_window.stored_columns import OtherWindowsError
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch, Watermark
from yarrow.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
LATE = OutputTag("late")


def tumbling(size: int = 10) -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows.of(Time.milliseconds(size))


def batch(*rows: Sequence[Any], schema: Any = SCHEMA) -> Any:
    columns = [
        pa.array(list(column), field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def summing(stream: DataStream) -> DataStream:
    return stream.key_by("k").window(tumbling(), "at").sum("v")


def push(harness: OperatorHarness, records: Any, timestamps: Sequence[int | None] | None) -> None:
    """Sends a batch whose rows have timestamps."""
    harness.send(ArrowBatch(records, None if timestamps is None else pa.array(timestamps, pa.int64())))


def results(harness: OperatorHarness, output: int = 0) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for made in harness.record_batches(output) for row in made.to_pylist()]


def head(harness: OperatorHarness) -> SlicedColumnarWindows:
    operator = harness.tasks[0].chain.head
    assert isinstance(operator, SlicedColumnarWindows)
    return operator


# ---------------------------------------------------------------------- results


def test_a_window_has_its_start_and_not_its_end_and_results_bear_end_less_one() -> None:
    with OperatorHarness(summing, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 0), ("a", 2, 9), ("a", 4, 10), ("b", 8, -1)))
        harness.watermark(8)
        assert results(harness) == [("b", -10, 0, 8)]
        harness.watermark(9)
        harness.watermark(19)
        made = [element for element in harness.elements() if isinstance(element, ArrowBatch)]
        assert results(harness) == [("b", -10, 0, 8), ("a", 0, 10, 3), ("a", 10, 20, 4)]
        assert [times_of(element) for element in made] == [[-1], [9], [19]]
        assert made[0].batch.schema == pa.schema(
            [
                ("k", pa.string()),
                ("window_start", pa.int64()),
                ("window_end", pa.int64()),
                ("v_sum", pa.int64()),
            ]
        )
        assert harness.controls() == [Watermark(8), Watermark(9), Watermark(19)]


def test_times_are_those_of_rows_without_a_time_column() -> None:
    with OperatorHarness(lambda s: s.key_by("k").window(tumbling()).count(), types=[SCHEMA]) as harness:
        push(harness, batch(("a", 1, 0), ("a", 1, 0)), [3, 14])
        harness.watermark(100)
        assert results(harness) == [("a", 0, 10, 1), ("a", 10, 20, 1)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [3, 12]),
        (pa.timestamp("ms"), [3, 12]),
        (pa.timestamp("us", "Europe/Berlin"), [3_999, 12_000]),
        (pa.timestamp("ns"), [3_000_001, 12_999_999]),
        (pa.timestamp("s"), [0, 3]),
    ],
)
def test_times_in_each_unit(kind: Any, values: list[int]) -> None:
    schema = pa.schema([("k", pa.string()), ("at", kind)])
    records = pa.record_batch([["a", "a"], pa.array(values, pa.int64()).cast(kind)], schema=schema)
    with OperatorHarness(lambda s: s.key_by("k").window(tumbling(), "at").count(), types=[schema]) as harness:
        harness.push_batch(records)
        harness.watermark(10_000)
        starts = [0, 3000] if kind == pa.timestamp("s") else [0, 10]
        assert [row[1] for row in results(harness)] == starts


def test_times_before_1970_are_rounded_down() -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])
    with OperatorHarness(lambda s: s.key_by("k").window(tumbling(), "at").count(), types=[schema]) as harness:
        before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
        harness.push_batch(pa.record_batch([["a"], [before]], schema=schema))
        harness.watermark(0)
        assert results(harness) == [("a", -10, 0, 1)]


def test_a_window_of_many_keys_leaves_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ROWS <= 65_536
    monkeypatch.setattr("yarrow.container.operators.columnar_window.sliced_windows.MOST_ROWS", 4)
    with OperatorHarness(summing, types=[SCHEMA]) as harness:
        harness.push_batch(batch(*((f"k{number}", number, 5) for number in range(10))))
        operator = head(harness)
        operator.on_watermark(9)
        made = list(operator.fire_event_timers(0.0))
        assert [len(each) for each in made] == [4]
        assert operator.event_timers_due
        made += operator.fire_event_timers(float("inf"))
        assert [len(each) for each in made] == [4, 4, 2]
        assert sorted(row["v_sum"] for each in made for row in each.batch.to_pylist()) == list(range(10))


def test_a_batch_of_one_slice_takes_no_split(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(*arguments: object) -> None:
        raise AssertionError("the batch was split")

    with OperatorHarness(summing, types=[SCHEMA]) as harness:
        monkeypatch.setattr(divided_rows, "rows_of_column", split)
        harness.push_batch(batch(("a", 1, 3), ("b", 2, 9), ("a", 4, 0)))
        harness.watermark(9)
        assert sorted(results(harness)) == [("a", 0, 10, 5), ("b", 0, 10, 2)]


def test_sliding_windows_share_slices_and_a_row_is_added_once() -> None:
    windows = SlidingEventTimeWindows.of(Time.milliseconds(9), Time.milliseconds(6))
    aggregates = [("v", "sum"), ("v", "mean"), ("v", "min"), (None, "count")]
    with OperatorHarness(
        lambda s: s.key_by("k").window(windows, "at").aggregate(aggregates), types=[SCHEMA]
    ) as harness:
        harness.push_batch(batch(("a", 1, 0), ("a", 2, 4), ("a", None, 7), ("a", 6, 8), ("b", 7, 14)))
        assert [start for start, _ in head(harness)._live] == [0, 3, 6, 12]
        harness.watermark(1000)
        assert results(harness) == [
            ("a", -6, 3, 1, 1.0, 1, 1),
            ("a", 0, 9, 9, 3.0, 1, 4),
            ("a", 6, 15, 6, 6.0, 6, 2),
            ("b", 6, 15, 7, 7.0, 7, 1),
            ("b", 12, 21, 7, 7.0, 7, 1),
        ]
        assert not list(head(harness)._live)


# ---------------------------------------------------------------------- late rows


def test_late_rows_leave_as_a_batch_with_their_times() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.key_by("k").window(tumbling()).side_output_late_data(LATE).sum("v")
        return [windows, windows.get_side_output(LATE)]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.watermark(9)
        push(harness, batch(("a", 1, 0), ("a", 2, 1), ("b", 4, 2)), [9, 10, 3])
        harness.watermark(19)
        assert results(harness) == [("a", 10, 20, 2)]
        assert results(harness, 1) == [("a", 1, 0), ("b", 4, 2)]
        (late,) = [element for element in harness.elements(1) if isinstance(element, ArrowBatch)]
        assert times_of(late) == [9, 3]
        assert late.batch.schema == SCHEMA
        assert harness.metrics()["TumblingEventTimeWindows.numLateRecordsDropped"] == 0


def test_operators_chained_behind_late_rows_get_them_alone() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.key_by("k").window(tumbling(), "at").side_output_late_data(LATE).sum("v")
        late = windows.get_side_output(LATE)
        assert late.is_columnar
        doubled = late.map_batches(
            lambda found: found.append_column("twice", pa.array(found["v"].to_numpy() * 2))
        )
        return [windows.map_batches(lambda found: found), doubled]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.watermark(9)
        harness.push_batch(batch(("a", 1, 9), ("a", 2, 10)))
        harness.watermark(19)
        assert results(harness) == [("a", 10, 20, 2)]
        assert results(harness, 1) == [("a", 1, 9, 2)]


def test_late_rows_without_a_side_output_are_counted() -> None:
    with OperatorHarness(summing, types=[SCHEMA]) as harness:
        harness.watermark(9)
        harness.push_batch(batch(("a", 1, 9), ("a", 1, 3), ("a", 2, 10)))
        assert harness.metrics()["TumblingEventTimeWindows.numLateRecordsDropped"] == 2
        harness.watermark(19)
        assert results(harness) == [("a", 10, 20, 2)]


def test_a_delay_behind_the_greatest_watermark_has_64_bits() -> None:
    with OperatorHarness(summing, types=[SCHEMA]) as harness:
        harness.watermark(MAX_TIMESTAMP)
        harness.push_batch(batch(("a", 1, -100), ("a", 1, 7)))
        report = head(harness)._ledger.report()
        assert report is not None
        assert [each.delay_ms for each in report.last] == [MAX_TIMESTAMP, MAX_TIMESTAMP - 9 + 1]
        assert "no lateness keeps" in report.sentences()[0]


def test_rows_of_no_window_are_counted_and_late_ones_of_them_leave_by_the_side_output() -> None:
    windows = SlidingEventTimeWindows.of(Time.milliseconds(4), Time.milliseconds(10))

    def fragment(stream: DataStream) -> list[DataStream]:
        made = stream.key_by("k").window(windows, "at").side_output_late_data(LATE).sum("v")
        return [made, made.get_side_output(LATE)]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.watermark(6)
        harness.push_batch(batch(("a", 1, 5), ("a", 2, 7), ("a", 4, 12), ("a", 8, 2)))
        harness.watermark(100)
        assert results(harness) == [("a", 10, 14, 4)]
        assert results(harness, 1) == [("a", 1, 5), ("a", 8, 2)]
        assert harness.metrics()["SlidingEventTimeWindows.numLateRecordsDropped"] == 1


def test_a_late_row_inside_the_lateness_fires_its_window_again_once_a_batch() -> None:
    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by("k").window(tumbling(), "at").allowed_lateness(5).sum("v")

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, 3), ("b", 2, 4)))
        harness.watermark(13)
        harness.push_batch(batch(("a", 4, 5), ("a", 8, 6), ("c", 16, 7)))
        assert results(harness) == [("a", 0, 10, 1), ("b", 0, 10, 2), ("a", 0, 10, 13), ("c", 0, 10, 16)]
        harness.watermark(14)
        harness.push_batch(
            batch(
                ("a", 32, 5),
            )
        )
        harness.watermark(100)
        assert len(results(harness)) == 4
        assert harness.metrics()["TumblingEventTimeWindows.numLateRecordsDropped"] == 1
        assert head(harness).entry_count == 0


# ---------------------------------------------------------------------- keys


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_keys_of_each_type_are_shown_as_they_came_also_across_a_restore(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_COLUMNS)), min_size=1, max_size=2, unique=True))
    count = data.draw(st.integers(1, 12))
    keys = [
        data.draw(st.lists(st.none() | KEY_COLUMNS[name][1], min_size=count, max_size=count))
        for name in names
    ]
    columns = {name: array_of(part, KEY_COLUMNS[name][0]) for name, part in zip(names, keys, strict=True)}
    records = pa.record_batch({**columns, "at": pa.array(range(count), pa.int64())})

    def build(stream: DataStream) -> DataStream:
        return stream.key_by(*names).window(tumbling(100), "at").count().uid("windows")

    job = RestartedColumns(build, records.schema, names[0] if len(names) == 1 else tuple(names))
    expected: dict[str, int] = {}
    for row in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        shown = str([_shown(value) for value in row])
        expected[shown] = expected.get(shown, 0) + 1
    job.start(1, "hashmap")
    job.push_batch(records)
    restarts = data.draw(st.integers(0, 2))
    for _ in range(restarts):
        job.stop(CANONICAL)
        job.start(1, "hashmap")
    (operator,) = job.operators
    assert isinstance(operator, SlicedColumnarWindows)
    operator.on_watermark(1000)
    made = [each.batch for each in operator.fire_event_timers(float("inf"))]
    found: dict[str, int] = {}
    for result in made:
        for name in names:
            kind = records.schema.field(name).type
            assert result.schema.field(name).type == (
                kind.value_type if pa.types.is_dictionary(kind) else kind
            )
        for row in result.to_pylist():
            shown = str([_shown(row[name]) for name in names])
            assert shown not in found, "a key came twice"
            found[shown] = row["count"]
    job.stop(CANONICAL)
    assert found == expected


def _shown(value: Any) -> Any:
    """One form of equal keys: 0.0 of zeros."""
    return value + 0.0 if isinstance(value, float) else value


def test_dead_keys_do_not_grow_memory() -> None:
    """Each window has keys of its own, and no key comes again."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    with OperatorHarness(lambda s: s.key_by("k").window(tumbling(), "at").count(), types=[schema]) as harness:
        operator, most = head(harness), 0
        for window in range(60):
            keys = np.arange(window * 2000, (window + 1) * 2000)
            harness.push_batch(pa.record_batch([keys, np.full(2000, window * 10 + 5)], schema=schema))
            assert operator._keys is not None
            most = max(most, operator._keys.size)
            harness.watermark(window * 10 + 9)
        assert most <= 4 * 2000
        assert sum(map(len, harness.record_batches())) == 60 * 2000


def test_keys_that_come_in_each_window_keep_their_slots() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    with OperatorHarness(lambda s: s.key_by("k").window(tumbling(), "at").count(), types=[schema]) as harness:
        operator, kept = head(harness), None
        for window in range(20):
            for half in range(2):
                keys = np.arange(half * 2000, (half + 1) * 2000)
                harness.push_batch(pa.record_batch([keys, np.full(2000, window * 10 + 5)], schema=schema))
                if window or half:
                    kept = kept or operator._keys
                    assert operator._keys is kept
            harness.watermark(window * 10 + 9)


def test_live_windows_survive_when_dead_keys_go() -> None:
    """A window stays open while thousands of keys come and go beside it."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])
    windows = SlidingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(50))

    def fragment(stream: DataStream) -> DataStream:
        return (
            stream.key_by("k")
            .window(windows, "at")
            .allowed_lateness(30)
            .aggregate([("v", "sum"), ("v", "max")])
        )

    expected: dict[tuple[int, int], list[int]] = {}
    with OperatorHarness(fragment, types=[schema]) as harness:
        for step in range(40):
            keys = np.concatenate([np.arange(step * 1500, (step + 1) * 1500), np.arange(-5, 0)])
            time = step * 50 + 20
            records = pa.record_batch([keys, keys * 3, np.full(len(keys), time)], schema=schema)
            for key in keys.tolist():
                for start in (step * 50 - 50, step * 50):
                    expected.setdefault((key, start), []).append(key * 3)
            harness.push_batch(records)
            harness.watermark(time)
        harness.watermark(MAX_TIMESTAMP)
        found = {row[:2]: row[3:] for row in results(harness)}
        assert found == {key: (sum(values), max(values)) for key, values in expected.items()}
        assert head(harness).entry_count == 0


# ---------------------------------------------------------------------- bad input


def failing(fragment: Any, *pushes: Any, schema: Any = SCHEMA, timestamps: Any = None) -> Any:
    """The cause of the failure of a harness."""
    with pytest.raises(FragmentFailedError) as raised, OperatorHarness(fragment, types=[schema]) as harness:
        for records in pushes:
            push(harness, records, timestamps)
        harness.watermark(1000)
    return raised.value.cause


def test_a_null_time_is_refused_with_its_row() -> None:
    cause = failing(summing, batch(("a", 1, 3), ("b", 2, None)))
    assert cause.operator_name == "TumblingEventTimeWindows"
    assert "a row has no time in column 'at'" in cause.message
    assert "'k': 'b'" in cause.record and "'v': 2" in cause.record


def test_a_null_timestamp_is_refused_with_its_row() -> None:
    cause = failing(
        lambda s: s.key_by("k").window(tumbling()).count(),
        batch(("a", 1, 3), ("b", 2, 4)),
        timestamps=[1, None],
    )
    assert "a row has no timestamp" in cause.message
    assert "'k': 'b'" in cause.record


def test_rows_without_timestamps_are_refused_with_the_remedy() -> None:
    cause = failing(lambda s: s.key_by("k").window(tumbling()).count(), batch(("a", 1, 3)))
    assert "window(..., time_column=...)" in cause.message
    assert "'k': 'a'" in cause.record


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), -(2**63) + 9])
def test_a_time_whose_windows_leave_64_bits_is_refused(time: int) -> None:
    cause = failing(summing, batch(("a", 1, 3), ("b", 2, time)))
    assert "lie beyond 64 bits" in cause.message
    assert "'k': 'b'" in cause.record


def test_seconds_beyond_64_bits_of_milliseconds_are_refused() -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("s"))])
    records = pa.record_batch([["a"], pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))], schema=schema)
    cause = failing(lambda s: s.key_by("k").window(tumbling(), "at").count(), records, schema=schema)
    assert "lie beyond 64 bits" in cause.message


def test_a_sum_that_is_too_large_names_key_and_slice() -> None:
    most = 2**63 - 1
    cause = failing(summing, batch(("a", most, 3), ("b", most, 3), ("b", 1, 4)))
    assert "for the key 'b' in the slice of windows from 0 to 10 ms is 9223372036854775808" in cause.message


def test_a_sum_that_is_too_large_when_slices_meet_names_key_and_window() -> None:
    windows = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
    cause = failing(
        lambda s: s.key_by("k").window(windows, "at").sum("v"),
        batch(("a", 1, 3), ("b", 2**63 - 1, 3), ("b", 1, 7)),
    )
    assert "for the key 'b' in the window from 0 to 10 ms is 9223372036854775808" in cause.message


def test_a_sum_of_overlapping_windows_that_is_too_large_names_the_first_such_window() -> None:
    windows = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(5))
    cause = failing(
        lambda s: s.key_by("k").window(windows, "at").sum("v"),
        batch(("a", 1, 3), ("b", 2**63 - 1, 6), ("b", 1, 21)),
    )
    assert "for the key 'b' in the window from 5 to 25 ms is 9223372036854775808" in cause.message


def test_windows_of_other_slices_are_refused_at_a_restore() -> None:
    def build(size: int) -> Any:
        return lambda stream: stream.key_by("k").window(tumbling(size), "at").count().uid("windows")

    job = RestartedColumns(build(10), SCHEMA, "k")
    job.start(1, "hashmap")
    job.push_rows([("a", 1, 3)])
    job.stop(CANONICAL)
    job._build = RestartedColumns(build(20), SCHEMA, "k")._build
    with pytest.raises(
        Exception, match="slices of 10 ms from 0 ms on, and the program has slices of 20 ms"
    ) as raised:
        job.start(1, "hashmap")
    assert OtherWindowsError.__name__ in repr(raised.value) + repr(raised.value.__cause__) + str(raised.value)


def test_another_lateness_is_taken_over_a_restore() -> None:
    def build(lateness: int) -> Any:
        return lambda s: (
            s.key_by("k").window(tumbling(), "at").allowed_lateness(lateness).sum("v").uid("windows")
        )

    job = RestartedColumns(build(0), SCHEMA, "k")
    job.start(1, "hashmap")
    job.push_rows([("a", 1, 13)])
    job.watermark(9)
    job.stop(CANONICAL)
    job._build = RestartedColumns(build(50), SCHEMA, "k")._build
    job.start(2, "rocksdb")
    job.push_rows([("a", 2, 13), ("a", 4, 3)])
    job.watermark(19)
    assert sorted(tuple(row) for row, _ in job.take()) == [("a", 0, 10, 4), ("a", 10, 20, 3)]
    job.stop(CANONICAL)


def test_windows_with_gaps_leave_out_restored_slices_that_they_do_not_contain() -> None:
    def build(assigner: Any) -> Any:
        return lambda stream: stream.key_by("k").window(assigner, "at").sum("v").uid("windows")

    job = RestartedColumns(build(tumbling()), SCHEMA, "k")
    job.start(1, "hashmap")
    job.push_rows([("a", 1, 5), ("a", 2, 15), ("b", 4, 25)])
    job.stop(CANONICAL)
    gaps = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(20))
    job._build = RestartedColumns(build(gaps), SCHEMA, "k")._build
    job.start(1, "hashmap")
    job.watermark(100)
    assert sorted(tuple(row) for row, _ in job.take()) == [("a", 0, 10, 1), ("b", 20, 30, 4)]
    job.stop(CANONICAL)


def test_slices_of_a_millisecond_take_times_that_are_far_apart_in_one_batch() -> None:
    def fragment(stream: Any) -> Any:
        return stream.key_by("k").window(tumbling(1), "at").sum("v")

    far = 5 * 10**18
    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.push_batch(batch(("a", 1, -far), ("a", 2, far)))
        harness.watermark(MAX_TIMESTAMP)
        assert results(harness) == [("a", -far, 1 - far, 1), ("a", far, far + 1, 2)]
