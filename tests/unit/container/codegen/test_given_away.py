"""Values that a function made and forgot are emitted without a copy; all that somebody still holds are copied."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from yarrow.container.codegen import ownership
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed


@dataclass
class Order:
    id: int
    product: Any
    amount: int = 1


def emitted(function: Callable[[int], Any], rows: int = 6) -> list[tuple[Any, int]]:
    """Runs a map whose result is fixed, and gives what was emitted with the id of what the function gave."""
    code = CodeWriter()
    out: list[Any] = []
    given: list[int] = []

    def called(row: int) -> Any:
        made = function(row)
        given.append(id(made))
        return made

    with code.block("for x in rows:"):
        code.line(f"v = {code.bind('function', called)}(x)")
        fixed = generate_fixed(code, "v", None, object_reuse=False, gives_away=True)
        code.line(f"{code.bind('put', out.append)}({fixed})")
    code.compile("fix_rows", "rows").function(range(rows))
    return list(zip(out, given, strict=True))


@dataclass
class Bare:
    """Its class has no default, so that its attributes can be counted."""

    id: int
    product: str


MAKERS: dict[str, Callable[[int], Any]] = {
    "object": lambda x: Order(x, "a"),
    "object without defaults": lambda x: Bare(x, "a"),
    "dict": lambda x: {"id": x, "product": "a"},
    "list": lambda x: [x, "a"],
}


@pytest.mark.skipif(not ownership.COUNTS_REFERENCES, reason="this interpreter does not count each variable")
@pytest.mark.parametrize("kind", MAKERS)
def test_a_new_value_is_emitted_itself(kind: str) -> None:
    # The first value of a class shows its attributes, and is copied.
    assert all(id(value) == made for value, made in emitted(MAKERS[kind])[1:])


@pytest.mark.parametrize("kind", MAKERS)
def test_a_value_that_the_function_keeps_is_copied(kind: str) -> None:
    kept: list[Any] = []

    def function(x: int) -> Any:
        kept.append(MAKERS[kind](x))
        return kept[-1]

    pairs = emitted(function)
    before = copy.deepcopy([value for value, _ in pairs])
    for value in kept:
        if isinstance(value, Order):
            value.amount += 1
        elif isinstance(value, Bare):
            value.id = -1
        elif isinstance(value, dict):
            value["id"] = -1
        else:
            value.append(1)
    assert [value for value, _ in pairs] == before
    assert all(id(value) != made for value, made in pairs)


@dataclass
class Holder:
    """Ways in which a function may still reach what it gave."""

    held: list[Any] = field(default_factory=list)

    def attributes(self, x: int) -> Order:
        made = Order(x, "a")
        self.held.append(vars(made))
        return made

    def weak(self, x: int) -> Order:
        made = Order(x, "a")
        self.held.append(weakref.ref(made))
        return made

    def inner(self, x: int) -> Order:
        self.held.append([x])
        return Order(x, self.held[-1])


@pytest.mark.parametrize("way", ["attributes", "weak", "inner"])
def test_a_value_that_is_still_reached_is_copied(way: str) -> None:
    holder = Holder()
    pairs = emitted(getattr(holder, way))
    for held in holder.held:
        if isinstance(held, dict):
            held["amount"] = 100
        elif isinstance(held, list):
            held.append(100)
    assert [value.amount for value, _ in pairs] == [1] * 6
    assert [value.product for value, _ in pairs] == ([[x] for x in range(6)] if way == "inner" else ["a"] * 6)
    if way == "weak":
        assert all(id(value) != made for value, made in pairs)


def test_one_value_that_is_given_again_and_again() -> None:
    shared = Order(0, "a")

    def function(x: int) -> Order:
        shared.id = x
        return shared

    assert [value.id for value, _ in emitted(function)] == list(range(6))


def test_a_generator_that_changes_what_it_gave() -> None:
    code = CodeWriter()
    out: list[Order] = []

    def results() -> Iterator[Order]:
        order = Order(0, "a")
        for x in range(6):
            order.id = x
            yield order

    with code.block("for v in results:"):
        fixed = generate_fixed(code, "v", None, object_reuse=False, gives_away=True)
        code.line(f"{code.bind('put', out.append)}({fixed})")
    code.compile("fix_rows", "results").function(results())
    assert [order.id for order in out] == list(range(6))


def test_nothing_is_given_away_before_other_consumers() -> None:
    code = CodeWriter()
    generate_fixed(code, "v", None, object_reuse=False)
    assert "only_atoms_of" not in code.compile("fix_rows", "v").shown
