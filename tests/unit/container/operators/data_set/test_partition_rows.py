"""sort_partition and first: each partition in order, in memory and on disk."""

from __future__ import annotations

import math
import random
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.container.operators.data_set import partition_rows
from yarrow.container.operators.data_set.paired_rows import PairedRows
from yarrow.container.operators.data_set.replayed_rows import ReplayedRows
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import DataStream, RuntimeContext
from yarrow.datastream.functions import MapFunction
from yarrow.runtime.data.errors import UnorderedRowsError
from yarrow.runtime.graph.data_set_spec import FirstRowsOperator, SortField, SortPartitionOperator


class WithPartition(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.partition = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return self.partition, value


def sorted_rows(rows: list[Any], *orders: tuple[int, bool], parallelism: int = 2) -> list[list[Any]]:
    """The rows of each partition behind sort_partition."""
    env = environment(parallelism)
    builder = env.graph_builder
    read = env.from_collection(rows).rebalance().map(lambda row: row).transformation
    fields = tuple(
        SortField(builder.pickle(itemgetter(field), "Sort"), ascending) for field, ascending in orders
    )
    stream = DataStream(env, builder.one_input(read, "Sort", SortPartitionOperator(fields=fields)))
    found = collect(env, stream.map(WithPartition()))
    return [[row for _, row in part] for _, part in groupby(found, key=itemgetter(0))]


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("on_disk", [True, False])
def test_nan_sorts_behind_all_numbers_and_leaves_them_in_order(ascending: bool, on_disk: bool) -> None:
    rows = [(3.0, 0), (math.nan, 2), (1.0, 0), (np.float32("nan"), 1), (None, 0), (2.0, 0), (math.inf, 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_rows, "_SHARE", 1 << 40 if on_disk else 2)
        (found,) = sorted_rows(rows, (0, ascending), (1, True), parallelism=1)
    numbers = [(None, 0), (1.0, 0), (2.0, 0), (3.0, 0), (math.inf, 0)]
    nans = [row for row in found if row[0] is not None and math.isnan(row[0])]
    assert [number for _, number in nans] == [1, 2]
    assert [row for row in found if row not in nans] == (numbers if ascending else numbers[::-1])
    assert found[-2:] == nans if ascending else found[:2] == nans


VALUES = st.one_of(st.none(), st.integers(-3, 3))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(VALUES, st.integers(0, 5)), max_size=40), st.booleans(), st.booleans(), st.booleans()
)
def test_each_partition_is_in_order(
    rows: list[Any], first_ascending: bool, second_ascending: bool, on_disk: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_rows, "_SHARE", 1 << 40 if on_disk else 2)
        parts = sorted_rows(rows, (0, first_ascending), (1, second_ascending))
    assert sorted(map(repr, rows)) == sorted(repr(row) for part in parts for row in part)
    for part in parts:
        expected = sorted(part, key=itemgetter(1), reverse=not second_ascending)
        expected.sort(key=lambda row: (row[0] is not None, row[0] or 0), reverse=not first_ascending)
        assert part == expected


def test_rows_that_cannot_be_compared_are_told_by_operator() -> None:
    with pytest.raises(OperatorFailure) as failed:
        sorted_rows([(1, 1), ("x", 1)], (0, True), parallelism=1)
    assert failed.value.operator_name == "Sort"
    assert isinstance(failed.value.cause, UnorderedRowsError)


def test_first_passes_on_as_many_rows_of_each_partition() -> None:
    env = environment(2)
    read = env.from_collection(list(range(20))).rebalance().map(lambda row: row).transformation
    stream = DataStream(env, env.graph_builder.one_input(read, "First", FirstRowsOperator(count=3)))
    assert len(set(collect(env, stream))) == 6


def test_rows_beyond_the_budget_lie_on_disk(tmp_path: Path) -> None:
    rows = ReplayedRows(10_000, tmp_path)
    for start in range(0, 5000, 100):
        rows.add(list(range(start, start + 100)))
    assert rows.is_spilled
    assert list(rows) == list(rows) == list(range(5000))
    rows.close()
    assert not list(rows)


def test_one_key_of_both_inputs_streams_from_disk(tmp_path: Path) -> None:
    pairs = PairedRows("Join", (itemgetter(0), itemgetter(0)), 20_000, tmp_path)
    numbers = random.Random(1).sample(range(4000), 4000)
    for start in range(0, 4000, 50):
        pairs.add(start % 2, [("k", number) for number in numbers[start : start + 50]])
        pairs.add(1, [("k", -number) for number in numbers[start : start + 50]])
    ((lefts, rights),) = [(list(lefts), list(rights)) for lefts, rights in pairs.by_key()]
    assert pairs.is_spilled
    assert [number for _, number in lefts] == numbers
    assert [number for _, number in rights] == [-number for number in numbers]
    pairs.clear()
    assert not list(pairs.by_key())
