"""Rows that wait as the field that is not their key, and come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.pair_form import PairForm, pair_form
from yarrow.container.operators.rows.key_selection import generate_canonical_key
from yarrow.container.state.pacing import Pacing
from yarrow.runtime.data.keys import canonicalize

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])


class Named(NamedTuple):
    key: Any
    value: Any


class Level(IntEnum):
    HIGH = 1


class Text(str):
    pass


class Unpacked:
    """An object that must not be asked for its elements."""

    def __iter__(self) -> Any:
        raise AssertionError("a row of another class is not taken apart")


_keys = st.sampled_from([1, 0, -5, 1000, "a", "", 2**70, True, Level.HIGH, 1.0, None, Text("a"), (1, "b")])
_values = st.sampled_from([None, 3, "v", [1], {"k": 1}, (1, 2), Named(1, 2)])


def _rows_of(key: Any, value: Any, key_at: int) -> st.SearchStrategy[Any]:
    pair = (key, value) if key_at == 0 else (value, key)
    others = [pair[::-1], (*pair, 1), pair[:1], (), Named(*pair), list(pair), key, value, Unpacked()]
    return st.sampled_from([pair, pair, pair, *others])


def generated(form: PairForm, *, with_other_key: bool) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """A function that keeps a row with a raw key, and makes the row anew of the kept form and an equal key."""
    code, found = CodeWriter(), list[Any]()
    canonical = generate_canonical_key(code, "key")
    kept = form.generate_kept(code, canonical, "row", with_other_key=with_other_key)
    code.line(f"again = {kept}")
    form.generate_row(code, "other_key" if with_other_key else canonical, "again")
    code.line(f"{code.bind('put', found.append)}(({kept}, again))")
    function = code.compile("run", "key, row, other_key").function

    def run(key: Any, row: Any, other_key: Any) -> tuple[Any, Any]:
        function(key, row, other_key)
        made: tuple[Any, Any] = found.pop()
        return made

    return run


def is_as_it_was(again: Any, row: Any) -> bool:
    """True for the row itself and for a tuple that nobody can tell from it."""
    if again is row:
        return True
    if not type(again) is type(row) is tuple or len(again) != len(row):
        return False
    return all(
        new is old or (type(new) is type(old) in (int, str) and new == old)
        for new, old in zip(again, row, strict=True)
    )


def another(key: Any) -> Any:
    """An equal canonical key, if possible another object."""
    canonical = canonicalize(key)
    return type(canonical)(str(canonical)) if type(canonical) in (int, str) else canonical


@given(st.data(), _keys, _values, st.sampled_from([0, 1]), st.booleans())
def test_rows_come_back_as_they_were(
    data: st.DataObject, key: Any, value: Any, key_at: int, with_other_key: bool
) -> None:
    row = data.draw(_rows_of(key, value, key_at))
    form = PairForm(key_at)
    kept, again = generated(form, with_other_key=with_other_key)(key, row, another(key))
    assert is_as_it_was(again, row)
    canonical = canonicalize(key)
    assert all(is_as_it_was(each, row) for each in form.rows([canonical], [kept]))
    assert all(is_as_it_was(each, row) for each in form.rows([another(key)], [form.kept(canonical, row)]))


@pytest.mark.parametrize("key", [1, 2**70, "text"])
@pytest.mark.parametrize("with_other_key", [True, False])
def test_a_pair_waits_as_its_other_field(key: Any, with_other_key: bool) -> None:
    value = object()
    for key_at, row in enumerate([(key, value), (value, key)]):
        form = PairForm(key_at)
        kept, _ = generated(form, with_other_key=with_other_key)(key, row, key)
        assert kept is value
        assert form.kept(key, row) is value
        assert generated(form, with_other_key=with_other_key)(key, [*row], key)[0].row == [*row]


@given(st.lists(_keys, min_size=1), st.data())
def test_a_snapshot_gets_the_rows_in_its_order(keys: list[Any], data: st.DataObject) -> None:
    form = PairForm(1)
    rows = [(place, key) for place, key in enumerate(keys)]
    kept = [form.kept(canonicalize(key), row) for key, row in zip(keys, rows, strict=True)]
    order = np.array(data.draw(st.permutations(range(len(keys)))))
    column = form.in_order(list(map(canonicalize, keys)), kept, order, Pacing())
    assert list(map(repr, column.tolist())) == [repr(rows[at]) for at in order]


def test_a_snapshot_writes_keys_that_are_numbers_as_an_array() -> None:
    column = PairForm(0).in_order(np.array([5, 6, 7]), ["a", "b", "c"], np.array([2, 0, 1]), Pacing())
    assert column.tolist() == [(7, "c"), (5, "a"), (6, "b")]
    assert set(map(type, (key for key, _ in column.tolist()))) == {int}


def first(row: Any) -> Any:
    return row[0]


def parity(row: Any) -> Any:
    return row[0] % 2


def last_of_two(row: Any) -> Any:
    number = row
    return number[1]


class Keys:
    def get_key(self, row: Any) -> Any:
        return row[1]


def form_of(row_type: TypeInformation | None, selector: Callable[[Any], Any]) -> int | None:
    form = pair_form(row_type, selector)
    if form is None:
        return None
    return 0 if form.kept("key", ("key", 1)) == 1 else 1


def test_only_declared_pairs_whose_key_is_a_field_wait_as_the_other_one() -> None:
    text_first = Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
    assert form_of(PAIR, first) == 0
    assert form_of(PAIR, lambda row: row[1]) == 1
    assert form_of(PAIR, itemgetter(1)) == 1
    assert form_of(PAIR, Keys().get_key) == 1
    assert form_of(text_first, first) == 0
    others: list[tuple[TypeInformation | None, Callable[[Any], Any]]] = [
        (PAIR, parity),
        (PAIR, last_of_two),
        (PAIR, itemgetter(0, 1)),
        (PAIR, lambda row: row[2]),
        (PAIR, lambda row: row["0"]),
        (text_first, lambda row: row[1]),
        (Types.TUPLE([Types.LONG()] * 3), first),
        (Types.ROW([Types.LONG(), Types.LONG()]), first),
        (Types.LONG(), first),
        (None, first),
    ]
    for row_type, selector in others:
        assert form_of(row_type, selector) is None
