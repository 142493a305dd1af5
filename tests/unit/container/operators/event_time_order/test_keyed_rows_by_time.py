"""KeyedRowsByTime against a sorted list, and what a cut has of it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.event_time_order.keyed_rows_by_time import PIECE, KeyedRowsByTime, RowsOfTime

#: A row at a time; take up to a time, and stop behind so many pieces; or a cut.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 20), st.integers(0, 3))),
        st.tuples(st.just("cut"), st.none()),
    ),
    max_size=40,
)


def content(frozen: Any) -> list[tuple[int, Any, Any]]:
    """(time, key, row) of frozen rows, in their order."""
    return [
        (rows.time, rows.entries[at], rows.entries[at + 1])
        for rows in frozen
        for at in range(rows.start, rows.end, 2)
    ]


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_rows_leave_by_time_as_they_came(steps: list[Any]) -> None:
    rows, model, left = KeyedRowsByTime(), list[tuple[int, int]](), 0
    cuts: list[tuple[Any, list[Any]]] = []
    for number, (step, what) in enumerate(steps):
        if step == "add":
            if what >= left:
                rows.add(f"key {number}", what, number)
                model.append((what, number))
        elif step == "cut":
            cuts.append((rows.freeze(), sorted(model)))
        else:
            last, pieces = what
            for found, times in islice(rows.take_until(last), pieces):
                for row, time in zip(found, times, strict=True):
                    left = time + 1
                    assert (time, row) == min(model)
                    model.remove((time, row))
        assert rows.first_time == (min(model)[0] if model else None)
        assert rows.count == len(model)
    for frozen, expected in cuts:
        # The rows that came and left behind the cut are none of its business.
        assert content(frozen) == [(time, f"key {number}", number) for time, number in expected]


def test_many_rows_of_one_time_leave_in_pieces_and_a_cut_has_the_others() -> None:
    rows = KeyedRowsByTime()
    rows.add("first", 6, -1)
    for number in range(3 * PIECE):
        rows.add("key", 7, number)
    first, second = islice(rows.take_until(7), 2)
    assert len(first[0]) == len(second[0]) == PIECE
    assert first[1] == [6] + [7] * (PIECE - 1)
    assert first[0] + second[0] == list(range(-1, 2 * PIECE - 1))
    assert rows.count == PIECE + 1
    cut = rows.freeze()
    rows.add("key", 8, "behind the cut")
    assert [row for piece, _ in rows.take_until(7) for row in piece] == list(range(2 * PIECE - 1, 3 * PIECE))
    assert content(cut) == [(7, "key", number) for number in range(2 * PIECE - 1, 3 * PIECE)]
    assert rows.first_time == 8


@settings(max_examples=60, deadline=None)
@given(
    added=st.lists(st.integers(0, 9), max_size=30),
    takes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=12),
)
def test_rows_leave_with_their_keys_a_few_at_a_time(added: list[int], takes: list[tuple[int, int]]) -> None:
    rows = KeyedRowsByTime()
    for number, time in enumerate(added):
        rows.add(f"key {number}", time, number)
    model = sorted(zip(added, range(len(added)), strict=True))
    for last, most in takes:
        found = [
            (time, entries[at + 1])
            for time, entries in rows.take_with_keys(last, most)
            for at in range(0, len(entries), 2)
            if entries[at] == f"key {entries[at + 1]}"
        ]
        expected = [entry for entry in model if entry[0] <= last][:most]
        assert found == expected
        model = model[len(expected) :]
        assert rows.count == len(model)
        assert [(time, row) for time, _, row in content(rows.freeze())] == model


def test_a_cut_names_the_places_of_each_time() -> None:
    rows = KeyedRowsByTime()
    rows.add("b", 5, 1)
    rows.add("a", 4, 2)
    assert list(rows.freeze()) == [RowsOfTime(4, ["a", 2], 0, 2), RowsOfTime(5, ["b", 1], 0, 2)]
