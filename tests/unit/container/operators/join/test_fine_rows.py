"""FineRows: what a cut stores while rows come and go behind it, and how many rows there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from yarrow.container.operators.join.fine_buckets import place_of
from yarrow.container.operators.join.fine_rows import FineForm, FineRows
from yarrow.container.operators.join.side_rows import Entry
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.pair_form import PairForm
from yarrow.container.state.window_tables import HeapWindowTables, StoredAtCut, WindowTables
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.data.serializers.nested import TupleColumns

STORED = 1000


class NoTables(WindowTables[TimeWindow]):
    """Tables of a backend without restored rows."""

    stores_at_cut = HeapWindowTables.stores_at_cut

    def store_also(self, rows: StoredAtCut[TimeWindow]) -> None:
        self.beside = rows

    def windows(self) -> list[TimeWindow]:
        return []

    def table(self, window: TimeWindow) -> Any:
        raise AssertionError("all rows are in memory of the operator")

    def windows_until(self, position: int) -> Any:
        raise AssertionError("all rows are in memory of the operator")

    def rows(self, window: TimeWindow) -> Any:
        raise AssertionError("all rows are in memory of the operator")

    def take(self, window: TimeWindow) -> Any:
        raise AssertionError("all rows are in memory of the operator")

    def drop(self, window: TimeWindow) -> None:
        raise AssertionError("all rows are in memory of the operator")


#: Both forms of buckets, and both of stored lists.
FORMS = [
    FineForm(100, STORED, by_place=True, typed=True),
    FineForm(100, STORED, by_place=True, typed=False),
    FineForm(50, STORED, by_place=False, typed=True),
    FineForm(50, STORED, by_place=False, typed=False),
]
BY_PLACE = FORMS[0]
PAIRS_BY_PLACE = BY_PLACE._replace(pairs=PairForm(1))


def opened(form: FineForm) -> tuple[FineRows, SideSize]:
    size = SideSize(STORED)
    return FineRows(NoTables(), form, size), size


def stored(frozen: Iterator[tuple[TimeWindow, list[Any], list[Any]]]) -> dict[int, dict[Any, list[Entry]]]:
    """The entries that a cut stores, by the start of their bucket and by key."""
    return {
        window.start: {key: entries_of(value) for key, value in zip(keys, values, strict=True)}
        for window, keys, values in frozen
    }


def entries_of(value: Any) -> list[Entry]:
    return value.tolist() if isinstance(value, TupleColumns) else value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("a", "b"), [("a", "b"), (1, 2), (-1, 2**70), (-3, None), ((7, 1), 7)])
def test_a_cut_stores_rows_by_second_and_key_in_order_of_their_time(form: FineForm, a: Any, b: Any) -> None:
    rows, _ = opened(form)
    for key, time, row in [(a, 1007, "x"), (a, 1003, "y"), (b, 999, "z"), (a, 1007, "w"), (a, 1900, "v")]:
        rows.add(key, time, row)
    assert stored(rows.freeze()) == {
        0: {b: [(999, False, "z")]},
        1000: {a: [(1003, False, "y"), (1007, False, "x"), (1007, False, "w"), (1900, False, "v")]},
    }


@pytest.mark.parametrize("count", [1, 10])
def test_pairs_are_stored_as_they_came(count: int) -> None:
    """Also those whose other field is a list, and those that are no pairs with their key."""
    rows, _ = opened(PAIRS_BY_PLACE)
    came: dict[Any, list[Entry]] = {}
    pairs = [("x", 7), ("y", "a"), ("z", 7), (["list"], "b"), (b"", 7, "three"), ("other", 8), ("true", True)]
    for key, row in zip([7, "a", 7, "b", 7, 7, 1], pairs, strict=True):
        for _ in range(count):
            rows.add(key, 5, row)
            came.setdefault(key, []).append((5, False, row))
        # Most rows come before any that is no pair.
        assert stored(rows.freeze()) == {0: came}


def test_rows_that_stand_alone_are_stored_beside_those_in_lists() -> None:
    """Generated code puts them so."""
    rows, _ = opened(BY_PLACE)
    rows.begin(0, "x")[place_of(7, 5, 100)] = "x"
    rows.add(7, 6, "y")
    rows.add(7, 5, "z")
    assert stored(rows.freeze()) == {0: {7: [(5, False, "x"), (5, False, "z"), (6, False, "y")]}}
    assert rows.entries == 3


@pytest.mark.parametrize("form", FORMS)
def test_rows_behind_a_cut_are_not_stored_whoever_comes_first(form: FineForm) -> None:
    rows, _ = opened(form)
    rows.add("a", 5, "x")
    rows.add("a", 205, "y")
    first = rows.freeze()
    assert rows.has_more
    rows.add("a", 5, "behind the first")
    rows.add("b", 7, "behind the first")
    second = rows.freeze()
    rows.add("a", 5, "behind the second")
    assert rows.drop_until(300, float("inf"))
    assert not rows.entries
    assert stored(second) == {
        0: {
            "a": [(5, False, "x"), (5, False, "behind the first"), (205, False, "y")],
            "b": [(7, False, "behind the first")],
        }
    }
    assert stored(first) == {0: {"a": [(5, False, "x"), (205, False, "y")]}}


def test_buckets_are_live_again_once_they_are_looked_at() -> None:
    rows, _ = opened(BY_PLACE)
    rows.add("a", 105, "x")
    assert not rows.has_more
    rows.freeze()
    assert rows.live.get(1) is None
    assert rows.look(1) == {("a", 5): ["x"]}
    assert rows.look(2) is None
    assert not rows.has_more


def test_a_deadline_ends_the_removal_of_buckets() -> None:
    rows, _ = opened(BY_PLACE)
    for time in (50, 150, 250):
        rows.add("a", time, "x")
    assert not rows.drop_until(199, 0.0)
    assert rows.drop_until(199, 0.0)
    assert rows.entries == 1


@pytest.mark.parametrize("form", FORMS)
def test_the_size_counts_rows_by_second(form: FineForm) -> None:
    rows, size = opened(form)
    for time in (5, 5, 5, 999, 1000):
        rows.add("a", time, "x")
    assert size.entries == rows.entries == 5
    assert size.stored().spans == [(0, 4), (1000, 1)]
    assert size.oldest == 0
    assert rows.drop_until(999, float("inf"))
    assert (size.entries, size.oldest) == (1, 1000)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [9, 10])
def test_long_lists_of_declared_rows_are_stored_as_columns(form: FineForm, count: int) -> None:
    rows, _ = opened(form)
    for time in range(count):
        rows.add(7, time, "x")
    # The first bucket decides for all: lists of both forms are not written together.
    rows.add(7, 1000, "x")
    lists = [each for _, _, values in rows.freeze() for each in values]
    assert set(map(type, lists)) == ({TupleColumns} if form.typed and count == 10 else {list})
    assert list(map(len, map(entries_of, lists))) == [count, 1]
