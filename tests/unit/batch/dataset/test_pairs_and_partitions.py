"""Joins, crosses, unions and partitions of DataSet programs, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import shuffled
from tests.support.data_sets import data_set_environment, rows_of
from yarrow.batch.dataset import DataSet, DataSetUtils, ExecutionEnvironment, Order
from yarrow.batch.dataset.functions import (
    CoGroupFunction,
    CrossFunction,
    FlatJoinFunction,
    Partitioner,
    RichJoinFunction,
    RichMapPartitionFunction,
)
from yarrow.common import Types
from yarrow.common.types import Row
from yarrow.container.operators.data_set import two_data_sets
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.common.errors import InvalidProgramError

USERS = [(1, "ann"), (2, "bob"), (3, "eve")]
ORDERS = [(10, 1, 5.0), (11, 1, 7.5), (12, 3, 1.0), (13, 9, 2.0)]
USER = Types.TUPLE([Types.LONG(), Types.STRING()])
ORDER = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])


def tables(declared: bool = True, parallelism: int = 2) -> tuple[DataSet, DataSet]:
    env = data_set_environment(parallelism)
    users = env.from_collection(USERS, USER if declared else None)
    return users, env.from_collection(ORDERS, ORDER if declared else None)


def sorted_rows(data: DataSet, **options: Any) -> list[Any]:
    return sorted(rows_of(data, **options), key=repr)


# ---------------------------------------------------------------------- two data sets


@pytest.mark.parametrize("declared", [True, False])
def test_a_join_without_a_function_gives_pairs(declared: bool) -> None:
    users, orders = tables(declared)
    joined = users.join(orders).where(0).equal_to(1)
    assert sorted_rows(joined) == sorted(
        ((user, order) for user in USERS for order in ORDERS if user[0] == order[1]), key=repr
    )


def test_outer_joins_have_none_where_a_row_is_missing() -> None:
    users, orders = tables()
    ids = sorted_rows(
        users.full_outer_join(orders).where("f0").equal_to("f1").with_(
            lambda user, order: (user and user[1], order and order[0])
        )
    )  # fmt: skip
    assert ids == sorted([("ann", 10), ("ann", 11), ("bob", None), ("eve", 12), (None, 13)], key=repr)
    users, orders = tables()
    left = users.left_outer_join(orders).where(0).equal_to(1)
    assert [pair for pair in rows_of(left) if pair[1] is None] == [((2, "bob"), None)]
    users, orders = tables()
    right = users.right_outer_join(orders).where(0).equal_to(1).project_second(0).project_first(1)
    assert sorted_rows(right) == [(10, "ann"), (11, "ann"), (12, "eve"), (13, None)]


class Spent(RichJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        assert self.get_runtime_context().get_number_of_parallel_subtasks() == 2
        return first[1], second[2]


class Cheap(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Iterator[Any]:
        if second[2] < 6:
            yield first[1], second[2]


def each_twice(first: Any, second: Any) -> Iterator[str]:
    yield first[1]
    yield first[1]


def test_functions_of_joins_give_one_result_or_many() -> None:
    def run(function: Any) -> list[Any]:
        users, orders = tables()
        return sorted_rows(users.join_with_huge(orders).where(0).equal_to(1).with_(function))

    assert run(Spent()) == [("ann", 5.0), ("ann", 7.5), ("eve", 1.0)]
    assert run(Cheap()) == [("ann", 5.0), ("eve", 1.0)]
    assert run(each_twice) == ["ann"] * 4 + ["eve"] * 2


def test_projections_take_fields_of_both_rows_in_their_order() -> None:
    users, orders = tables()
    data = users.join(orders).where(0).equal_to(1).project_second(2, 0).project_first(1).project_second()
    assert data.get_type() == Types.TUPLE([Types.DOUBLE(), Types.LONG(), Types.STRING(), ORDER])
    assert (7.5, 11, "ann", (11, 1, 7.5)) in rows_of(data)


class Totals(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
        names = [user[1] for user in first]
        yield names, sum(order[2] for order in second)


def test_co_group_gives_the_rows_of_each_key() -> None:
    users, orders = tables()
    found = sorted_rows(users.co_group(orders).where(0).equal_to(lambda order: order[1]).with_(Totals()))
    assert found == [(["ann"], 12.5), (["bob"], 0), (["eve"], 1.0), ([], 2.0)]


class Product(CrossFunction[int, int, int]):
    def cross(self, first: int, second: int) -> int:
        return first * second


def test_cross_and_union() -> None:
    env = data_set_environment(2)
    ones, tens = env.from_elements(1, 2, 3), env.from_elements(10, 20)
    assert sorted(rows_of(ones.cross(tens).with_(Product()))) == [10, 20, 20, 30, 40, 60]
    assert sorted(rows_of(ones.cross_with_huge(tens))) == [(a, b) for a in (1, 2, 3) for b in (10, 20)]
    assert sorted(rows_of(ones.union(tens).union(ones))) == [1, 1, 2, 2, 3, 3, 10, 20]


def test_rows_and_names() -> None:
    env = data_set_environment(2)
    kind = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    users = env.from_collection([Row(1, "ann"), Row(2, "bob")], kind)
    found = rows_of(users.join(users).where("id").equal_to("id").project_first("name").project_second("id"))
    assert sorted(found) == [("ann", 1), ("bob", 2)]


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("spilled", [False, True])
def test_a_failed_co_group_names_a_row_of_its_key(
    spilled: bool, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spilled:
        monkeypatch.setattr(two_data_sets, "_SHARE", 1 << 40)
    users, orders = tables()

    def failing(first: Iterator[Any], second: Iterator[Any]) -> list[Any]:
        return [len(list(first)) // len(list(second))]

    with pytest.raises(OperatorFailure) as failed:
        groups = users.co_group(orders).where(0).equal_to(1)
        rows_of((groups.sort_first_group(1, Order.ASCENDING) if in_order else groups).with_(failing))
    assert (failed.value.operator_name, failed.value.record) == ("CoGroup", "(rows from (2, 'bob') on)")


def test_what_joins_refuse() -> None:
    users, orders = tables()
    with pytest.raises(InvalidProgramError, match="where has 1 fields and equal_to 2"):
        users.join(orders).where(0).equal_to(0, 1)
    with pytest.raises(InvalidProgramError, match="equal_to comes behind where"):
        users.join(orders).equal_to(0)
    with pytest.raises(InvalidProgramError, match="no such field"):
        users.join(orders).where(5)
    told = r"Join: where\('f1'\) is a String and equal_to\(1\) a Long\. No value"
    with pytest.raises(InvalidProgramError, match=told):
        users.join(orders).where("f1").equal_to(1)
    numbers = users.join(orders).where(0).equal_to(2).project_first(0)
    assert sorted_rows(numbers) == [(1,), (2,)], "1 equals 1.0"
    with pytest.raises(InvalidProgramError, match="two execution environments"):
        users.join(tables()[0])
    with pytest.raises(TypeError, match="Join takes a DataSet"):
        users.join([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="with_ takes a CoGroupFunction"):
        users.co_group(orders).where(0).equal_to(1).with_(Product())  # type: ignore[arg-type]
    undeclared, _ = tables(declared=False)
    with pytest.raises(InvalidProgramError, match="position of the field is not known"):
        undeclared.join(undeclared).where(0).equal_to(0).project_first("name")


# ---------------------------------------------------------------------- partitions


class Partition(RichMapPartitionFunction[Any, Any]):
    """The partition and all of its rows."""

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        yield self.get_runtime_context().get_index_of_this_subtask(), [*values]


def partitions_of(data: DataSet, **options: Any) -> list[list[Any]]:
    return [rows for _, rows in sorted(rows_of(data.map_partition(Partition()), **options))]


NUMBERS = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), max_size=40)


@settings(max_examples=20, deadline=None)
@given(NUMBERS, st.integers(1, 3), st.integers(0, 9))
def test_partitions_by_hash_and_by_range(rows: list[Any], parallelism: int, seed: int) -> None:
    env = data_set_environment(parallelism)
    data = env.from_collection(rows).rebalance()
    hashed = partitions_of(data.partition_by_hash(0), deal=shuffled(seed))
    ranged = partitions_of(data.partition_by_range(0, 1), deal=shuffled(seed))
    for parts in (hashed, ranged):
        assert Counter(row for part in parts for row in part) == Counter(rows)
    for key in {row[0] for row in rows}:
        assert sum(any(row[0] == key for row in part) for part in hashed) == 1
    filled = [part for part in ranged if part]
    assert all(max(one) < min(other) for one, other in pairwise(filled))


class Parity(Partitioner[int]):
    def partition(self, key: int, num_partitions: int) -> int:
        return key % num_partitions


def test_partitions_of_the_program_in_order() -> None:
    env = data_set_environment(2)
    data = env.from_collection([(5, "a"), (2, "b"), (1, "c"), (4, "b"), (2, "a"), (5, "c")])
    ordered = data.partition_custom(Parity(), 0).sort_partition(0, Order.DESCENDING).sort_partition(1)
    assert partitions_of(ordered) == [
        [(4, "b"), (2, "a"), (2, "b")],
        [(5, "a"), (5, "c"), (1, "c")],
    ]


def test_first_rows_of_all_and_of_groups() -> None:
    env = data_set_environment(2)
    data = env.from_collection([(number % 3, number) for number in range(30)]).rebalance()
    assert len(rows_of(data.first(7))) == 7
    assert len(rows_of(data.first(99))) == 30
    assert Counter(key for key, _ in rows_of(data.group_by(0).first(2))) == {0: 2, 1: 2, 2: 2}
    last = data.group_by(0).sort_group(1, Order.DESCENDING).first(2)
    assert sorted(rows_of(last)) == [(0, 24), (0, 27), (1, 25), (1, 28), (2, 26), (2, 29)]
    for count in (0, -1, True):
        with pytest.raises(InvalidProgramError, match="from 1 on"):
            data.first(count)
        with pytest.raises(InvalidProgramError, match="from 1 on"):
            data.group_by(0).first(count)


def numbered(env: ExecutionEnvironment, count: int) -> DataSet:
    return env.generate_sequence(1, count).map(lambda number: number)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_are_numbered(parallelism: int) -> None:
    env = data_set_environment(parallelism)
    indexed = rows_of(DataSetUtils.zip_with_index(numbered(env, 20)))
    assert sorted(index for index, _ in indexed) == list(range(20))
    assert sorted(number for _, number in indexed) == list(range(1, 21))
    identified = rows_of(DataSetUtils.zip_with_unique_id(numbered(env, 20)))
    assert len({number for number, _ in identified}) == 20
    counts = rows_of(DataSetUtils.count_elements_per_partition(numbered(env, 20)))
    assert sorted(partition for partition, _ in counts) == list(range(parallelism))
    assert sum(count for _, count in counts) == 20


@pytest.mark.parametrize("distribution", ["rebalance", "union", "hash", "range"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_that_are_only_distributed_are_numbered(parallelism: int, distribution: str) -> None:
    """Both passes see each row in the same partition."""
    env = data_set_environment(parallelism)
    rows = numbered(env, 20)
    distributions: dict[str, Callable[[], DataSet]] = {
        "rebalance": rows.rebalance,
        "union": lambda: rows.union(env.from_collection([21, 22])),
        "hash": lambda: rows.partition_by_hash("*"),
        "range": lambda: rows.partition_by_range("*"),
    }
    data = distributions[distribution]()
    count = 22 if distribution == "union" else 20
    for seed in range(3):
        indexed = rows_of(DataSetUtils.zip_with_index(data), deal=shuffled(seed))
        assert sorted(index for index, _ in indexed) == list(range(count))
        assert sorted(number for _, number in indexed) == list(range(1, count + 1))
    identified = rows_of(DataSetUtils.zip_with_unique_id(data))
    assert len({number for number, _ in identified}) == count
