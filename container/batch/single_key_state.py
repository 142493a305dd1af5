"""SingleKeyStateBackend: the keyed state of an operator over bounded input, which lasts until its keys end.

Owner: the task thread. It is the heap backend without snapshots and without time to live, since no state grows
old within a key. Must not know when keys end.
"""

from __future__ import annotations

import dataclasses
import sys

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.state_registration import StateRegistration

#: `state.backend.type` of tasks over bounded input.
SINGLE_KEY_BACKEND = f"{__name__}:SingleKeyStateBackend"


class SingleKeyStateBackend(HeapKeyedStateBackend):
    """Keyed state that is emptied behind each key, or behind keys that ended together."""

    def register(self, state: StateRegistration) -> StateRegistration:
        return super().register(dataclasses.replace(state, ttl=None))

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
