"""SingleKeyStateBackend: the keyed state of an operator over bounded input, which lasts until its keys end.

Owner: the task thread. It is the heap backend without snapshots and without time to live, since no state grows
old within a key. Must not know when keys end.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Generic, TypeVar

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.heap_states import HeapValueState
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.state_registration import StateRegistration
from yarrow.datastream.state import ValueState

T = TypeVar("T")

#: `state.backend.type` of tasks over bounded input.
SINGLE_KEY_BACKEND = f"{__name__}:SingleKeyStateBackend"


class _SingleKeyValueState(HeapValueState[T], Generic[T]):
    """The handle of a value state: a record's reads and writes are one look into the only dict each."""

    def value(self) -> T | None:
        try:
            found: T | None = self._table.live[0][self._backend.current_key]
        except (KeyError, TypeError):
            return super().value()
        return found

    def update(self, value: T) -> None:
        key, entries = self._backend.current_key, self._table.live[0]
        # Integers and texts are canonical; of other keys the table knows the form once they are there.
        if value is not None and (type(key) is int or type(key) is str):
            entries[key] = value if self._fix is None else self._fix(value)
        else:
            super().update(value)


class SingleKeyStateBackend(HeapKeyedStateBackend):
    """Keyed state that is emptied behind each key, or behind keys that ended together."""

    keeps_access_times = False

    def register(self, state: StateRegistration) -> StateRegistration:
        return super().register(dataclasses.replace(state, ttl=None))

    def open_value(self, state: StateRegistration) -> ValueState[Any]:
        return _SingleKeyValueState(self, self._table(state), state.name, self._fix(state))

    def _empty_table(
        self, value_type: TypeInformation | None, is_value: bool, flat_limit: int | None = None
    ) -> HeapTable:
        # A table is divided for the sake of snapshots.
        return super()._empty_table(value_type, is_value, sys.maxsize)

    def empty(self) -> None:
        """Forgets the content of all states; handles stay good."""
        for table in self._tables.values():
            entries = table.live[0]
            if entries:
                entries.clear()
        for windows in self._windows.values():
            for window in windows.windows():
                windows.drop(window)
