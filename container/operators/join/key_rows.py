"""KeyRows: the rows of both sides of a join that wait in keyed state, and the timer of their key.

Owner: the task thread. The rows of a side are sorted by time; equal times stand as they came. A key has one value, so
that a backend on disk reads and writes once. Must not know watermarks, or which rows meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.join.as_of_rule import TimedRow
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.data.keys import canonicalize

#: Name of the state.
ROWS = "_join_rows"


class WaitingRows:
    """The rows of one key, taken from the state to be changed; `KeyRows.put` writes them back."""

    __slots__ = ("_entries", "armed", "key", "sides")

    def __init__(
        self,
        key: Any,
        entries: dict[Any, Any],
        armed: int | None,
        sides: tuple[list[TimedRow], list[TimedRow]],
    ) -> None:
        """`entries`: the dict of the table to which the value is written."""
        #: The canonical key.
        self.key = key
        self._entries = entries
        #: The time of the key's timer; None = it has none.
        self.armed = armed
        self.sides = sides

    def put(self) -> None:
        """Writes the rows back."""
        self._entries[self.key] = (self.armed, *self.sides)


class KeyRows:
    """The rows of all keys of a subtask."""

    def __init__(
        self, state: KeyedStateBackend, row_types: tuple[TypeInformation | None, TypeInformation | None]
    ) -> None:
        """`row_types`: those of left and right rows; None = not declared."""
        self._state = state
        stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        left, right = row_types
        if left is not None and right is not None:
            rows = [Types.LIST(Types.TUPLE([Types.LONG(), each])) for each in (left, right)]
            stored = Types.TUPLE([Types.LONG(), *rows])
        self.table: ValueTable = state.value_table(ROWS, stored)

    def of(self, key: Any) -> WaitingRows:
        """The rows of a raw key."""
        key, entries, found = self.table.find(canonicalize(key))
        if found is MISSING:
            return WaitingRows(key, entries, None, ([], []))
        armed, left, right = found
        return WaitingRows(key, entries, armed, (left, right))

    def remove(self, key: Any) -> None:
        """Removes all rows of a key."""
        self.table.remove(key)

    def all_keys(self) -> Iterable[Any]:
        """The canonical keys with rows, as they are now."""
        return self._state.state_keys(ROWS)
