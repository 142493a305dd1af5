"""DataSet programs on Spark, in one driver: what leaves them is what plain Python gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.support.data_sets import data_set_environment, graph_of
from tests.support.spark_driver import DriverUnderTest
from yarrow.batch.dataset import Order
from yarrow.batch.dataset.functions import MapFunction, RichCoGroupFunction, RuntimeContext
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.common.configuration import Configuration

pytestmark = pytest.mark.spark

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Share(MapFunction[Any, Any]):
    """The share of a number in a broadcast sum; counts its calls."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ((self.total,),) = runtime_context.get_broadcast_variable("total")
        self.calls = IntCounter()
        runtime_context.add_accumulator("calls", self.calls)

    def map(self, value: Any) -> Any:
        self.calls.add(1)
        return value[0], value[1] / self.total


def test_groups_are_reduced_and_joined_with_a_broadcast_variable(driver: DriverUnderTest) -> None:
    env = data_set_environment(2)
    pairs = env.generate_sequence(1, 20_000).map(lambda n: (n % 100, n), PAIR)
    total = pairs.project(1).sum(0)
    shares = pairs.group_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])).map(Share())
    outcome = driver.run(graph_of(shares.with_broadcast_set(total, "total")))
    assert outcome.failure is None, outcome.failure.stacktrace
    expected: Counter[int] = Counter()
    for number in range(1, 20_001):
        expected[number % 100] += number
    assert dict(outcome.collected()) == {key: n / expected.total() for key, n in expected.items()}
    calls = [result.accumulators["calls"] for result in outcome.subtasks if "calls" in result.accumulators]
    assert sum(calls) == 100


def gaps(rows: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The greatest difference of neighbours in a group."""
    key, before = next(rows)
    most = 0
    for _, number in rows:
        most, before = max(most, before - number), number
    yield key, most


def test_sorted_groups_and_partitions_stream_through_functions(driver: DriverUnderTest) -> None:
    env = data_set_environment(2)
    numbers = env.generate_sequence(1, 20_000).map_partition(
        lambda rows: ((n % 3, n * n % 1009) for n in rows)
    )
    found = numbers.group_by(0).sort_group(1, Order.DESCENDING).reduce_group(gaps)
    outcome = driver.run(graph_of(found))
    assert outcome.failure is None, outcome.failure.stacktrace
    expected = {}
    for key in range(3):
        group = sorted(n * n % 1009 for n in range(1, 20_001) if n % 3 == key)
        expected[key] = max(b - a for a, b in pairwise(group))
    assert dict(outcome.collected()) == expected


class Paired(RichCoGroupFunction[Any, Any, Any]):
    """The task, the numbers of both groups in their order, and what the function was given."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.task = runtime_context.get_index_of_this_subtask()
        self.mark = runtime_context.get_parameters().get_string("mark", "")
        (self.factor,) = runtime_context.get_broadcast_variable("factor")

    def co_group(self, first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
        rows = [*first]
        numbers = [row[1] * self.factor for row in rows]
        yield self.task, self.mark, rows[0][0], numbers, [row[1] for row in second]


def test_groups_of_two_data_sets_are_sorted_in_the_task_that_the_partitioner_names(
    driver: DriverUnderTest,
) -> None:
    env = data_set_environment(2)
    numbers = env.generate_sequence(1, 60).map(lambda n: (n % 3, n), PAIR)
    groups = numbers.co_group(numbers.filter(lambda row: row[1] < 7)).where(0).equal_to(0)
    placed = groups.with_partitioner(lambda key, tasks: int(key == 1) % tasks)
    found = placed.sort_first_group(1, Order.DESCENDING).sort_second_group(1).with_(Paired())
    found.with_broadcast_set(env.from_elements(10), "factor")
    found.with_parameters(Configuration().set_string("mark", "x"))
    outcome = driver.run(graph_of(found))
    assert outcome.failure is None, outcome.failure.stacktrace
    of_key = {key: [n for n in range(1, 61) if n % 3 == key] for key in range(3)}
    assert sorted(outcome.collected()) == sorted(
        (int(key == 1), "x", key, [10 * n for n in reversed(all_numbers)], all_numbers[:2])
        for key, all_numbers in of_key.items()
    )


def failing(rows: Iterator[int]) -> Iterator[float]:
    for number in rows:
        yield 1 / (number - 700)


def test_a_failing_function_is_told_by_operator(driver: DriverUnderTest) -> None:
    numbers = data_set_environment(2).generate_sequence(1, 1000)
    outcome = driver.run(graph_of(numbers.map_partition(failing).name("inverse")))
    assert outcome.failure is not None
    text = outcome.failure.stacktrace
    assert "ZeroDivisionError" in text and "inverse" in text and "py4j" not in text
