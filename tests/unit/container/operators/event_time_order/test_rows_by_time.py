"""RowsByTime against a sorted list."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.event_time_order.rows_by_time import PIECE, RowsByTime

#: A row at a time; take up to a time, and stop behind so many pieces; or keep so many rows.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 20), st.integers(0, 3))),
        st.tuples(st.just("keep"), st.integers(0, 20)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_rows_leave_by_time_and_number(steps: list[Any]) -> None:
    rows, model, left = RowsByTime(), list[tuple[int, int, str]](), 0
    for number, (step, what) in enumerate(steps):
        if step == "add":
            if what >= left:
                rows.add((what, number, f"row {number}"))
                model.append((what, number, f"row {number}"))
        elif step == "keep":
            if model:
                last = rows.keep_first(what)
                first = min(model)[0]
                kept = [row for row in model if sum(other[0] <= row[0] for other in model) <= what]
                model = kept or [row for row in model if row[0] == first]
                assert last == max(model)[0]
        else:
            last, pieces = what
            for piece in islice(rows.take_until(last), pieces):
                for row in piece:
                    left = row[0] + 1
                    assert row == min(model)
                    model.remove(row)
        assert rows.first_time == (min(model)[0] if model else None)
        assert list(rows) == sorted(model)
        assert rows.count == len(model)


def test_many_rows_of_one_time_leave_in_pieces_as_they_came() -> None:
    rows = RowsByTime()
    rows.add((6, 0, 0))
    for number in range(1, 3 * PIECE + 1):
        rows.add((7, number, number))
    first, second = islice(rows.take_until(7), 2)
    assert len(first) == len(second) == PIECE
    assert [row for _, _, row in (*first, *second)] == list(range(2 * PIECE))
    assert [row for _, _, row in rows] == list(range(2 * PIECE, 3 * PIECE + 1))
    assert [row for piece in rows.take_until(7) for _, _, row in piece] == list(
        range(2 * PIECE, 3 * PIECE + 1)
    )
    assert rows.first_time is None


def test_rows_between_two_times_are_added_and_put_in_order() -> None:
    rows = RowsByTime()
    rows.add((3, 9, "there"))
    coming = [(time, number, "read") for number, time in ((5, 4), (2, 6), (1, 4), (0, 3), (7, 7))]
    assert rows.add_between(coming, 3, 6) == 3
    rows.sort_after(3)
    assert [row[:2] for row in rows] == [(3, 9), (4, 1), (4, 5), (6, 2)]
