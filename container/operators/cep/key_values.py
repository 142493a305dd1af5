"""KeyValues: one value a key that the operator changes in place, over the value table of a backend.

Owner: the task thread. Whoever changes a value puts it again, before the next key is asked for. Must not know
patterns.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import ValueTable
from yarrow.runtime.data.keys import canonicalize


class KeyValues:
    """The values of one state by raw key."""

    def __init__(self, state: KeyedStateBackend, name: str, value_type: TypeInformation) -> None:
        #: By canonical key.
        self.table: ValueTable = state.value_table(name, value_type)

    def find(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """(canonical key, dict to write to, value or MISSING); see ValueTable."""
        kind = type(key)
        if kind is not int and kind is not str:
            key = canonicalize(key)
        return self.table.find(key)

    def remove(self, key: Any) -> None:
        """Removes the value; no effect if there is none."""
        self.table.remove(key)
