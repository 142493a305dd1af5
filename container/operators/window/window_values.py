"""WindowValues: one value a key and window over tables by window, which are dropped when they are empty.

Owner: the task thread. It works key by key, since a trigger decides for a key and window alone. A window without rows
stays listed until `drop_empty`. Must not know what windows mean.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import WindowTables
from yarrow.runtime.data.keys import canonicalize

W = TypeVar("W")


class WindowValues(Generic[W]):
    """The values of one state by window and raw key."""

    def __init__(self, tables: WindowTables[W]) -> None:
        self.tables = tables
        #: Windows that may have no row.
        self._perhaps_empty: dict[W, None] = {}

    def find(self, window: W, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """(canonical key, dict to write to, value or MISSING); see ValueTable. A changed value must be written."""
        found = self.tables.table(window).find(canonicalize(key))
        if found[2] is MISSING:
            self.note_missing(window)
        return found

    def note_missing(self, window: W) -> None:
        """Notes a window whose table has been asked for a key that it has not."""
        self._perhaps_empty[window] = None

    def get(self, window: W, key: Any) -> Any:
        """The value, or MISSING. It must not be changed."""
        return self.find(window, key)[2]

    def put(self, window: W, key: Any, value: Any) -> None:
        """Sets a value, which nobody changes any more."""
        key, entries, _ = self.find(window, key)
        entries[key] = value

    def remove(self, window: W, key: Any) -> None:
        """Removes a value; no effect if there is none."""
        self.tables.table(window).remove(key)
        self._perhaps_empty[window] = None

    def take(self, window: W, key: Any) -> Any:
        """Removes a value and returns it, or MISSING."""
        self._perhaps_empty[window] = None
        return self.tables.table(window).take(key)

    def drop(self, window: W) -> None:
        """Removes a window with all its values."""
        self._perhaps_empty.pop(window, None)
        self.tables.drop(window)

    @property
    def perhaps_empty(self) -> int:
        """Number of windows that `drop_empty` looks at."""
        return len(self._perhaps_empty)

    def drop_empty(self) -> None:
        """Drops the windows that have lost their last row."""
        noted, self._perhaps_empty = self._perhaps_empty, {}
        for window in noted:
            if not any(self.tables.table(window).live) and not self._has_rows(window):
                self.tables.drop(window)

    def _has_rows(self, window: W) -> bool:
        return any(keys for keys, _ in self.tables.rows(window))
