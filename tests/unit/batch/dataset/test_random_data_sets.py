"""Random DataSet programs as BatchTasks, against the same programs in plain Python.

The model is a list of rows. What is not defined (the order of rows, which of several equal rows is kept, where groups
are combined) does not show in the functions of these programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import shuffled
from tests.support.data_sets import data_set_environment, rows_of
from yarrow.batch.dataset import Aggregations, DataSet, Order
from yarrow.batch.dataset.functions import (
    GroupCombineFunction,
    GroupReduceFunction,
    MapFunction,
    RichReduceFunction,
    RuntimeContext,
)
from yarrow.common import Types
from yarrow.container.batch.batch_inputs import BatchInputs
from yarrow.container.batch.folding import combining_partition
from yarrow.container.operators.data_set.grouped_rows import _IteratingOperator

#: (key, number, mark)
Row = tuple[str, int, int]
ROW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


def negate(row: Row) -> Row:
    return row[0], -row[1], row[2]


def rename(row: Row) -> Row:
    return f"k{row[1] % 3}", row[1], row[2]


def twice(row: Row) -> list[Row] | None:
    return [row, (row[0], row[1] + 1, row[2])] if row[1] % 2 else None


def is_small(row: Row) -> bool:
    return row[1] < 5


def add(one: Row, other: Row) -> Row:
    return min(one[0], other[0]), one[1] + other[1], max(one[2], other[2])


def each_doubled(rows: Iterator[Row]) -> Iterator[Row]:
    for key, number, mark in rows:
        yield key, 2 * number, mark


def summary(rows: Iterator[Row]) -> Iterator[Row]:
    """A row of a whole group: number of rows, sum, and what the order of rows cannot change."""
    found = sorted(rows)
    yield found[0][0], sum(number for _, number, _ in found), len(found)
    if len(found) > 2:
        yield found[-1]


def in_order(rows: Iterator[Row]) -> Iterator[Row]:
    """A hash of the numbers of a group, which tells their order."""
    key, total = "", 0
    for row in rows:
        key, total = row[0], (31 * total + row[1]) % 1009
    yield key, total, 0


class Total(GroupReduceFunction[Row, Row], GroupCombineFunction[Row, Row]):
    """One row of a group, of any partial ones."""

    def reduce(self, values: Iterator[Row]) -> Iterator[Row]:
        yield reduce(add, values)

    def combine(self, values: Iterator[Row]) -> Iterator[Row]:
        return self.reduce(values)


class Opened(RichReduceFunction[Row]):
    """Adds rows, when it is opened."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.add = add if self.get_runtime_context() is runtime_context else None

    def reduce(self, value1: Row, value2: Row) -> Row:
        assert self.add is not None
        return self.add(value1, value2)


class WithSum(MapFunction[Row, Row]):
    """Adds the sum of the marks of a broadcast variable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = sum(mark for _, _, mark in runtime_context.get_broadcast_variable("marks"))

    def map(self, value: Row) -> Row:
        return value[0], value[1], value[2] + self.sum


# ---------------------------------------------------------------------- operations and their models

Model = Callable[[list[Row]], list[Row]]


def groups(rows: list[Row]) -> list[list[Row]]:
    return [list(group) for _, group in groupby(sorted(rows), key=lambda row: row[0])]


def by_group(function: Callable[[list[Row]], Any]) -> Model:
    return lambda rows: [result for group in groups(rows) for result in function(group)]


def whole(function: Callable[[list[Row]], Any]) -> Model:
    return lambda rows: list(function(rows)) if rows else []


def aggregated(rows: list[Row]) -> Row:
    return rows[0][0], sum(row[1] for row in rows), max(row[2] for row in rows)


def first_distinct(rows: list[Row]) -> list[Row]:
    return list(dict.fromkeys(rows))


def distinct_keys(rows: list[Row]) -> list[Row]:
    return [(key, 0, 0) for key in {row[0] for row in rows}]


def only_key(row: Row) -> Row:
    return row[0], 0, 0


class Operation(NamedTuple):
    apply: Callable[[DataSet], DataSet]
    model: Model


OPERATIONS: dict[str, Operation] = {
    "map": Operation(lambda d: d.map(negate, ROW), lambda rows: [negate(row) for row in rows]),
    "rename": Operation(lambda d: d.map(rename), lambda rows: [rename(row) for row in rows]),
    "filter": Operation(lambda d: d.filter(is_small), lambda rows: [row for row in rows if is_small(row)]),
    "flat_map": Operation(
        lambda d: d.flat_map(twice, ROW), lambda rows: [made for row in rows for made in twice(row) or ()]
    ),
    "map_partition": Operation(
        lambda d: d.map_partition(each_doubled), lambda rows: list(each_doubled(iter(rows)))
    ),
    "rebalance": Operation(lambda d: d.rebalance(), lambda rows: rows),
    "project": Operation(lambda d: d.project(0, 2, 1), lambda rows: [(a, c, b) for a, b, c in rows]),
    "reduce": Operation(lambda d: d.group_by(0).reduce(add), by_group(lambda group: [reduce(add, group)])),
    "rich_reduce": Operation(
        lambda d: d.group_by(lambda row: row[0]).reduce(Opened()),
        by_group(lambda group: [reduce(add, group)]),
    ),
    "reduce_all": Operation(lambda d: d.reduce(add), whole(lambda rows: [reduce(add, rows)])),
    "reduce_group": Operation(
        lambda d: d.group_by("f0").reduce_group(summary), by_group(lambda group: summary(iter(group)))
    ),
    "reduce_group_combined": Operation(
        lambda d: d.group_by(0).reduce_group(Total(), ROW), by_group(lambda group: [reduce(add, group)])
    ),
    "reduce_group_all": Operation(lambda d: d.reduce_group(summary), whole(lambda rows: summary(iter(rows)))),
    "combine_group": Operation(
        lambda d: d.group_by(0).combine_group(Total()).group_by(0).reduce(add),
        by_group(lambda group: [reduce(add, group)]),
    ),
    "sort_group": Operation(
        lambda d: d.group_by(0).sort_group(1, Order.DESCENDING).reduce_group(in_order),
        by_group(lambda group: in_order(iter(sorted(group, key=lambda row: -row[1])))),
    ),
    "sort_group_by_two": Operation(
        lambda d: d.group_by(0).sort_group(2).sort_group(lambda row: row[1]).reduce_group(in_order),
        by_group(lambda group: in_order(iter(sorted(group, key=lambda row: (row[2], row[1]))))),
    ),
    "aggregate": Operation(
        lambda d: d.group_by(0).aggregate(Aggregations.SUM, 1).and_(Aggregations.MAX, 2),
        by_group(lambda group: [aggregated(group)]),
    ),
    "sum": Operation(
        lambda d: d.group_by(0, 2).sum(1),
        lambda rows: [
            (key, sum(row[1] for row in rows if (row[0], row[2]) == (key, mark)), mark)
            for key, mark in {(row[0], row[2]) for row in rows}
        ],
    ),
    "min": Operation(
        lambda d: d.project(1).min(0).map(lambda row: ("m", row[0], 0)),
        whole(lambda rows: [("m", min(row[1] for row in rows), 0)]),
    ),
    "min_by": Operation(
        lambda d: d.group_by(0).min_by(1, 2), by_group(lambda group: [min(group, key=lambda row: row[1:])])
    ),
    "max_by": Operation(
        lambda d: d.group_by(0).max_by(1).map(lambda row: (row[0], row[1], 0)),
        by_group(lambda group: [(group[0][0], max(row[1] for row in group), 0)]),
    ),
    "distinct": Operation(lambda d: d.distinct(), first_distinct),
    "distinct_keys": Operation(lambda d: d.distinct(0).map(only_key), distinct_keys),
    "broadcast": Operation(
        lambda d: d.map(WithSum()).with_broadcast_set(d.filter(is_small), "marks"),
        lambda rows: [(k, n, m + sum(row[2] for row in rows if is_small(row))) for k, n, m in rows],
    ),
}


class Engine(NamedTuple):
    """Sizes and choices of the engine that no result shows."""

    parallelism: int
    batch_rows: int
    most_keys: int
    sort_bytes: int
    waiting_rows: int


def engines() -> st.SearchStrategy[Engine]:
    return st.builds(
        Engine,
        st.integers(1, 3),
        st.sampled_from([1, 3, 2048]),
        st.sampled_from([1, 2, 1000]),
        st.sampled_from([1, 1000, 1 << 27]),
        st.sampled_from([1, 2, 2048]),
    )


def found_by(engine: Engine, rows: list[Row], names: list[str], declared: bool, seed: int) -> list[Any]:
    env = data_set_environment(engine.parallelism)
    data = env.from_collection(rows, ROW if declared else None)
    for name in names:
        data = OPERATIONS[name].apply(data)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MOST_KEYS", "LEAST_KEYS", "FIRST_KEYS"):
            patch.setattr(combining_partition, name, engine.most_keys)
        patch.setattr(BatchInputs, "sort_bytes", engine.sort_bytes)
        patch.setattr(_IteratingOperator, "waiting_rows", engine.waiting_rows)
        patch.setattr(_IteratingOperator, "most_bytes", engine.sort_bytes)
        options = {"execution.batch.max-rows": str(engine.batch_rows)}
        return rows_of(data, settings=options, deal=shuffled(seed))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 3)), max_size=25),
    st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=4),
    st.booleans(),
    engines(),
)
def test_programs_give_what_the_model_gives(
    rows: list[Row], names: list[str], declared: bool, engine: Engine
) -> None:
    expected = rows
    for name in names:
        expected = OPERATIONS[name].model(expected)
    found = found_by(engine, rows, names, declared, seed=0)
    assert Counter(found) == Counter(expected)
    assert found_by(engine, rows, names, declared, seed=1) == found


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_operation_gives_what_its_model_gives(name: str) -> None:
    rows = [("abc"[n % 3], n * 7 % 10, n % 4) for n in range(40)]
    engine = Engine(2, 3, 2, 1 << 27, 2)
    assert Counter(found_by(engine, rows, [name], True, seed=3)) == Counter(OPERATIONS[name].model(rows))
