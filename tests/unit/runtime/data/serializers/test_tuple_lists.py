"""Lists of tuples that never change in place, against plain lists: forms, bytes, and older values that stay."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import Types
from yarrow.runtime.data.errors import SerializationError
from yarrow.runtime.data.serializers import tuple_lists
from yarrow.runtime.data.serializers.nested import TupleCoder, TupleColumns
from yarrow.runtime.data.serializers.serializers import ColumnarRows, serializer_for
from yarrow.runtime.data.serializers.tuple_lists import (
    TupleListTypeInfo,
    appended,
    list_of,
    tuples_of,
    without_first,
)
from yarrow.runtime.snapshot.key_columns import objects_of
from yarrow.runtime.snapshot.type_migration import StatePlace, conversion

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
LISTS = TupleListTypeInfo(PAIR)
pairs = st.tuples(st.integers(0, 9), st.text(max_size=2))
lists = st.lists(pairs, min_size=1, max_size=5)


@given(st.lists(lists, max_size=6))
def test_the_bytes_are_those_of_lists(values: list[list[Any]]) -> None:
    plain, kept = serializer_for(Types.LIST(PAIR)), serializer_for(LISTS)
    data = kept.dump_rows(list(map(list_of, values)))
    assert data == plain.dump_rows(values)
    assert [tuples_of(value, 2) for value in kept.load_rows(data)] == values
    assert LISTS.to_spec() == Types.LIST(PAIR).to_spec()


@pytest.mark.parametrize(("most", "together"), [(5, 0), (6, 1)])
def test_many_tuples_are_taken_apart_run_by_run(most: int, together: int) -> None:
    """One call of C for all of them would hold the interpreter for too long."""
    rows = serializer_for(LISTS)
    assert isinstance(rows, ColumnarRows)
    values = [list_of([(1, "a"), (2, "b"), (3, "c")]), (4, "d"), list_of([(5, "e"), (6, "f")])]
    runs = [slice(0, 1), slice(1, 3)]
    alone = [rows.dump_rows(values[run]) for run in runs]
    with (
        mock.patch.object(tuple_lists, "_MOST_TOGETHER", most),
        mock.patch.object(TupleCoder, "pack_runs", autospec=True, side_effect=TupleCoder.pack_runs) as packed,
    ):
        assert rows.dump_runs(values, runs) == alone
    assert packed.call_count == together


@given(
    st.lists(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | pairs), min_size=1), max_size=5)
)
def test_columns_of_tuples_are_written_as_the_lists_that_they_stand_for(values: list[list[Any]]) -> None:
    rows = serializer_for(Types.LIST(Types.TUPLE([Types.LONG(), PAIR])))
    columns = [
        TupleColumns(np.array([number for number, _ in value]), objects_of([pair for _, pair in value]))
        for value in values
    ]
    assert rows.dump_rows(columns) == rows.dump_rows(values)
    assert [each.tolist() for each in columns] == values


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(-9, 9), st.text()), min_size=1), st.booleans()), min_size=1
    )
)
def test_a_field_that_is_a_tuple_may_be_columns_too(values: list[tuple[list[Any], bool]]) -> None:
    """In some of the lists, or in all of them."""
    rows = serializer_for(
        Types.LIST(Types.TUPLE([Types.LONG(), Types.TUPLE([Types.LONG(), Types.STRING()])]))
    )
    lists = [[(place, pair) for place, pair in enumerate(found)] for found, _ in values]
    columns = []
    for found, are_columns in values:
        numbers, texts = np.array([number for number, _ in found]), objects_of([text for _, text in found])
        nested = TupleColumns(numbers, texts) if are_columns else objects_of(found)
        columns.append(TupleColumns(np.arange(len(found)), nested))
    assert [each.tolist() for each in columns] == lists
    assert [each[1:].tolist() for each in columns] == [each[1:] for each in lists]
    assert rows.dump_rows(columns) == rows.dump_rows(lists)


def test_a_nested_column_that_does_not_fit_is_named_by_its_place() -> None:
    rows = serializer_for(
        Types.LIST(Types.TUPLE([Types.LONG(), Types.TUPLE([Types.LONG(), Types.STRING()])]))
    )
    nested = TupleColumns(np.array([3, 4]), objects_of(["a", 5]))
    with pytest.raises(SerializationError, match=r"\[1\]\.1\.1"):
        rows.dump_rows([TupleColumns(np.array([1, 2]), nested)])


def test_a_column_of_tuples_that_does_not_fit_is_named_by_its_place() -> None:
    rows = serializer_for(Types.LIST(Types.TUPLE([Types.LONG(), PAIR])))
    columns = TupleColumns(np.array([1, 2]), objects_of([(3, "a"), (4, 5)]))
    with pytest.raises(SerializationError, match=r"\[1\]\.1\.1"):
        rows.dump_rows([columns])


@given(lists, st.lists(st.one_of(pairs, st.none()), max_size=60))
def test_former_values_stay_as_they_are(first: list[Any], changes: list[Any]) -> None:
    value, expected = list_of(first), list(first)
    former = [(value, list(expected))]
    for change in changes:
        if change is not None:
            value = appended(value, 2, change)
            expected.append(change)
        elif len(expected) > 1:
            value = without_first(value, 2)
            del expected[0]
        former.append((value, list(expected)))
        # A value that is gone on with twice.
        appended(former[len(former) // 2][0], 2, (10, "other"))
        assert LISTS.accepts(value)
    assert all(tuples_of(each, 2) == was for each, was in former)


def test_a_list_that_grows_and_shrinks_for_ever_stays_short() -> None:
    value = list_of([(0, "a"), (1, "b"), (2, "c")])
    for number in range(3, 1000):
        value = without_first(appended(value, 2, (number, "")), 2)
    assert tuples_of(value, 2) == [(997, ""), (998, ""), (999, "")]
    assert len(value[2]) < 50


@pytest.mark.parametrize("value", [[(1, "a")], (1,), (1, "a", [], 0), (1, 2), (1, "a", [(1, 2)], 0, 1)])
def test_other_values_are_refused(value: Any) -> None:
    assert not LISTS.accepts(value)
    with pytest.raises(SerializationError):
        serializer_for(LISTS).dump_rows([value])


def test_lists_of_another_type_are_converted() -> None:
    was = Types.LIST(Types.TUPLE([Types.INT(), Types.STRING()]))
    convert = conversion(was, LISTS, StatePlace("operator", "state"))
    assert convert is not None
    assert convert([(1, "a")]) == (1, "a")
    assert tuples_of(convert([(1, "a"), (2, "b")]), 2) == [(1, "a"), (2, "b")]
