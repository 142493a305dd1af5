"""on_error of windows with pre_aggregate: rows leave before the exchange, and partial values behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.crashed_runs import outputs_over_a_crash
from tests.harness.test_on_error_of_row_windows import Numbered
from tests.harness.test_on_error_of_windows import LATE, PAIR, WINDOWS, Numbers, add, lateness, rows_of
from tests.support.batch_runner import collect
from tests.support.pre_aggregated_job import PreAggregatedJob
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time, WatermarkStrategy
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.connectors.dead_letters import PARTIAL_VALUE, RECORD_PICKLED, RECORD_TYPED, DeadLetter
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(10))


def with_letters(stream: DataStream, **bounds: Any) -> list[DataStream]:
    late = stream.get_side_output(LATE)
    stream = stream.uid("the windows").on_error("dead_letter", **bounds)
    return [stream, late, stream.dead_letters()]


def aggregated(windows: str, *, pre_aggregate: bool) -> Callable[[DataStream], DataStream]:
    return lambda s: lateness(WINDOWS[windows](s)).aggregate(
        Numbers(), output_type=Types.PICKLED_BYTE_ARRAY(), pre_aggregate=pre_aggregate
    )


def reduced(stream: DataStream) -> DataStream:
    windows = WINDOWS["tumbling"](stream).side_output_late_data(LATE)
    made: DataStream = windows.reduce(add, pre_aggregate=True)
    return made


STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from("ab"), st.integers(-3, 12)),
        st.integers(0, 40),
        st.none() | st.integers(0, 40),
    ),
    max_size=12,
)


def numbered(drawn: list[Any]) -> list[Any]:
    """Steps whose rows are all different."""
    return [((key, number * 100 + at), time, mark) for at, ((key, number), time, mark) in enumerate(drawn)]


@pytest.mark.parametrize("windows", ["tumbling", "sliding", "cumulative", "all"])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=10)
@given(STEPS, st.integers(0, 12), st.sampled_from(["hashmap", "rocksdb"]))
def test_results_and_letters_are_those_of_windows_that_get_all_rows(
    windows: str, drawn: list[Any], cut: int, backend: str
) -> None:
    steps = numbered(drawn)

    def over_a_crash(*, pre_aggregate: bool) -> list[list[Any]]:
        build = aggregated(windows, pre_aggregate=pre_aggregate)
        return outputs_over_a_crash(lambda s: with_letters(build(s)), PAIR, steps, cut, backend, outputs=3)

    found, expected = over_a_crash(pre_aggregate=True), over_a_crash(pre_aggregate=False)
    assert [Counter(map(repr, each)) for each in found[:2]] == [
        Counter(map(repr, each)) for each in expected[:2]
    ]
    assert Counter(rows_of(found[2])) == Counter(rows_of(expected[2]))
    times = {row: time for row, time, _ in steps}
    for letter in found[2]:
        assert (letter.input, letter.encoding, letter.record_type) == (0, RECORD_TYPED, str(PAIR))
        assert letter.timestamp == times[rows_of([letter])[0]]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=15)
@given(STEPS, st.integers(0, 12), st.sampled_from(["hashmap", "rocksdb"]))
def test_each_row_of_a_reduce_is_in_one_result_or_in_one_letter(
    drawn: list[Any], cut: int, backend: str
) -> None:
    # A first row is not reduced. So a bad one makes a partial value, at which the windows may fail.
    steps = numbered(drawn)
    found = outputs_over_a_crash(lambda s: with_letters(reduced(s)), PAIR, steps, cut, backend, outputs=3)
    sums, expected = Counter[str](), Counter[str]()
    for key, number in [*found[0], *found[1], *rows_of(found[2])]:
        sums[key] += number
    for (key, number), _, _ in steps:
        expected[key] += number
    assert all(sums[key] == expected[key] for key in "ab")


def test_a_letter_tells_the_operator_before_the_exchange_its_key_and_its_time() -> None:
    with OperatorHarness(
        lambda s: with_letters(aggregated("tumbling", pre_aggregate=True)(s)), types=[PAIR]
    ) as harness:
        harness.push(("a", 1), ("a", -7), ("a", 3), ("b", -2), timestamps=[3, 4, 5, 6])
        harness.watermark(100)
        harness.run()
        assert harness.outputs(0) == [(1, 3)]
        first, second = harness.outputs(2)
        assert rows_of([first, second]) == [("a", -7), ("b", -2)]
        assert (first.operator, first.input, first.timestamp) == ("the windows: PreAggregation", 0, 4)
        assert (first.error, first.key) == ("ValueError: no -7", encode_key("a"))
        assert "raise ValueError" in first.traceback
        counted = {
            name: value
            for task in range(len(harness.tasks))
            for name, value in harness.metrics(task).items()
            if name.endswith("numRecordsInErrors")
        }
        assert counted == {
            "PreAggregation.numRecordsInErrors": 2,
            "TumblingEventTimeWindows.numRecordsInErrors": 0,
        }


def test_a_row_that_passes_by_itself_leaves_at_the_windows_as_it_came() -> None:
    with OperatorHarness(
        lambda s: with_letters(aggregated("tumbling", pre_aggregate=True)(s)), types=[PAIR]
    ) as harness:
        harness.push(("a", 1), timestamps=[3])
        harness.watermark(12)
        # Inside the allowed lateness.
        harness.push(("a", -5), ("a", 2), timestamps=[4, 5])
        harness.watermark(100)
        harness.run()
        assert harness.outputs(0) == [(1,), (1, 2)]
        (letter,) = harness.outputs(2)
        assert rows_of([letter]) == [("a", -5)]
        assert (letter.operator, letter.input, letter.timestamp) == ("the windows", 0, 4)
        assert (letter.record_type, letter.key) == (str(PAIR), encode_key("a"))


class Merges(AggregateFunction):  # type: ignore[type-arg]
    """Fails at partial values with a number of 100 or more, behind a change of its first argument."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a.extend(acc_b)
        if any(number >= 100 for number in acc_b):
            raise ValueError("no merge")
        return acc_a


@pytest.mark.parametrize("kept", [None, Types.LIST(Types.LONG())])
def test_a_partial_value_that_cannot_be_merged_leaves_by_its_name(kept: Any) -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        windows = WINDOWS["tumbling"](stream)
        return with_letters(windows.aggregate(Merges(), accumulator_type=kept, pre_aggregate=True))

    with OperatorHarness(fragment, types=[PAIR]) as harness:
        harness.push(("a", 1), timestamps=[3])
        # Partial values leave before each checkpoint.
        harness.snapshot()
        harness.push(("a", 100), ("a", 2), timestamps=[4, 5])
        harness.snapshot()
        harness.push(("a", 3), timestamps=[6])
        harness.watermark(100)
        harness.run()
        assert harness.outputs(0) == [(1, 3)]
        (letter,) = harness.outputs(2)
        assert (letter.operator, letter.input, letter.timestamp) == ("the windows", PARTIAL_VALUE, 0)
        assert letter.encoding == (RECORD_PICKLED if kept is None else RECORD_TYPED)
        assert serializer_for(kept).load_rows(letter.raw) == [[100, 2]]
        assert letter.error == (
            "ValueError: no merge; a partial value leaves, which holds the rows of a slice of windows that one subtask"
            " has folded"
        )
        assert letter.key == encode_key("a")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max_per_minute": 2}, "operator 'PreAggregation' failed at 3 records within a minute"),
        ({"max_share": 0.4}, "operator 'PreAggregation' failed at 3 of the latest 6 records"),
    ],
)
def test_bounds_count_rows_before_the_exchange(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s){expected}"),
        OperatorHarness(
            lambda s: with_letters(aggregated("tumbling", pre_aggregate=True)(s), **bounds), types=[PAIR]
        ) as harness,
    ):
        harness.push(
            *[("a", number if number % 2 else -number) for number in range(1, 7)], timestamps=[1] * 6
        )
        harness.end()
        harness.run()


def test_values_of_keys_at_which_all_rows_fail_are_not_counted() -> None:
    """The count of partial values says when they leave."""
    job = PreAggregatedJob(lambda s: aggregated("tumbling", pre_aggregate=True)(s).on_error("skip"), 3)
    job.start(1, "hashmap")
    (operator,) = job.pre_aggregating
    job.push([("a", -1), ("b", -1), ("b", 2), ("a", -3), ("c", -4)], [1] * 5)
    assert operator._held.count == 1
    job.push([("d", 1)], [2])
    assert (operator._held.count, job.rows_into_windows) == (2, 0)
    job.push([("e", 1)], [3])
    assert (operator._held.count, job.rows_into_windows) == (0, 3)
    job.close()


@pytest.mark.parametrize("windows", ["tumbling", "sliding"])
def test_rows_of_several_subtasks_over_a_rescale(windows: str) -> None:
    def build(stream: DataStream) -> DataStream:
        made: DataStream = WINDOWS[windows](stream).aggregate(
            Numbers(), output_type=Types.PICKLED_BYTE_ARRAY(), pre_aggregate=True
        )
        return made.uid("windows").on_error("skip")

    job = PreAggregatedJob(build)
    job.start(2, "hashmap")
    for subtask in (0, 1):
        job.push([("a", subtask), ("a", -9), ("b", 10 + subtask)], [2, 3, 3], subtask)
    job.stop()
    job.start(3, "rocksdb")
    for subtask in (0, 1, 2):
        job.push([("a", -9), ("a", 20 + subtask)], [2, 3], subtask)
    job.watermark(1000)
    found = Counter(row for row, _ in job.take())
    windows_of_a_row = 1 if windows == "tumbling" else 2
    assert found == {(0, 1, 20, 21, 22): windows_of_a_row, (10, 11): windows_of_a_row}
    assert all(not subtask.keyed for state in job.stop() for subtask in state.subtasks.values())


def test_a_bounded_input() -> None:
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    rows = env.from_collection([("a", 1), ("a", -2), ("b", 3)], PAIR).assign_timestamps_and_watermarks(
        strategy
    )
    made = aggregated("tumbling", pre_aggregate=True)(rows).uid("the windows").on_error("dead_letter")
    letters = made.dead_letters().map(told)
    assert sorted(map(str, collect(env, made.union(letters)))) == sorted(
        map(str, [(1,), (3,), ("the windows", 0, 5, [("a", -2)])])
    )


def told(letter: DeadLetter) -> Any:
    return letter.operator, letter.input, letter.timestamp, rows_of([letter])
