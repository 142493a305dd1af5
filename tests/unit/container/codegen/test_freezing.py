"""Generated code that fixes values: whatever mixture comes, what cannot change passes and the rest is copied."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import TupleForm, generate_fixed

Loop = Callable[[list[Any]], list[Any]]


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Order:
    id: int
    product: Any


def loop() -> Loop:
    """Runs a chunk of rows through the code for an undeclared type."""
    code = CodeWriter()
    out: list[Any] = []
    with code.block("for v in rows:"):
        code.line(f"{code.bind('put', out.append)}({generate_fixed(code, 'v', None, object_reuse=False)})")
    function = code.compile("fix_rows", "rows").function

    def run(rows: list[Any]) -> list[Any]:
        out.clear()
        function(rows)
        return out.copy()

    return run


def is_fixed(fixed: Any, original: Any) -> bool:
    """Equal, of the same type; the same object where nothing in it can change, sharing nothing that can where not."""
    if isinstance(original, tuple):
        parts = list(zip(fixed, original, strict=True))
        same = all(a is b for a, b in parts)
        return (
            type(fixed) is type(original)
            and all(is_fixed(a, b) for a, b in parts)
            and (fixed is original) == same
        )
    if isinstance(original, list):
        return fixed is not original and fixed == original and all(map(is_fixed, fixed, original))
    if isinstance(original, Order):
        return type(fixed) is Order and fixed is not original and is_fixed(fixed.product, original.product)
    return fixed is original


atoms = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.binary(max_size=3))
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=2),
        st.builds(Pair, inner, inner),
        st.builds(Order, st.integers(), inner),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.lists(values, max_size=6), max_size=8))
def test_any_mixture_of_rows_is_fixed(chunks: list[list[Any]]) -> None:
    run = loop()
    for rows in chunks:
        before = copy.deepcopy(rows)
        fixed = run(rows)
        assert fixed == before
        assert all(map(is_fixed, fixed, rows))


@pytest.mark.parametrize("usual", [(1, "a"), (1, "a", None), ([1], 2), (1, 2, 3, 4), ()])
@pytest.mark.parametrize(
    "unusual", [(1, [2]), ([1], "a"), (1, 2, [3]), (1,), (), (1.5, None), (1, 2, 3, [4]), [1], Order(1, [2])]
)
def test_a_row_unlike_the_ones_before(usual: Any, unusual: Any) -> None:
    run = loop()
    for rows in (
        [usual, usual],
        [usual, unusual, usual],
        [unusual],
        [usual],
        [unusual, unusual],
        [usual] * 3,
    ):
        assert all(map(is_fixed, run(rows), rows))


def test_a_place_that_sees_many_forms_settles() -> None:
    form = TupleForm()
    for _ in range(10):
        form.fix((1, 2))
        form.fix((1, 2, 3))
    settled = form.expected
    form.fix((1, 2))
    assert form.expected == settled and settled[0] == 0


def test_only_types_that_cannot_change_are_expected() -> None:
    form = TupleForm()
    form.fix((1, [2]))
    assert form.expected[:3] == (2, int, type(None))


def test_nothing_is_written_where_nothing_can_change() -> None:
    code = CodeWriter()
    assert generate_fixed(code, "v", Types.TUPLE([Types.LONG(), Types.STRING()]), object_reuse=False) == "v"
    assert generate_fixed(code, "v", None, object_reuse=True) == "v"
