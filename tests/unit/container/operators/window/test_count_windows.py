"""Count windows with a counter a key: their rules by name, on both backends, held against the general operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.window_functions import CountedCalls
from yarrow.container.operators.window.count_windows import CountWindows
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.window import CountTrigger, PurgingTrigger
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class OwnTrigger(PurgingTrigger[Any, Any]):
    """Means what the default trigger means, and takes the general way."""


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


class Numbers(AggregateFunction[Any, Any, Any]):
    """The numbers of a window; 13 makes the accumulator nothing, and 14 fails."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        if value[1] == 14:
            raise ValueError("fourteen")
        accumulator.append(value[1])
        return None if value[1] == 13 else accumulator

    def get_result(self, accumulator: Any) -> Any:
        return 100 // len(accumulator) if 0 in accumulator else tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise AssertionError("count windows do not merge")


@pytest.fixture(params=["fast", "general"])
def counted(request: pytest.FixtureRequest) -> Callable[[DataStream, int], Any]:
    """Cuts a stream into windows that take one way or the other: each test holds for both."""

    def cut(stream: DataStream, size: int) -> Any:
        windows = stream.key_by(lambda row: row[0]).count_window(size)
        return windows if request.param == "fast" else windows.trigger(OwnTrigger(CountTrigger.of(size)))

    return cut


def operator_of(harness: OperatorHarness) -> Any:
    return harness.tasks[0].chain.operators[0]


def test_the_way_of_a_count_window_is_that_of_its_options(run: Any) -> None:
    def way(build: Callable[[Any], Any]) -> Any:
        return type(operator_of(run(lambda s: build(s.key_by(lambda row: row[0])))))

    assert way(lambda s: s.count_window(3).reduce(add)) is CountWindows
    assert way(lambda s: s.count_window(3, 3).aggregate(Numbers())) is CountWindows
    assert way(lambda s: s.count_window(3, 2).reduce(add)) is WindowingOperator
    other = PurgingTrigger.of(CountTrigger.of(2))
    assert way(lambda s: s.count_window(3).trigger(other).reduce(add)) is WindowingOperator


def test_each_full_window_gives_one_result_with_the_greatest_time(run: Any, counted: Any) -> None:
    harness = run(lambda s: counted(s, 3).reduce(add))
    harness.push(*[("a", 1 << at) for at in range(7)], ("b", 1))
    assert harness.output == [("a", 7), ("a", 56)]
    assert harness.timestamps() == [MAX_TIMESTAMP] * 2


def test_windows_of_one_record_are_full_at_once(run: Any, counted: Any) -> None:
    harness = run(lambda s: counted(s, 1).aggregate(Numbers()))
    harness.push(("a", 1), ("b", 2), ("a", 3), timestamps=[5, 6, 7])
    assert harness.output == [(1,), (2,), (3,)]
    assert operator_of(harness).context.state.entries in (0, 2)


def test_a_value_that_becomes_none_still_counts(run: Any, counted: Any) -> None:
    harness = run(lambda s: counted(s, 3).aggregate(Numbers()))
    harness.push(("a", 1), ("a", 13), ("a", 2), ("a", 4), ("a", 8), ("a", 13), ("a", 5))
    # The value of the second window is nothing when the window is full.
    assert harness.output == [(2,)]


def test_equal_keys_of_other_types_are_one_key(run: Any, counted: Any) -> None:
    harness = run(lambda s: counted(s, 2).reduce(add))
    harness.push((1, 1), (1.0, 2), (True, 4), ((1, 2), 8), ((1, 2), 16), (None, 32), (None, 64))
    assert [number for _, number in harness.output] == [3, 24, 96]


def test_functions_may_have_state_of_their_key(run: Any, counted: Any) -> None:
    harness = run(lambda s: counted(s, 2).reduce(CountedCalls()))
    harness.push(*[(key, 0) for key in "aabbaab"])
    assert harness.output == [("a", 1), ("b", 1), ("a", 2)]


def test_a_row_that_is_none_is_refused(run: Any) -> None:
    harness = run(lambda s: s.key_by(lambda row: "a").count_window(2).reduce(lambda first, second: first))
    with pytest.raises(FragmentFailedError, match="'_count_windows': None cannot be added"):
        harness.push(None)


@pytest.mark.parametrize("rows", [[14], [1, 14]])
def test_errors_of_functions_name_record_window_and_key(run: Any, rows: list[int]) -> None:
    harness = run(lambda s: s.key_by(lambda row: row[0]).count_window(5).aggregate(Numbers()))
    with pytest.raises(FragmentFailedError) as caught:
        harness.push(*[("a", row) for row in rows])
    text = str(caught.value)
    assert "('a', 14) (a window of 5 records of the key 'a')" in text and "ValueError: fourteen" in text


def test_errors_of_results_name_the_record_that_made_the_window_full(run: Any) -> None:
    class Fails(Numbers):
        def get_result(self, accumulator: Any) -> Any:
            raise ValueError("no result")

    harness = run(lambda s: s.key_by(lambda row: row[0]).count_window(2).aggregate(Fails()))
    with pytest.raises(FragmentFailedError, match=r"\('a', 2\) \(a window of 2 records of the key 'a'\)"):
        harness.push(("a", 1), ("a", 2))


def test_results_and_later_windows_are_apart(run: Any, counted: Any) -> None:
    def spoiled(result: tuple[Any, ...]) -> Any:
        result[0].append("spoiled")
        return len(result[0])

    class Listed(Numbers):
        def get_result(self, accumulator: Any) -> Any:
            return (accumulator,)

    harness = run(lambda s: counted(s, 2).aggregate(Listed()).map(spoiled))
    harness.push(*[("a", number) for number in range(1, 7)])
    assert harness.output == [3, 3, 3]


def test_counts_of_a_whole_stream(run: Any) -> None:
    harness = run(lambda s: s.count_window_all(2).reduce(add))
    harness.push(("a", 1), ("b", 2), ("c", 4), ("d", 8), ("e", 16))
    assert harness.output == [("a", 3), ("c", 12)]
    (vertex,) = (v for v in harness.graph.vertices if "Count" in v.operators[0].name)
    assert (vertex.parallelism, vertex.max_parallelism) == (1, 1)


@pytest.mark.differs("KeyedStream.count_window", told="Count windows purge")
@pytest.mark.parametrize("behind_another", [False, True], ids=["head", "chained"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 2.5, "c", None, (1, "d")]), st.integers(0, 9)), max_size=40),
    size=st.integers(1, 4),
    cut=st.integers(0, 40),
)
def test_windows_are_those_of_a_list_however_batches_are_cut(
    run: Any, counted: Any, behind_another: bool, rows: list[Any], size: int, cut: int
) -> None:
    def fragment(stream: DataStream) -> DataStream:
        windows: DataStream = counted(stream, size).aggregate(Numbers())
        return windows.map(lambda result: result) if behind_another else windows

    harness = run(fragment)
    for part in (rows[:cut], rows[cut:]):
        if part:
            harness.push(*part)
    kept: dict[Any, list[int]] = {}
    expected = []
    for key, number in rows:
        window = kept.setdefault(key, [])
        window.append(number)
        if len(window) == size:
            expected.append(100 // size if 0 in window else tuple(window))
            del kept[key]
    assert harness.output == expected
    harness.close()
