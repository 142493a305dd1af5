"""join, outer joins, co_group and cross against plain Python: any keys, any order of arrival, in memory and on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.container.operators.data_set import two_data_sets
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.runtime.graph.data_set_spec import (
    CoGroupOperator,
    CrossOperator,
    JoinKind,
    JoinOperator,
    ProjectedField,
    TwoDataSetsOperator,
)
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.transformations import Transformation

Rows = list[tuple[Any, int]]
KEYS = st.sampled_from(["a", "b", 1, 1.0, True, 2, None, (1, "x"), (1.0, "x")])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=30)
#: Shares of the memory for sorting: with the second one everything goes to disk.
SHARES = st.sampled_from([1, 1 << 40])
by_first = itemgetter(0)


class Programs:
    """Programs of two data sets."""

    def __init__(self, parallelism: int = 2) -> None:
        self.env: StreamExecutionEnvironment = environment(parallelism)
        self.builder = self.env.graph_builder

    def rows(self, rows: list[Any]) -> Transformation:
        return self.env.from_collection(rows).rebalance().map(lambda row: row).transformation

    def by_key(self, read: Transformation) -> Transformation:
        return self.builder.partition(
            read, PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=self.selector())
        )

    def selector(self) -> bytes:
        return self.builder.pickle(by_first, "key")

    def join(
        self, first: list[Any], second: list[Any], kind: JoinKind, function: Any = None, **spec: Any
    ) -> DataStream:
        blob = None if function is None else self.builder.pickle(function, "Join")
        operator = JoinOperator(
            kind=kind, key_selectors=(self.selector(), self.selector()), function=blob, **spec
        )
        return self.keyed(first, second, operator)

    def keyed(self, first: list[Any], second: list[Any], spec: TwoDataSetsOperator) -> DataStream:
        reads = [self.by_key(self.rows(rows)) for rows in (first, second)]
        return DataStream(self.env, self.builder.two_input(reads[0], reads[1], "Join", spec))

    def cross(self, first: list[Any], second: list[Any], broadcast: int, function: Any = None) -> DataStream:
        reads = [self.rows(first), self.rows(second)]
        reads[broadcast] = self.builder.partition(
            reads[broadcast], PartitionerSpec(kind=PartitionerKind.BROADCAST)
        )
        blob = None if function is None else self.builder.pickle(function, "Cross")
        spec = CrossOperator(broadcast_input=broadcast, function=blob)
        return DataStream(self.env, self.builder.two_input(reads[0], reads[1], "Cross", spec))


def model_of_join(first: Rows, second: Rows, kind: JoinKind) -> list[Any]:
    """Keys are equal as Python finds them equal."""
    found: list[Any] = [(one, other) for one in first for other in second if one[0] == other[0]]
    if kind.keeps_first:
        found += [(one, None) for one in first if all(one[0] != other[0] for other in second)]
    if kind.keeps_second:
        found += [(None, other) for other in second if all(one[0] != other[0] for one in first)]
    return found


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS, st.sampled_from(JoinKind), SHARES, st.integers(1, 3), st.integers(0, 9))
def test_joins_are_those_of_the_model(
    first: Rows, second: Rows, kind: JoinKind, share: int, parallelism: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_data_sets, "_SHARE", share)
        programs = Programs(parallelism)
        found = collect(programs.env, programs.join(first, second, kind), deal=shuffled(seed))
    assert counted(found) == counted(model_of_join(first, second, kind))


def twice(one: Any, other: Any) -> Iterator[Any]:
    if one is not None and other is not None:
        yield one[1] + other[1]
        yield one[1] - other[1]


@pytest.mark.parametrize("share", [1, 1 << 40])
def test_functions_flat_functions_and_projections(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_data_sets, "_SHARE", share)
    first, second = [("a", 1), ("b", 2)], [("a", 10), ("a", 20), ("c", 30)]

    def run(kind: JoinKind, function: Callable[..., Any] | None, **spec: Any) -> list[Any]:
        programs = Programs()
        return collect(programs.env, programs.join(first, second, kind, function, **spec))

    assert sorted(run(JoinKind.INNER, lambda one, other: one[1] * other[1])) == [10, 20]
    assert sorted(run(JoinKind.FULL_OUTER, twice, is_flat=True)) == [-19, -9, 11, 21]
    fields = (ProjectedField(1, 1), ProjectedField(0, 0))
    assert sorted(run(JoinKind.RIGHT_OUTER, None, projection=fields)) == [(10, "a"), (20, "a"), (30, None)]


def summary(first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
    lefts, rights = [*first], [*second]
    (key,) = {
        repr(row[0] + 0 if isinstance(row[0], bool | float) else row[0]) for row in lefts[:1] or rights[:1]
    }
    yield key, sorted(row[1] for row in lefts), sorted(row[1] for row in rights)


@settings(max_examples=30, deadline=None)
@given(ROWS, ROWS, SHARES, st.integers(1, 3), st.integers(0, 9))
def test_co_group_gets_the_rows_of_each_key(
    first: Rows, second: Rows, share: int, parallelism: int, seed: int
) -> None:
    programs = Programs(parallelism)
    selectors = (programs.selector(), programs.selector())
    spec = CoGroupOperator(key_selectors=selectors, function=programs.builder.pickle(summary, "CoGroup"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_data_sets, "_SHARE", share)
        found = collect(programs.env, programs.keyed(first, second, spec), deal=shuffled(seed))
    keys = {row[0] for row in first} | {row[0] for row in second}
    expected = [
        (sorted(row[1] for row in first if row[0] == key), sorted(row[1] for row in second if row[0] == key))
        for key in keys
    ]
    assert counted([(lefts, rights) for _, lefts, rights in found]) == counted(expected)


def test_a_group_may_be_left_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_data_sets, "_SHARE", 1 << 40)
    programs = Programs()
    rows = [(key, number) for number in range(50) for key in "abc"]
    selectors = (programs.selector(), programs.selector())

    def first_of_second(first: Iterator[Any], second: Iterator[Any]) -> Iterator[Any]:
        yield next(second)[0]

    function = programs.builder.pickle(first_of_second, "CoGroup")
    spec = CoGroupOperator(key_selectors=selectors, function=function)
    assert sorted(collect(programs.env, programs.keyed(rows, rows, spec))) == ["a", "b", "c"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(), max_size=20),
    st.lists(st.integers(), max_size=20),
    st.integers(0, 1),
    SHARES,
    st.integers(1, 3),
)
def test_cross_gives_all_pairs(
    first: list[int], second: list[int], broadcast: int, share: int, parallelism: int
) -> None:
    programs = Programs(parallelism)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_data_sets, "_SHARE", share)
        found = collect(programs.env, programs.cross(first, second, broadcast), deal=shuffled(1))
    assert Counter(found) == Counter((one, other) for one in first for other in second)


def test_a_failure_names_the_operator_and_both_rows() -> None:
    programs = Programs(1)
    stream = programs.join([("a", 1)], [("a", 0)], JoinKind.INNER, lambda one, other: one[1] // other[1])
    with pytest.raises(OperatorFailure) as failed:
        collect(programs.env, stream)
    assert (failed.value.operator_name, failed.value.record) == ("Join", "(('a', 1), ('a', 0))")
    assert isinstance(failed.value.cause, ZeroDivisionError)
