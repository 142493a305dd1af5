"""The debug backend names state and key of a value that was changed without being written back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.container.state.contexts import CHECKPOINT, context
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.container.state.backend_builder import keyed_state_backend
from yarrow.container.state.debug_backend import DebugBackend
from yarrow.container.state.errors import StateMutationError
from yarrow.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)


@pytest.fixture(params=["hashmap", "rocksdb"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[States]:
    settings = {
        "state.backend.type": request.param,
        "state.backend.debug": "true",
        "state.backend.rocksdb.memory.fixed-per-slot": "16 mb",
    }
    made = States(
        msgspec.structs.replace(
            context(settings=settings, operator_name="my operator"), local_directory=str(tmp_path)
        )
    )
    yield made
    made.backend.dispose()


class States:
    def __init__(self, made: KeyedBackendContext) -> None:
        self.backend: KeyedStateBackend = keyed_state_backend(made)
        assert isinstance(self.backend, DebugBackend)
        self.value = self.backend.value_state(ValueStateDescriptor("value"))
        self.list = self.backend.list_state(ListStateDescriptor("list"))
        self.map = self.backend.map_state(MapStateDescriptor("map"))
        self.reducing = self.backend.reducing_state(ReducingStateDescriptor("reducing", lambda a, b: a + b))
        self.backend.current_key = "k"
        self.value.update([1])
        self.list.add([1])
        self.map.put(1, [1])
        self.reducing.add([1])
        self.backend.current_key = "other"
        self.backend.current_key = "k"


def silently(states: States) -> None:
    states.value.value().append(2)  # type: ignore[union-attr]


def in_a_list(states: States) -> None:
    next(iter(states.list.get())).append(2)


def in_a_map(states: States) -> None:
    states.map.get(1).append(2)  # type: ignore[union-attr]


def while_iterating(states: States) -> None:
    for value in states.map.values():
        value.append(2)


def what_was_reduced(states: States) -> None:
    states.reducing.get().append(2)  # type: ignore[union-attr]


CHANGES = {
    "value": silently,
    "list": in_a_list,
    "map": in_a_map,
    "map', entry 1": while_iterating,
    "reducing": what_was_reduced,
}
ENDS: dict[str, Callable[[States], Any]] = {
    "next key": lambda states: setattr(states.backend, "current_key", "next"),
    "end of chunk": lambda states: states.backend.end_of_chunk(),
    "checkpoint": lambda states: states.backend.snapshot(1, CHECKPOINT).discard(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("place", CHANGES)
def test_a_change_without_a_write_is_found(states: States, place: str, end: str) -> None:
    CHANGES[place](states)
    with pytest.raises(StateMutationError, match=rf"'my operator', state '{place}.*key 'k'.*\[1, 2\]"):
        ENDS[end](states)


def test_what_is_written_back_or_only_read_is_no_error(states: States) -> None:
    value = states.value.value()
    value.append(2)  # type: ignore[union-attr]
    states.value.update(value)
    elements = list(states.list.get())
    elements[0].append(2)
    states.list.update(elements)
    entry = states.map[1]
    entry.append(2)  # type: ignore[union-attr]
    states.map[1] = entry
    states.reducing.get()
    for end in ENDS.values():
        end(states)
    states.backend.current_key = "k"
    assert states.value.value() == [1, 2]
    assert list(states.list.get()) == [[1, 2]]
    assert dict(states.map.items()) == {1: [1, 2]}
    assert states.map.contains(1) and not states.map.is_empty() and list(states.map) == [1]


def test_clear_forgets_what_was_got(states: States) -> None:
    for change in CHANGES.values():
        change(states)
    for handle in (states.value, states.list, states.map, states.reducing):
        handle.clear()
    states.backend.current_key = "next"
    states.backend.current_key = "k"
    assert states.value.value() is None
    assert [list(states.backend.state_keys(name)) for name in ("value", "list", "map", "reducing")] == [
        []
    ] * 4
