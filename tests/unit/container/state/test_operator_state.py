"""Operator state: handles, snapshot and restore in one subtask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.snapshot.errors import StateMigrationError
from yarrow.runtime.snapshot.handles import OperatorStateHandle

NUMBERS: ListStateDescriptor[int] = ListStateDescriptor("numbers", Types.LONG())
ANYTHING: ListStateDescriptor[Any] = ListStateDescriptor("anything")
RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
LISTS: MapStateDescriptor[str, list[int]] = MapStateDescriptor(
    "lists", Types.STRING(), Types.LIST(Types.LONG())
)


def written(backend: OperatorStateBackend) -> tuple[OperatorStateHandle, ...]:
    return backend.snapshot(1).write(MemoryOutput())


def restored(*handles: OperatorStateHandle) -> OperatorStateBackend:
    return OperatorStateBackend("op", handles, read_inline)


def test_all_kinds_come_back() -> None:
    backend = OperatorStateBackend("op")
    backend.list_state(NUMBERS).add_all([1, 2, 3])
    backend.union_list_state(ANYTHING).add({"a": (1, "x")})
    backend.broadcast_state(RULES).put_all({"r1": 1, "r2": 2})
    again = restored(*written(backend))
    assert list(again.list_state(NUMBERS).get()) == [1, 2, 3]
    assert list(again.union_list_state(ANYTHING).get()) == [{"a": (1, "x")}]
    assert dict(again.broadcast_state(RULES).items()) == {"r1": 1, "r2": 2}


def test_lists_of_several_handles_are_joined_and_broadcast_is_taken_once() -> None:
    backends = [OperatorStateBackend("op") for _ in range(2)]
    for number, backend in enumerate(backends):
        backend.list_state(NUMBERS).add(number)
        backend.broadcast_state(RULES).put("r", 7)
    again = restored(*written(backends[0]), *written(backends[1]))
    assert list(again.list_state(NUMBERS).get()) == [0, 1]
    assert dict(again.broadcast_state(RULES).items()) == {"r": 7}


def test_what_happens_after_the_cut_is_not_in_the_snapshot() -> None:
    backend = OperatorStateBackend("op")
    numbers, rules = backend.list_state(NUMBERS), backend.broadcast_state(RULES)
    numbers.add(1)
    rules.put("r", 1)
    pending = backend.snapshot(1)
    numbers.add(2)
    rules.put("r", 2)
    again = restored(*pending.write(MemoryOutput()))
    assert list(again.list_state(NUMBERS).get()) == [1]
    assert dict(again.broadcast_state(RULES).items()) == {"r": 1}


@pytest.mark.parametrize("got", ["before the cut", "after the cut", "before and after the cut"])
def test_what_the_program_got_and_writes_back_changed_is_in_the_snapshot_as_it_was(got: str) -> None:
    backend = OperatorStateBackend("op")
    elements = backend.list_state(ANYTHING)
    united = backend.union_list_state(ListStateDescriptor("united"))
    lists = backend.broadcast_state(LISTS)
    for each in (elements, united):
        each.add([1])
    lists.put("r", [1])
    held: list[Any] = []
    if got != "after the cut":
        held = [next(iter(elements)), next(iter(united)), lists.get("r")]
    pending = backend.snapshot(1)
    if got != "before the cut":
        held = [next(iter(elements)), next(iter(united)), lists.get("r")]
    for value in held:
        value.append(2)
    elements.update([held[0]])
    united.update([held[1]])
    lists.put("r", held[2])
    again = restored(*pending.write(MemoryOutput()))
    for later, expected in ((again, [1]), (backend, [1, 2])):
        assert list(later.list_state(ANYTHING).get()) == [expected]
        assert list(later.union_list_state(ListStateDescriptor("united")).get()) == [expected]
        assert later.broadcast_state(LISTS).get("r") == expected


@pytest.mark.parametrize("declared", [True, False])
def test_a_row_may_be_the_key_of_a_broadcast_state(declared: bool) -> None:
    key_type = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]) if declared else None
    by_row: MapStateDescriptor[Row, int] = MapStateDescriptor("by row", key_type, Types.LONG())
    backend = OperatorStateBackend("op")
    state = backend.broadcast_state(by_row)
    state.put_all({(1, 2): 1} if not declared else {})
    state.put(Row(a=1, b="x"), 7)
    state.put(Row(a=2, b="y"), 8)
    state.remove(Row(a=2, b="y"))
    again = restored(*written(backend))
    for each in (state, again.broadcast_state(by_row)):
        assert each.get(Row(a=1, b="x")) == 7 and Row(a=1, b="x") in each and Row(a=2, b="y") not in each
        assert [key for key in each if isinstance(key, Row)] == [Row(a=1, b="x")]
        assert (Row(a=1, b="x"), 7) in list(each.items())
    third = restored(*written(again))
    assert third.broadcast_state(by_row).get(Row(a=1, b="x")) == 7


def test_elements_that_compare_by_elements_are_elements() -> None:
    backend = OperatorStateBackend("op")
    backend.list_state(ANYTHING).add_all([np.array([1, 2]), np.array([3])])
    (first, second) = restored(*written(backend)).list_state(ANYTHING).get()
    assert first.tolist() == [1, 2] and second.tolist() == [3]


def test_values_are_fixed_when_they_are_added() -> None:
    backend = OperatorStateBackend("op")
    value = [1]
    backend.list_state(ANYTHING).add(value)
    value.append(2)
    assert list(backend.list_state(ANYTHING).get()) == [[1]]


def test_a_state_that_nobody_asks_for_is_carried_on() -> None:
    backend = OperatorStateBackend("op")
    backend.list_state(NUMBERS).add_all([1, 2])
    backend.broadcast_state(RULES).put("r", 1)
    second = restored(*written(backend))
    second.list_state(NUMBERS).add(3)
    third = restored(*written(second))
    assert list(third.list_state(NUMBERS).get()) == [1, 2, 3]
    assert dict(third.broadcast_state(RULES).items()) == {"r": 1}


def test_widened_elements() -> None:
    backend = OperatorStateBackend("op")
    backend.list_state(NUMBERS).add(1)
    again = restored(*written(backend))
    found = list(again.list_state(ListStateDescriptor("numbers", Types.DOUBLE())).get())
    assert found == [1.0]
    assert type(found[0]) is float


def test_another_kind_or_type_is_refused_by_name() -> None:
    backend = OperatorStateBackend("op")
    backend.list_state(NUMBERS).add(1)
    handles = written(backend)
    with pytest.raises(InvalidProgramError, match="'numbers' is a split state"):
        backend.union_list_state(NUMBERS)
    with pytest.raises(InvalidProgramError, match="'numbers' was declared with Long"):
        backend.list_state(ListStateDescriptor("numbers", Types.STRING()))
    with pytest.raises(
        StateMigrationError, match=r"operator 'op', state 'numbers'.*split state.*union state"
    ):
        restored(*handles).union_list_state(NUMBERS)
    with pytest.raises(StateMigrationError, match="holds Long, the program declares String"):
        restored(*handles).list_state(ListStateDescriptor("numbers", Types.STRING()))


def test_none_is_no_element_and_readers_of_broadcast_state_cannot_clear_it() -> None:
    backend = OperatorStateBackend("op")
    with pytest.raises(ValueError, match="None cannot be an element"):
        backend.list_state(NUMBERS).add_all([1, None])
    backend.broadcast_state(RULES).put("r", 1)
    view = backend.read_only_broadcast_state(RULES)
    assert view.get("r") == 1 and list(view) == ["r"] and "r" in view
    with pytest.raises(InvalidProgramError, match="process_broadcast_element"):
        view.clear()


def test_nothing_registered_is_no_handle() -> None:
    assert OperatorStateBackend("op").snapshot(1).write(MemoryOutput()) == ()
