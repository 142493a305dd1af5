"""Partitioners of groups, joins and co_group, sorted sides of co_group, and what their functions read, by a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import shuffled
from tests.support.data_sets import data_set_environment, graph_of, rows_of
from yarrow.batch.dataset import DataSet, Order
from yarrow.batch.dataset.functions import (
    Partitioner,
    RichCoGroupFunction,
    RichCrossFunction,
    RichFlatJoinFunction,
    RichGroupReduceFunction,
    RichMapFunction,
    RichReduceFunction,
    RuntimeContext,
)
from yarrow.common.configuration import Configuration
from yarrow.container.operators.data_set import two_data_sets
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.batch.batch_planner import plan

#: (key, number)
Pair = tuple[int, int]
PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 9)), max_size=25)
#: Shares of the memory for sorting: with the second one everything goes to disk.
SHARES = st.sampled_from([1, 1 << 40])


class Shifted(Partitioner[int]):
    """The task of a key: the key and a number, modulo the number of tasks."""

    def __init__(self, by: int) -> None:
        self.by = by

    def partition(self, key: int, num_partitions: int) -> int:
        return (key + self.by) % num_partitions


class JoinedAt(RichFlatJoinFunction[Any, Any, Any]):
    """The task and both rows."""

    def join(self, first: Any, second: Any) -> Iterator[Any]:
        yield self.get_runtime_context().get_index_of_this_subtask(), first, second


class GroupAt(RichGroupReduceFunction[Any, Any]):
    """The task and the rows of a group."""

    def reduce(self, values: Iterator[Any]) -> Iterator[Any]:
        yield self.get_runtime_context().get_index_of_this_subtask(), tuple(values)


class GroupsAt(RichCoGroupFunction[Any, Any, Any]):
    """The task and the rows of both groups."""

    def co_group(self, first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
        yield self.get_runtime_context().get_index_of_this_subtask(), tuple(first), tuple(second)


class Adds(RichReduceFunction[Any]):
    """Adds numbers."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Placement(NamedTuple):
    """The tasks of an operation, and the shift of its partitioner."""

    tasks: int
    shift: int

    def of(self, key: int) -> int:
        return (key + self.shift) % self.tasks


PLACEMENTS = st.builds(Placement, st.integers(1, 3), st.integers(0, 2))


def of_key(rows: list[Pair], key: int) -> list[Pair]:
    return [row for row in rows if row[0] == key]


def read(placement: Placement, *sides: list[Pair]) -> list[DataSet]:
    env = data_set_environment(placement.tasks)
    return [env.from_collection(rows).rebalance() for rows in sides]


@settings(max_examples=25, deadline=None)
@given(PAIRS, PAIRS, PLACEMENTS, SHARES, st.booleans(), st.integers(0, 9))
def test_joins_run_where_the_partitioner_says(
    first: list[Pair], second: list[Pair], placement: Placement, share: int, outer: bool, seed: int
) -> None:
    one, other = read(placement, first, second)
    joined = (one.full_outer_join if outer else one.join)(other).where(0).equal_to(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_data_sets, "_SHARE", share)
        placed = joined.with_partitioner(Shifted(placement.shift)).with_(JoinedAt())
        found = rows_of(placed, deal=shuffled(seed))
    expected: list[Any] = [
        (placement.of(a[0]), a, b) for a in first for b in second if a[0] == b[0]
    ]  # fmt: skip
    if outer:
        expected += [(placement.of(row[0]), row, None) for row in first if not of_key(second, row[0])]
        expected += [(placement.of(row[0]), None, row) for row in second if not of_key(first, row[0])]
    assert Counter(found) == Counter(expected)


def by_number(rows: list[Pair], order: Order | None) -> tuple[Pair, ...]:
    if order is None:
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: row[1], reverse=not order.is_ascending()))


ORDERS = st.sampled_from([None, *Order])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(PAIRS, PAIRS, PLACEMENTS, SHARES, ORDERS, ORDERS, st.booleans(), st.integers(0, 9))
def test_co_group_gets_each_side_in_its_order_where_the_partitioner_says(
    first: list[Pair],
    second: list[Pair],
    placement: Placement,
    share: int,
    first_order: Order | None,
    second_order: Order | None,
    placed: bool,
    seed: int,
) -> None:
    one, other = read(placement, first, second)
    groups = one.co_group(other).where(0).equal_to(lambda row: row[0])
    if first_order is not None:
        groups = groups.sort_first_group(1, first_order)
    if placed:
        groups = groups.with_partitioner(Shifted(placement.shift))
    if second_order is not None:
        groups = groups.sort_second_group(lambda row: row[1], second_order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_data_sets, "_SHARE", share)
        found = rows_of(groups.with_(GroupsAt()), deal=shuffled(seed))
    keys = {row[0] for row in first + second}
    assert len(found) == len(keys)
    for task, lefts, rights in found:
        (key,) = {row[0] for row in lefts + rights}
        assert not placed or task == placement.of(key)
        for rows, all_rows, order in ((lefts, first, first_order), (rights, second, second_order)):
            if order is None:
                assert Counter(rows) == Counter(of_key(all_rows, key))
            else:
                assert rows == by_number(of_key(all_rows, key), order)


def test_a_further_order_counts_among_rows_that_are_equal_so_far() -> None:
    rows = [(1, 2, "b"), (1, 1, "a"), (1, 2, "a"), (1, 1, "c")]
    data = data_set_environment(2).from_collection(rows)
    groups = data.co_group(data).where(0).equal_to(0)
    found = (
        groups.sort_first_group(1, Order.DESCENDING)
        .sort_first_group(2)
        .sort_second_group(2)
        .sort_second_group(1)
    )
    ((_, lefts, rights),) = rows_of(found.with_(GroupsAt()))
    assert [row[1:] for row in lefts] == [(2, "a"), (2, "b"), (1, "a"), (1, "c")]
    assert [row[1:] for row in rights] == [(1, "a"), (2, "a"), (2, "b"), (1, "c")]


@settings(max_examples=25, deadline=None)
@given(PAIRS, PLACEMENTS, ORDERS, st.integers(0, 9))
def test_groups_are_reduced_where_the_partitioner_says(
    rows: list[Pair], placement: Placement, order: Order | None, seed: int
) -> None:
    (data,) = read(placement, rows)
    groups = data.group_by(0).with_partitioner(Shifted(placement.shift))
    sorted_groups = groups if order is None else groups.sort_group(1, order)
    found = rows_of(sorted_groups.reduce_group(GroupAt()), deal=shuffled(seed))
    assert Counter(task for task, _ in found) == Counter(
        placement.of(key) for key in {row[0] for row in rows}
    )
    for task, group in found:
        key = group[0][0]
        assert task == placement.of(key)
        if order is None:
            assert Counter(group) == Counter(of_key(rows, key))
        else:
            assert group == by_number(of_key(rows, key), order)


SUMS: dict[str, Callable[[Any], DataSet]] = {
    "sum": lambda groups: groups.sum(1),
    "reduce": lambda groups: groups.reduce(lambda a, b: (a[0], a[1] + b[1])),
    "rich reduce": lambda groups: groups.reduce(Adds()),
}


class TaskOf(RichMapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return self.get_runtime_context().get_index_of_this_subtask(), *value


@pytest.mark.parametrize("name", SUMS)
@settings(max_examples=10, deadline=None)
@given(PAIRS, PLACEMENTS)
def test_aggregates_are_made_where_the_partitioner_says(
    name: str, rows: list[Pair], placement: Placement
) -> None:
    (data,) = read(placement, rows)
    made = SUMS[name](data.group_by(0).with_partitioner(Shifted(placement.shift)))
    expected = {
        (placement.of(key), key, sum(row[1] for row in of_key(rows, key))) for key in {row[0] for row in rows}
    }
    assert Counter(rows_of(made.map(TaskOf()))) == Counter(expected)


def test_a_wider_operation_asks_the_partitioner_for_its_tasks() -> None:
    data = data_set_environment(1).from_collection([(key, 1) for key in range(7)])
    groups = data.group_by(0).with_partitioner(lambda key, tasks: key % tasks)
    found = rows_of(groups.reduce_group(GroupAt()).set_parallelism(3))
    assert sorted((group[0][0], task) for task, group in found) == [(key, key % 3) for key in range(7)]


def test_the_plan_says_why_rows_that_a_partitioner_sends_are_not_folded() -> None:
    data = data_set_environment(2).from_collection([(1, 1)])
    graph = graph_of(data.group_by(0).with_partitioner(Shifted(0)).sum(1))
    notes = [exchange.combining_note for stage in plan(graph).stages for exchange in stage.inputs]
    assert "a partitioner of the program sends each row" in notes


def test_a_partitioner_that_names_no_task_is_told_with_the_key() -> None:
    data = data_set_environment(2).from_collection([(5, 1)])
    joined = data.join(data).where(0).equal_to(0).with_partitioner(lambda key, tasks: tasks)
    with pytest.raises(OperatorFailure) as failed:
        rows_of(joined)
    assert "gave 2 for the key 5; expected a whole number from 0 to 1" in str(failed.value.__cause__)


# ---------------------------------------------------------------------- parameters and broadcast variables


class Scaled(RichMapFunction[Any, Any]):
    """Multiplies by a parameter, and adds a broadcast variable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.factor = runtime_context.get_parameters().get_integer("factor", 1)
        self.added: int = sum(runtime_context.get_broadcast_variable("added"))

    def map(self, value: int) -> int:
        return self.factor * value + self.added


def test_a_function_reads_its_parameters_and_its_broadcast_variables() -> None:
    env = data_set_environment(2)
    numbers, added = env.from_elements(1, 2), env.from_elements(10, 20)
    parameters = Configuration().set_integer("factor", 3)
    for made in (
        numbers.map(Scaled()).with_parameters(parameters).with_broadcast_set(added, "added"),
        numbers.map(Scaled()).with_broadcast_set(added, "added").with_parameters(parameters),
    ):
        assert sorted(rows_of(made)) == [33, 36]
    without = numbers.map(Scaled()).with_broadcast_set(added, "added")
    assert sorted(rows_of(without)) == [31, 32]


def test_parameters_are_those_at_the_call_and_the_last_call_counts() -> None:
    env = data_set_environment(1)
    parameters = Configuration().set_integer("factor", 2)
    made = env.from_elements(1).map(Scaled()).with_broadcast_set(env.from_elements(0), "added")
    made.with_parameters(Configuration().set_integer("factor", 9)).with_parameters(parameters)
    parameters.set_integer("factor", 5)
    assert rows_of(made) == [2]


class Within:
    """Whether two numbers are near: by a parameter and a broadcast variable."""

    def limit(self, context: RuntimeContext) -> int:
        (width,) = context.get_broadcast_variable("width")
        return int(width * context.get_parameters().get_integer("times", 1))


class NearJoin(RichFlatJoinFunction[Any, Any, Any], Within):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.most = self.limit(runtime_context)

    def join(self, first: Any, second: Any) -> Iterator[Any]:
        if abs(first[1] - second[1]) <= self.most:
            yield first[0], first[1], second[1]


class NearCross(RichCrossFunction[Any, Any, Any], Within):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.most = self.limit(runtime_context)

    def cross(self, first: Any, second: Any) -> Any:
        return first, second, abs(first[1] - second[1]) <= self.most


class NearGroups(RichCoGroupFunction[Any, Any, Any], Within):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.most = self.limit(runtime_context)

    def co_group(self, first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
        yield tuple(sorted(first)), tuple(sorted(second)), self.most


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(PAIRS, PAIRS, st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), SHARES, st.integers(0, 9))
def test_functions_of_two_data_sets_read_parameters_and_broadcast_variables(
    first: list[Pair], second: list[Pair], width: int, times: int, tasks: int, share: int, seed: int
) -> None:
    env = data_set_environment(tasks)
    one, other = (env.from_collection(rows).rebalance() for rows in (first, second))
    settings = Configuration().set_integer("times", times)

    def found(data: DataSet) -> Counter[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(two_data_sets, "_SHARE", share)
            given = data.with_broadcast_set(env.from_elements(width), "width").with_parameters(settings)
            return Counter(rows_of(given, deal=shuffled(seed)))

    most = width * times
    pairs = [(a, b) for a in first for b in second]
    assert found(one.join(other).where(0).equal_to(0).with_(NearJoin())) == Counter(
        (a[0], a[1], b[1]) for a, b in pairs if a[0] == b[0] and abs(a[1] - b[1]) <= most
    )
    for crossed in (one.cross(other), one.cross_with_huge(other)):
        assert found(crossed.with_(NearCross())) == Counter(
            (a, b, abs(a[1] - b[1]) <= most) for a, b in pairs
        )
    assert found(one.co_group(other).where(0).equal_to(0).with_(NearGroups())) == Counter(
        (tuple(sorted(of_key(first, key))), tuple(sorted(of_key(second, key))), most)
        for key in {row[0] for row in first + second}
    )


def test_what_these_calls_refuse() -> None:
    data = data_set_environment().from_collection([(1, 2)])
    joined = data.join(data).where(0).equal_to(0)
    with pytest.raises(InvalidProgramError, match=r"with_parameters: 'Join' runs no function"):
        joined.with_parameters(Configuration())
    with pytest.raises(TypeError, match="with_parameters takes a Configuration"):
        data.map(TaskOf()).with_parameters({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="with_partitioner takes a Partitioner"):
        joined.with_partitioner(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="with_partitioner takes a Partitioner"):
        data.group_by(0).with_partitioner("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sort_first_group takes Order"):
        data.co_group(data).where(0).equal_to(0).sort_first_group(0, "up")  # type: ignore[arg-type]
