"""Sizes of joins against a plain count, and the watch over their growth."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.join.growth_watch import LEAST_GROWTH, STANDS_SECONDS, Growth, GrowthWatch
from yarrow.container.operators.join.side_size import SideSize

SPAN = 10

steps_of = st.lists(st.tuples(st.sampled_from(["add", "remove", "until", "restore"]), st.integers(-50, 50)))


@given(steps=steps_of)
def test_rows_are_counted_by_spans(steps: list[Any]) -> None:
    size = SideSize(SPAN)
    rows: Counter[int] = Counter()
    for step, time in steps:
        start = time - time % SPAN
        if step == "add":
            size.added(time, ("row", time))
            rows[start] += 1
        elif step == "remove" and rows[start]:
            size.removed([time])
            rows[start] -= 1
        elif step == "until":
            size.removed_until(time)
            rows = Counter({at: number for at, number in rows.items() if at + SPAN - 1 > time})
        elif step == "restore":
            restored = SideSize(SPAN)
            restored.restore(size.stored(), 1.0)
            size = restored
        rows = +rows
        assert size.entries == rows.total()
        assert size.oldest == min(rows, default=None)
        assert (size.bytes > 0) == (rows.total() > 0)


def test_bytes_are_those_of_some_rows_times_their_number() -> None:
    small, large = SideSize(SPAN), SideSize(SPAN)
    for time in range(200):
        small.added(time, ("x",))
        large.added(time, ("x" * 10_000,))
    assert 200 * 10_000 < large.bytes < 200 * 12_000
    assert small.bytes < 200 * 500


def test_a_share_of_former_sizes_is_taken_and_never_falls_below_nothing() -> None:
    size = SideSize(SPAN)
    for time in (1, 2, 3, 4, 15):
        size.added(time, "row")
    half = SideSize(SPAN)
    half.restore(size.stored(), 0.5)
    assert half.entries == 2
    half.removed([1, 2, 3, 4])
    assert (half.entries, half.oldest) == (0, None)


def test_growth_is_told_when_time_has_stood_a_while_and_then_with_each_doubling() -> None:
    watch = GrowthWatch()
    assert watch.look(0, 5, 10) is None
    assert watch.look(STANDS_SECONDS, 5, 9 + LEAST_GROWTH) is None
    assert watch.look(STANDS_SECONDS - 1, 5, 10_000) is None
    assert watch.look(STANDS_SECONDS, 5, 10_000) == Growth(STANDS_SECONDS, 10, 10_000)
    assert watch.look(STANDS_SECONDS + 1, 5, 19_999) is None
    assert watch.look(STANDS_SECONDS + 2, 5, 20_000) == Growth(STANDS_SECONDS + 2, 10, 20_000)
    # Event time moves: what has gathered until now is no matter of concern.
    assert watch.look(500, 6, 50_000) is None
    assert watch.look(550, 6, 90_000) is None
    assert watch.look(560, 6, 90_000) == Growth(60, 50_000, 90_000)
