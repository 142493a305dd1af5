"""Copies of content that a snapshot holds: as deep as the declared type asks for."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.common.typeinfo import Types
from yarrow.container.state.heap_keyed_state import protector_for

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def test_immutable_types_are_not_copied() -> None:
    assert protector_for(PAIR) is None


def test_lists_in_a_tuple_are_copied_and_their_declared_elements_are_shared() -> None:
    protect = protector_for(Types.TUPLE([Types.LIST(PAIR), Types.LIST(Types.LONG())]))
    assert protect is not None
    held: Any = ([(1, 2)], [3])
    copy = protect(held)
    assert copy == held
    assert copy[0][0] is held[0][0]
    copy[0].append((4, 5))
    copy[1].clear()
    assert held == ([(1, 2)], [3])
    assert protect(([(1, 2)], None)) == ([(1, 2)], None)


@pytest.mark.parametrize(
    "declared", [Types.TUPLE([Types.LIST(Types.LIST(Types.LONG())), Types.LIST(Types.LONG())]), None]
)
def test_elements_that_can_change_are_copied(declared: Any) -> None:
    protect = protector_for(declared)
    assert protect is not None
    held: Any = ([[1]], [3])
    protect(held)[0][0].append(2)
    assert held == ([[1]], [3])
