"""RowsByTime against a sorted list."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.event_time_order.rows_by_time import PIECE, RowsByTime

#: A row at a time, or: take up to a time, and stop behind so many pieces.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 20), st.integers(0, 3))),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_rows_leave_by_time_and_number(steps: list[Any]) -> None:
    rows, model, left = RowsByTime(), list[tuple[int, int]](), 0
    for number, (step, what) in enumerate(steps):
        if step == "add":
            if what >= left:
                rows.add(what, number, "key", f"row {number}")
                model.append((what, number))
            continue
        last, pieces = what
        for time, piece in islice(rows.take_until(last), pieces):
            left = time + 1
            for row in piece:
                assert row == (row[0], "key", f"row {row[0]}")
                assert (time, row[0]) == min(model)
                model.remove((time, row[0]))
        assert rows.first_time == min(model, default=(None, 0))[0]
        assert [(time, row[0]) for time, row in rows] == sorted(model)


def test_many_rows_of_one_time_leave_in_pieces_as_they_came() -> None:
    rows = RowsByTime()
    for number in range(3 * PIECE + 1):
        rows.add(7, number, None, number)
    (_, first), (_, second) = islice(rows.take_until(7), 2)
    assert [row for _, _, row in (*first, *second)] == list(range(2 * PIECE))
    assert [row for _, (_, _, row) in rows] == list(range(2 * PIECE, 3 * PIECE + 1))
    assert [row for _, piece in rows.take_until(7) for _, _, row in piece] == list(
        range(2 * PIECE, 3 * PIECE + 1)
    )
    assert rows.first_time is None
