"""What a snapshot gets of rows that wait in memory: a list a key and second, as columns or not."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators import rows_by_key
from yarrow.container.operators.event_time_order import heap_buffer
from yarrow.container.operators.event_time_order.keyed_rows_by_time import KeyedRowsByTime
from yarrow.container.operators.pair_form import PairForm
from yarrow.runtime.data.serializers.nested import TupleColumns

_keys = (
    st.lists(st.integers(0, 3))
    | st.lists(st.sampled_from([0, 1, 1 << 63, -(1 << 70)]))
    | st.lists(st.sampled_from(["a", 1, (2, "b"), None]))
)


def stored(
    rows: list[tuple[Any, int]], number: int, as_columns: bool, form: PairForm | None = None
) -> dict[Any, dict[Any, Any]]:
    """By the start of a second and key; each key once. The rows of a form are pairs of key and place."""
    waiting = KeyedRowsByTime(form)
    for place, (key, time) in enumerate(rows):
        waiting.add(key, time, (place, "row") if form is None else (key, place))
    found = {}
    for second, keys, lists in heap_buffer._stored(waiting.freeze(), waiting.form, number, as_columns):
        assert len(keys) == len(set(keys)) == len(lists)
        assert all(type(each) is (TupleColumns if as_columns else list) for each in lists)
        assert second.start not in found
        found[second.start] = dict(
            zip(keys, (each.tolist() if as_columns else each for each in lists), strict=True)
        )
    return found


@pytest.mark.parametrize("as_columns", [True, False])
@given(_keys, st.data())
def test_rows_are_stored_by_second_and_key_in_the_order_in_which_they_leave(
    as_columns: bool, keys: list[Any], data: st.DataObject
) -> None:
    times = data.draw(st.lists(st.integers(-1500, 2500), min_size=len(keys), max_size=len(keys)))
    rows = list(zip(keys, times, strict=True))
    expected: dict[int, dict[Any, list[Any]]] = {}
    in_order = sorted(range(len(rows)), key=lambda place: rows[place][1])
    for number, place in enumerate(in_order, 7):
        key, time = rows[place]
        of_second = expected.setdefault(time // 1000 * 1000, {})
        of_second.setdefault(key, []).append((time, number, (place, "row")))
    with mock.patch.object(rows_by_key, "PIECE", 2):
        assert stored(rows, 7, as_columns) == expected


@given(_keys, st.data())
def test_pairs_are_stored_as_they_came(keys: list[Any], data: st.DataObject) -> None:
    """Also those whose keys are neither ints nor texts, which wait as they are."""
    times = data.draw(st.lists(st.integers(-1500, 2500), min_size=len(keys), max_size=len(keys)))
    found = stored(list(zip(keys, times, strict=True)), 0, True, PairForm(0))
    pairs = [
        (key, time, *row)
        for of_key in found.values()
        for key, rows in of_key.items()
        for time, _, row in rows
    ]
    expected = [(key, time, key, place) for place, (key, time) in enumerate(zip(keys, times, strict=True))]
    assert sorted(pairs, key=repr) == sorted(expected, key=repr)


def test_the_snapshot_thread_may_rest_after_each_time_and_each_piece_of_a_second() -> None:
    with mock.patch.object(rows_by_key, "PIECE", 2), mock.patch.object(heap_buffer, "Pacing") as pacing:
        stored([(1, time) for time in (0, 1, 2, 2, 3)], 0, True)
    times, pieces = 4, 3
    # Each piece is filled, and then put into order.
    assert pacing().step.call_count >= times + 2 * pieces
