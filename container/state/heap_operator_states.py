"""HeapOperatorStates: handles of operator state on the heap, lists and broadcast maps, and their frozen form.

Owner: the task thread; the snapshot thread reads a FrozenOperatorState. Values are copied when they are
added. Values that the program got are copied once more at a cut: it may change them and write them back
during the snapshot. Those that it gets first behind the cut are copied then. They must not know other states,
snapshots or the receivers of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.state import BroadcastState, ListState, ReadOnlyBroadcastState
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.map_keys import map_key, map_keys, shown_as, shown_map_keys
from yarrow.runtime.snapshot.handles import OperatorStateMode
from yarrow.runtime.snapshot.value_serializers import ValueSerializer, declared_type


class FrozenOperatorState(NamedTuple):
    """The content of a state at the cut; `elements` encodes it."""

    name: str
    mode: OperatorStateMode
    value: ValueSerializer
    map_key: ValueSerializer | None
    elements: Callable[[], Iterable[bytes]]


class HeapOperatorListState(ListState[Any]):
    """A list state of one subtask."""

    def __init__(
        self,
        name: str,
        mode: OperatorStateMode,
        declared: TypeInformation | None,
        serializer: ValueSerializer,
        values: list[Any],
    ) -> None:
        self.mode = mode
        self._name = name
        self._declared = declared
        self._serializer = serializer
        self._fix = copier_for(declared)
        self._values = values
        #: The program may hold elements of it.
        self._handed_out = False
        #: A snapshot may hold elements of it that could change.
        self._is_held = False

    def check(self, operator: str, declared: TypeInformation | None) -> None:
        """Raises InvalidProgramError if the state was declared with another type before."""
        if declared != self._declared:
            raise _declared_twice(operator, self._name, self._declared, declared)

    def get(self) -> Iterable[Any]:
        if self._is_held and self._fix is not None:
            # The program may change what it gets now: the snapshot keeps the elements of its cut.
            self._values = list(map(self._fix, self._values))
        self._is_held = False
        self._handed_out = True
        return list(self._values)

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        self._values += self._fixed(values)

    def update(self, values: list[Any]) -> None:
        # A new list: a running snapshot keeps the old one.
        self._values = self._fixed(values)
        self._handed_out = self._is_held = False

    def clear(self) -> None:
        self._values = []
        self._handed_out = self._is_held = False

    def _fixed(self, values: Iterable[Any]) -> list[Any]:
        found = list(values)
        if any(value is None for value in found):
            raise ValueError(f"operator state '{self._name}': None cannot be an element of a list state")
        return found if self._fix is None else [self._fix(value) for value in found]

    def freeze(self) -> FrozenOperatorState:
        """The present content, frozen."""
        fix, dump = self._fix, self._serializer.dump_value
        if fix is None or not self._handed_out:
            values, self._is_held = self._values.copy(), True
        else:
            values = list(map(fix, self._values))
        return FrozenOperatorState(self._name, self.mode, self._serializer, None, lambda: map(dump, values))


class HeapBroadcastState(BroadcastState[Any, Any]):
    """A broadcast state of one subtask; it is equal in all subtasks."""

    mode = OperatorStateMode.BROADCAST

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        value_type: TypeInformation | None,
        keys: ValueSerializer,
        values: ValueSerializer,
        entries: dict[Any, Any],
    ) -> None:
        """`entries` is a result of `load_entries`."""
        self._name = name
        self._types = (key_type, value_type)
        self._key_serializer = keys
        self._value_serializer = values
        self._fix_key = copier_for(key_type)
        self._fix_value = copier_for(value_type)
        self._shown = shown_as(key_type)
        self._entries = entries

    def check(
        self, operator: str, key_type: TypeInformation | None, value_type: TypeInformation | None
    ) -> None:
        """Raises InvalidProgramError if the state was declared with other types before."""
        for was, now in zip(self._types, (key_type, value_type), strict=True):
            if was != now:
                raise _declared_twice(operator, self._name, was, now)

    def get(self, key: Any) -> Any:
        return self._entries.get(map_key(key))

    def contains(self, key: Any) -> bool:
        return map_key(key) in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return ((self._shown(key), value) for key, value in self._entries.items())

    def keys(self) -> Iterable[Any]:
        return map(self._shown, self._entries)

    def values(self) -> Iterable[Any]:
        return self._entries.values()

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        if self._fix_key is not None:
            key = self._fix_key(key)
        self._entries[map_key(key)] = value if self._fix_value is None else self._fix_value(value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entries.pop(map_key(key), None)

    def clear(self) -> None:
        self._entries = {}

    def freeze(self) -> FrozenOperatorState:
        """The present content, frozen."""
        fix, keys, values = self._fix_value, self._key_serializer, self._value_serializer
        entries = (
            self._entries.copy() if fix is None else {key: fix(value) for key, value in self._entries.items()}
        )
        return FrozenOperatorState(
            self._name, self.mode, values, keys, lambda: (dump_entries(entries, keys, values),)
        )


@dataclass(frozen=True, slots=True)
class ReadOnlyBroadcastView(ReadOnlyBroadcastState[Any, Any]):
    """The reading half of a broadcast state."""

    _state: HeapBroadcastState

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def clear(self) -> None:
        raise InvalidProgramError(
            "broadcast state can be changed in process_broadcast_element only: changed elsewhere, it would"
            " differ between subtasks"
        )


def dump_entries(entries: Mapping[Any, Any], keys: ValueSerializer, values: ValueSerializer) -> bytes:
    """Encodes a map as one element: 4 bytes with the length of the keys' bytes, keys, values."""
    data = keys.dump_values(shown_map_keys(list(entries), declared_type(keys.config())))
    return len(data).to_bytes(4, "big") + data + values.dump_values(list(entries.values()))


def load_entries(element: bytes, keys: ValueSerializer, values: ValueSerializer) -> dict[Any, Any]:
    """The map of `dump_entries`; Rows among the keys are in their hashable form."""
    end = 4 + int.from_bytes(element[:4], "big")
    found = map_keys(keys.load_values(element[4:end]))
    return dict(zip(found, values.load_values(element[end:]), strict=True))


def _declared_twice(operator: str, name: str, was: object, now: object) -> InvalidProgramError:
    return InvalidProgramError(
        f"operator '{operator}': operator state '{name}' was declared with {was} and then with {now}; use one "
        "descriptor, or another name"
    )
