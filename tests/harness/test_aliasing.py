"""What a function emitted is fixed at that moment, whoever changes the object afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from yarrow.common.types import Row
from yarrow.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ListState, ListStateDescriptor, ValueState, ValueStateDescriptor
from yarrow.testing.operator_harness import Fragment, OperatorHarness


@dataclass
class Box:
    items: list[int] = field(default_factory=list)


class Plain:
    def __init__(self) -> None:
        self.items: list[int] = []


def grow(value: Any, number: int) -> None:
    """Changes a value in place, deep inside."""
    if isinstance(value, tuple):
        grow(value[1], number)
    elif isinstance(value, dict):
        value.setdefault("items", []).append(number)
    elif isinstance(value, list):
        value.append(number)
    elif isinstance(value, Row):
        value[0].append(number)
    else:
        value.items.append(number)


def content(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return content(value[1])
    if isinstance(value, dict):
        return list(value.get("items", []))
    if isinstance(value, list):
        return list(value)
    if isinstance(value, Row):
        return list(value[0])
    return list(value.items)


MAKERS: dict[str, Any] = {
    "list": list, "dict": dict, "box": Box, "plain": Plain, "row": lambda: Row([]), "tuple": lambda: ("t", []),
}  # fmt: skip


class Regrown(FlatMapFunction[Any, Any]):
    """Emits one object three times and changes it before each and after the last."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def flat_map(self, value: Any) -> Iterator[Any]:
        shared = self.make()
        for number in range(3):
            grow(shared, number)
            yield shared
        grow(shared, 99)


class Greedy(MapFunction[Any, Any]):
    """Changes what it gets."""

    def map(self, value: Any) -> Any:
        grow(value, -1)
        return value


GROWN = [[0], [0, 1], [0, 1, 2]]


def contents(fragment: Fragment, reuse: str = "false") -> list[list[list[int]]]:
    with OperatorHarness(fragment, configuration={"pipeline.object-reuse": reuse}) as harness:
        harness.push("go")
        harness.end()
        count = len(harness._outputs)
        return [[content(value) for value in harness.outputs(index)] for index in range(count)]


@pytest.mark.parametrize("kind", MAKERS)
def test_the_producer_changes_what_it_emitted(kind: str) -> None:
    assert contents(lambda s: s.flat_map(Regrown(MAKERS[kind]))) == [GROWN]


@pytest.mark.parametrize("kind", MAKERS)
def test_one_chained_consumer_changes_what_it_got_and_the_other_does_not_see_it(kind: str) -> None:
    def fragment(stream: Any) -> Any:
        source = stream.flat_map(Regrown(MAKERS[kind]))
        return source.map(Greedy()), source.map(lambda v: v), source

    greedy, other, exchanged = contents(fragment)
    assert other == exchanged == GROWN
    # The producer's object is the greedy one's at most once: its own changes stay in it.
    assert [list(filter(lambda n: n >= 0, grown)) for grown in greedy] == GROWN


def test_consumers_behind_two_exchanges_are_apart() -> None:
    def fragment(stream: Any) -> Any:
        source = stream.flat_map(Regrown(list))
        return source.rebalance().map(Greedy()), source.broadcast().map(lambda v: v)

    assert contents(fragment) == [[[*grown, -1] for grown in GROWN], GROWN]


SIDE = OutputTag("side")


class Twice(ProcessFunction[Any, Any]):
    """The same object to both outputs, changed in between."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        shared = [0]
        yield shared
        shared.append(1)
        yield SIDE, shared
        shared.append(2)


def test_main_and_side_output_are_apart() -> None:
    def fragment(stream: Any) -> Any:
        process = stream.process(Twice())
        return process, process.get_side_output(SIDE)

    assert contents(fragment) == [[[0]], [[0, 1]]]


class Accumulated:
    """Reduces in place: changes and returns the state it was given."""

    def __call__(self, current: Any, new: Any) -> Any:
        current[1].append(new[1][0])
        return current


@pytest.mark.parametrize("chained", [False, True])
def test_reduce_in_place_emits_each_state_as_it_was(chained: bool) -> None:
    def fragment(stream: Any) -> Any:
        reduced = stream.key_by(lambda v: v[0]).reduce(Accumulated())
        return reduced.map(GreedyPair()) if chained else reduced

    with OperatorHarness(fragment) as harness:
        rows = [("k", [1]), ("k", [2]), ("k", [3])]
        harness.push(*rows)
        states = [list(filter(lambda n: n > 0, value[1])) for value in harness.output]
        assert states == [[1], [1, 2], [1, 2, 3]]


class Keeper(KeyedProcessFunction[Any, Any, Any]):
    """Emits what its state holds: the object itself, and the elements of a list."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("last"))
        self.all: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("all"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.last.update([*(self.last.value() or ()), value])
        self.all.add([value])
        yield "k", self.last.value()
        yield from (("k", element) for element in self.all.get())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_chained_consumer_that_changes_what_state_holds_changes_no_state(backend: str) -> None:
    with OperatorHarness(
        lambda s: s.key_by(lambda v: "k").process(Keeper()).map(GreedyPair()),
        configuration={"state.backend.type": backend},
    ) as harness:
        harness.push(1, 2)
        assert [value for _, value in harness.output] == [[1, -1], [1, -1], [1, 2, -1], [1, -1], [2, -1]]


class GreedyPair(MapFunction[Any, Any]):
    """A consumer of the reduced value that changes it: the state must not see that."""

    def map(self, value: Any) -> Any:
        value[1].append(-1)
        return value


def test_sum_does_not_change_the_records_it_was_given() -> None:
    rows = [["k", 1], ["k", 2]]
    with OperatorHarness(lambda s: s.key_by(lambda v: v[0]).sum(1).map(GreedyList())) as harness:
        harness.push(*rows)
        assert harness.output == [["k", 100], ["k", 100]]
        harness.push(["k", 4])
        assert harness.output[2] == ["k", 100]
        harness.tasks[0].chain.operators[0]
    with OperatorHarness(lambda s: s.key_by(lambda v: v[0]).sum(1)) as harness:
        harness.push(["k", 1], ["k", 2], ["k", 4])
        assert harness.output == [["k", 1], ["k", 3], ["k", 7]]


class GreedyList(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        value[1] = 100
        return value


def test_printed_text_is_made_when_the_value_is_emitted() -> None:
    def fragment(stream: Any) -> Any:
        source = stream.flat_map(Regrown(list))
        source.print()
        return source

    with OperatorHarness(fragment) as harness:
        harness.push("go")
        harness.end()
        assert harness.printed == [str(grown) for grown in GROWN]


def test_object_reuse_copies_nothing() -> None:
    """Then one object is everywhere, as the user has asked for."""
    assert contents(lambda s: s.flat_map(Regrown(list)), reuse="true") == [[[0, 1, 2, 99]] * 3]
    with OperatorHarness(
        lambda s: s.map(lambda v: v), configuration={"pipeline.object-reuse": "true"}
    ) as harness:
        harness.push([1])
        assert "freeze" not in harness.generated_code


def test_a_type_that_proves_immutability_needs_no_check() -> None:
    from yarrow.common.typeinfo import Types

    with OperatorHarness(lambda s: s.map(lambda v: v, Types.LONG())) as harness:
        harness.push(1)
        assert "freeze" not in harness.generated_code
    with OperatorHarness(lambda s: s.map(lambda v: v, Types.PICKLED_BYTE_ARRAY())) as harness:
        harness.push([1])
        assert "freeze" in harness.generated_code


@dataclass
class Numbered:
    number: int
    name: str


NEW: dict[str, Any] = {
    "list": lambda n: [n, "a"],
    "dict": lambda n: {0: n, "name": "a"},
    "object": lambda n: Numbered(n, "a"),
    "set": lambda n: {n},
}


def renumbered(value: Any) -> Any:
    """Changes the number in a record in place."""
    if isinstance(value, Numbered):
        value.number = -1
    elif isinstance(value, set):
        value.add(-1)
    else:
        value[0] = -1
    return value


@pytest.mark.parametrize("kind", NEW)
def test_a_new_object_of_atoms_is_not_that_of_an_exchange_and_of_a_chained_consumer(kind: str) -> None:
    def fragment(stream: Any) -> Any:
        made = stream.map(NEW[kind])
        return made.map(renumbered), made.rebalance().map(lambda value: value)

    with OperatorHarness(fragment) as harness:
        harness.push(*range(6))
        assert harness.outputs(0) == [renumbered(NEW[kind](n)) for n in range(6)]
        assert harness.outputs(1) == [NEW[kind](n) for n in range(6)]
