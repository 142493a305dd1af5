"""Tests of ownership: only values of atoms that nothing else can reach are told to be so."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest

from yarrow.common.types import Row
from yarrow.container.codegen.ownership import learn_only_atoms, only_atoms_of


@dataclass
class Plain:
    a: Any
    b: Any = None


@dataclass
class Bare:
    a: Any
    b: Any


@dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = None


class Changing:
    """Instances have the attributes that the test gives them."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Reduced(Plain):
    def __reduce__(self) -> tuple[Any, ...]:
        return Reduced, (self.a,)


class Text(str):
    """May bear attributes."""


def holds_only_atoms(value: Any) -> bool:
    test = only_atoms_of(type(value))
    return learn_only_atoms(value) if test is None else test(value)


@pytest.mark.parametrize(
    "make", [Plain, Bare, Slotted, lambda *v: list(v), lambda *v: {"k": v[0]}, lambda *v: Row(*v)]
)
def test_values_of_atoms(make: Any) -> None:
    holds_only_atoms(make(1, 2))
    assert holds_only_atoms(make(1, "x"))
    assert holds_only_atoms(make(None, 2.5))
    assert not holds_only_atoms(make([1], 2))
    assert not holds_only_atoms(make(Text("x"), 2))
    assert holds_only_atoms(make(3, 4))


def test_keys_and_elements() -> None:
    assert holds_only_atoms({1, "a"}) and holds_only_atoms({})
    assert not holds_only_atoms({(1, 2): 3})
    assert not holds_only_atoms({frozenset((1,))})


@pytest.mark.parametrize("make", [Plain, Bare, lambda *values: set(values)])
def test_a_value_with_a_weak_reference_may_change(make: Any) -> None:
    holds_only_atoms(make(1, 2))
    value = make(1, 2)
    seen = weakref.ref(value)
    assert not holds_only_atoms(value) and seen() is value


@pytest.mark.parametrize("cls", [Plain, Bare])
def test_a_value_whose_attributes_are_held_as_a_dict_may_change(cls: Any) -> None:
    holds_only_atoms(cls(1, 2))
    value = cls(1, 2)
    held = vars(value)
    assert not holds_only_atoms(value) and held["a"] == 1


def test_a_row_whose_list_of_values_is_held_may_change() -> None:
    row = Row(1, 2)
    held = row._values
    assert not holds_only_atoms(row) and held == [1, 2]


def test_classes_with_ways_of_their_own_are_left() -> None:
    for _ in range(3):
        assert not holds_only_atoms(Reduced(1))
        assert not holds_only_atoms(object())


def test_attributes_that_change_are_learned_a_few_times() -> None:
    for names in ("ab", "abc", "bc", "abd"):
        value = Changing(**dict.fromkeys(names, 1))
        assert not holds_only_atoms(value)
    # Further attributes are not learned: such values are copied.
    for _ in range(3):
        assert not holds_only_atoms(Changing(x=1, y=2))
