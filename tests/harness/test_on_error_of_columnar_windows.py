"""on_error of windows of columns: where an aggregate of users fails, the rows of a key's window leave as letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.crashed_runs import outputs_over_a_crash
from tests.harness.test_on_error_of_row_windows import Numbered
from tests.support.batch_runner import collect
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time, WatermarkStrategy
from yarrow.common.typeinfo import Types
from yarrow.container.operators.columnar_window.row_lists import RowLists
from yarrow.datastream import DataStream, WindowGroups
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import RECORD_PICKLED, RECORD_SHOWN, ROW_OF_WINDOW
from yarrow.datastream.functions import ProcessWindowFunction
from yarrow.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NUMBERS = pa.schema([("numbers", pa.list_(pa.int64()))])


def ms(number: int) -> Time:
    return Time.milliseconds(number)


def numbers_of(rows: pa.RecordBatch, groups: WindowGroups) -> dict[str, Any]:
    """The numbers of each group, sorted; one below 0 fails."""
    bounds = zip(groups.offsets[:-1].tolist(), groups.offsets[1:].tolist(), strict=True)
    numbers = [sorted(rows["n"].slice(first, end - first).to_pylist()) for first, end in bounds]
    if any(each[0] < 0 for each in numbers):
        raise ValueError(f"no good among {len(groups)}")
    return {"numbers": numbers}


class Numbers(ProcessWindowFunction):  # type: ignore[type-arg]
    """The same of windows of rows, which are the model."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        numbers = sorted(number for _, number in elements)
        if numbers[0] < 0:
            raise ValueError("no good")
        yield key, context.window().start, numbers


ASSIGNERS: dict[str, WindowAssigner[Any, Any]] = {
    "tumbling": TumblingEventTimeWindows.of(ms(10)),
    "sliding": SlidingEventTimeWindows.of(ms(10), ms(4)),
    "cumulative": CumulativeEventTimeWindows.of(ms(12), ms(4)),
    "sessions": EventTimeSessionWindows.with_gap(ms(5)),
}


def of_columns(windows: str, lateness: int = 0) -> Callable[[DataStream], DataStream]:
    def build(stream: DataStream) -> DataStream:
        keyed = stream.to_arrow(SCHEMA).key_by("k").window(ASSIGNERS[windows])
        return keyed.allowed_lateness(lateness).aggregate_batches(numbers_of, NUMBERS)

    return build


def of_rows(windows: str, lateness: int) -> Callable[[DataStream], DataStream]:
    def build(stream: DataStream) -> DataStream:
        keyed = stream.key_by(lambda row: row[0], Types.STRING()).window(ASSIGNERS[windows])
        return keyed.allowed_lateness(lateness).process(Numbers())

    return build


def with_letters(stream: DataStream, **bounds: Any) -> list[DataStream]:
    stream = stream.uid("the windows").on_error("dead_letter", **bounds)
    return [stream, stream.dead_letters()]


def rows_in(letters: list[DeadLetter], declared: Any = None) -> list[Any]:
    load = serializer_for(declared).load_rows
    return [tuple(row) for letter in letters for row in load(letter.raw or b"")]


STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from("ab"), st.integers(-2, 12)),
        st.integers(0, 40),
        st.none() | st.integers(0, 50),
    ),
    max_size=12,
)


@pytest.mark.parametrize("windows", ASSIGNERS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=12)
@given(STEPS, st.integers(0, 12), st.sampled_from(["hashmap", "rocksdb"]), st.sampled_from([0, 12]))
def test_results_and_letters_are_those_of_windows_of_rows(
    windows: str, drawn: list[Any], cut: int, backend: str, lateness: int
) -> None:
    # Each row is another one.
    steps = [((key, number * 100 + at), time, mark) for at, ((key, number), time, mark) in enumerate(drawn)]

    def over_a_crash(build: Callable[[DataStream], list[DataStream]]) -> list[list[Any]]:
        return outputs_over_a_crash(build, PAIR, steps, cut, backend, outputs=2)

    def columns(stream: DataStream) -> list[DataStream]:
        made, letters = with_letters(of_columns(windows, lateness)(stream))
        return [made.to_rows(), letters]

    found = over_a_crash(columns)
    expected = over_a_crash(lambda s: with_letters(of_rows(windows, lateness)(s)))
    results = [(row.k, row.window_start, tuple(row.numbers)) for row in found[0]]
    assert Counter(results) == Counter((key, start, tuple(numbers)) for key, start, numbers in expected[0])
    assert Counter(rows_in(found[1])) == Counter(rows_in(expected[1], PAIR))
    times = {row: time for row, time, _ in steps}
    assert all(letter.timestamp == times[rows_in([letter])[0]] for letter in found[1])


@pytest.mark.parametrize("windows", ["tumbling", "sessions"])
def test_a_call_that_fails_is_divided_until_the_failing_windows_are_alone(windows: str) -> None:
    rows = [(f"key {number}", -number if number % 7 == 3 else number) for number in range(50)]
    with OperatorHarness(lambda s: _rows_and_letters(of_columns(windows)(s)), types=[PAIR]) as harness:
        harness.push(*rows, timestamps=[1] * 50)
        harness.watermark(100)
        harness.run()
        # The others leave in the order in which they leave without a failure.
        assert [(row.k, *row.numbers) for row in harness.outputs(0)] == [row for row in rows if row[1] >= 0]
        letters: list[DeadLetter] = harness.outputs(1)
        assert rows_in(letters) == [row for row in rows if row[1] < 0]
        assert all(letter.error.startswith("ValueError: no good among 1; all 1 rows") for letter in letters)
        # Each tells its own error, and not those of the calls that were divided.
        assert all(letter.traceback.count("Traceback (most") == 1 for letter in letters)


def _rows_and_letters(stream: DataStream, **bounds: Any) -> list[DataStream]:
    made, letters = with_letters(stream, **bounds)
    return [made.to_rows(), letters]


def test_a_letter_tells_row_key_time_and_window_and_one_has_the_traceback() -> None:
    with OperatorHarness(lambda s: _rows_and_letters(of_columns("tumbling")(s)), types=[PAIR]) as harness:
        harness.push(("a", 1), ("b", 2), ("a", -7), timestamps=[4, 5, 3])
        harness.watermark(100)
        harness.run()
        assert [(row.k, row.numbers) for row in harness.outputs(0)] == [("b", [2])]
        first, second = harness.outputs(1)
        assert rows_in([first, second]) == [("a", -7), ("a", 1)]
        assert (first.timestamp, second.timestamp) == (3, 4)
        for letter in (first, second):
            assert (letter.operator, letter.input) == ("the windows", ROW_OF_WINDOW)
            assert (letter.key, letter.encoding) == (encode_key("a"), RECORD_PICKLED)
            assert letter.error == (
                "ValueError: no good among 1; all 2 rows of 1 keys in the window from 0 to 10 ms leave"
            )
        assert "numbers_of" in first.traceback and second.traceback == ""
        assert harness.metrics(1)["TumblingEventTimeWindows.numRecordsInErrors"] == 2


def test_a_key_of_several_columns_is_a_tuple() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.to_arrow(SCHEMA).key_by("k", "n").window(ASSIGNERS["tumbling"])
        return _rows_and_letters(windows.aggregate_batches(numbers_of, NUMBERS))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", -1), timestamps=[1])
        harness.watermark(100)
        harness.run()
        (letter,) = harness.outputs(1)
        assert letter.key == encode_key(("a", -1))


def test_a_restore_at_another_parallelism_keeps_what_a_window_has_lost() -> None:
    """A row that comes behind a failed window begins it anew, and rows stay in windows that have not failed."""

    def build(stream: DataStream) -> DataStream:
        keyed = stream.key_by("k").window(ASSIGNERS["sliding"], "at").allowed_lateness(100)
        return keyed.aggregate_batches(refuses_at_14, NUMBERS).uid("windows").on_error("skip")

    def refuses_at_14(rows: pa.RecordBatch, groups: WindowGroups) -> Any:
        if 14 in groups.window_ends and 1 in rows["n"].to_pylist():
            raise ValueError("no")
        return numbers_of(rows, groups)

    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
    job = RestartedColumns(build, schema, "k")
    keys = [f"key {number}" for number in range(10)]

    def fired() -> dict[int, tuple[int, ...]]:
        """The numbers of each window by its start, which are the same for all keys."""
        found = {(row.k, row.window_start): tuple(row.numbers) for row, _ in job.take()}
        starts = {start for _, start in found}
        assert found.keys() == {(key, start) for key in keys for start in starts}
        numbers = {(start, found[key, start]) for key, start in found}
        assert len(numbers) == len(starts)
        return dict(numbers)

    job.start(1, "hashmap")
    job.push_rows([(key, 1, 9) for key in keys])
    job.watermark(13)
    assert fired() == {0: (1,)}
    job.stop(CANONICAL)
    job.start(3, "rocksdb")
    job.push_rows([(key, 2, 8) for key in keys])
    assert fired() == {0: (1, 2), 4: (2,)}
    job.stop(CANONICAL)
    job.start(2, "hashmap")
    job.push_rows([(key, 4, 6) for key in keys])
    assert fired() == {0: (1, 2, 4), 4: (2, 4)}
    job.watermark(1000)
    assert fired() == {8: (1, 2)}
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 3}, "4 records within a minute"), ({"max_share": 0.5}, "4 of the latest 6 records")],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"failed at {expected}"),
        OperatorHarness(
            lambda s: _rows_and_letters(of_columns("tumbling")(s), **bounds), types=[PAIR]
        ) as harness,
    ):
        harness.push(*[("a", number) for number in (-1, 2, 3, 4)], ("b", 5), ("b", 6), timestamps=[1] * 6)
        harness.watermark(100)
        harness.end()
        harness.run()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda groups: {"numbers": [[1]] * (len(groups) + 1)}, "rows for 1 groups"),
        (lambda groups: {"others": [[1]] * len(groups)}, "expected the columns"),
    ],
)
def test_a_result_of_another_form_fails_the_job(returned: Any, expected: str) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.to_arrow(SCHEMA).key_by("k").window(ASSIGNERS["tumbling"])
        made = windows.aggregate_batches(lambda rows, groups: returned(groups), NUMBERS)
        return _rows_and_letters(made)

    with (
        pytest.raises(FragmentFailedError, match=expected),
        OperatorHarness(fragment, types=[PAIR]) as harness,
    ):
        harness.push(("a", 1), timestamps=[1])
        harness.watermark(100)
        harness.run()


def test_a_value_that_does_not_fit_its_declared_column_costs_its_window() -> None:
    small = pa.schema([("last", pa.int8())])

    def fragment(stream: DataStream) -> list[DataStream]:
        windows = stream.to_arrow(SCHEMA).key_by("k").window(ASSIGNERS["tumbling"])
        made = windows.aggregate_batches(
            lambda rows, groups: {"last": rows["n"].take(pa.array(groups.offsets[1:] - 1))}, small
        )
        return _rows_and_letters(made)

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), ("b", 1000), ("c", 3), timestamps=[1, 2, 3])
        harness.watermark(100)
        harness.run()
        assert [(row.k, row.last) for row in harness.outputs(0)] == [("a", 1), ("c", 3)]
        assert rows_in(harness.outputs(1)) == [("b", 1000)]


def test_sessions_that_fail_move_no_row_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    update = RowLists.update

    def counted(self: RowLists, slots: Any, column: Any, size: int) -> None:
        taken.append(len(slots))
        update(self, slots, column, size)

    monkeypatch.setattr(RowLists, "update", counted)
    build = of_columns("sessions", lateness=100)
    with OperatorHarness(lambda s: _rows_and_letters(build(s)), types=[PAIR]) as harness:
        harness.push(*((f"key {number}", number) for number in range(50)), timestamps=[90] * 50)
        for time in range(10):
            harness.push((f"failing {time}", -1), timestamps=[time * 6])
        harness.run()
        assert sum(taken) == 60
        for time in range(10):
            harness.watermark(time * 6 + 5)
            harness.run()
            assert len(harness.outputs(1)) == time + 1
        assert sum(taken) == 60
        harness.push(("failing 3", 7), timestamps=[3 * 6 + 1])
        harness.run()
        assert [(row.k, row.window_start, row.numbers) for row in harness.outputs(0)] == [
            ("failing 3", 18, [7])
        ]


@pytest.mark.parametrize("treatment", ["skip", "dead_letter"])
def test_a_row_that_python_cannot_hold_is_shown_as_text(treatment: str) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("ns")), ("at", pa.int64())])

    def refuse(rows: pa.RecordBatch, groups: WindowGroups) -> Any:
        raise ValueError("no")

    def fragment(stream: DataStream) -> list[DataStream]:
        made = stream.key_by("k").window(ASSIGNERS["tumbling"], "at").aggregate_batches(refuse, NUMBERS)
        made = made.on_error(treatment)
        return [made.to_rows(), *([made.dead_letters()] if treatment == "dead_letter" else [])]

    with OperatorHarness(fragment, types=[schema]) as harness:
        columns = [pa.array(["a", "a"]), pa.array([1001, 2000], pa.timestamp("ns")), pa.array([3, 4])]
        harness.push_batch(pa.record_batch(columns, schema=schema))
        harness.watermark(100)
        harness.run()
        assert harness.outputs(0) == []
        if treatment == "dead_letter":
            letters = harness.outputs(1)
            # The row beside it is one of Python.
            assert [(letter.encoding, letter.timestamp, letter.key) for letter in letters] == [
                (RECORD_SHOWN, 3, encode_key("a")),
                (RECORD_PICKLED, 4, encode_key("a")),
            ]
            assert [bool(letter.traceback) for letter in letters] == [True, False]


def test_a_bounded_input() -> None:
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    rows = env.from_collection([("a", 1), ("a", -2), ("b", 3)], PAIR).assign_timestamps_and_watermarks(
        strategy
    )
    found = of_columns("tumbling")(rows).uid("the windows").on_error("dead_letter")
    letters = found.dead_letters().map(lambda letter: (letter.operator, letter.timestamp))
    results = found.to_rows().map(lambda row: (row.k, row.numbers))
    assert sorted(map(str, collect(env, results.union(letters)))) == sorted(
        map(str, [("b", [3]), ("the windows", 5), ("the windows", 5)])
    )


def test_state_goes_on_with_and_without_on_error() -> None:
    def plain(stream: DataStream) -> DataStream:
        return of_columns("tumbling")(stream).uid("the windows").to_rows()

    with OperatorHarness(plain, types=[PAIR]) as harness:
        harness.push(("a", 1), ("b", -2), timestamps=[1, 2])
        harness.run()
        snapshot = harness.snapshot()
        with harness.restarted(
            snapshot, fragment=lambda s: _rows_and_letters(of_columns("tumbling")(s))
        ) as again:
            again.push(("a", 3), timestamps=[3])
            again.watermark(100)
            again.run()
            assert [row.numbers for row in again.outputs(0)] == [[1, 3]]
            assert rows_in(again.outputs(1)) == [("b", -2)]


def test_built_in_aggregates_refuse_it_with_their_reason() -> None:
    windows = ASSIGNERS["tumbling"]
    with pytest.raises(InvalidProgramError, match="its aggregates are built-in, and call no function"):
        OperatorHarness(
            lambda s: s.to_arrow(SCHEMA).key_by("k").window(windows).sum("n").on_error("skip"), types=[PAIR]
        )
