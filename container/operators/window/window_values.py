"""WindowValues: one value a key and window over tables by window, which are dropped when they are empty.

Owner: the task thread. It works key by key, since a trigger decides for a key and window alone. A window without rows
stays listed until `drop_empty`. A cell is the value of the key and window at hand, with or without time to live. Must
not know what windows mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import WindowTables
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.keys import canonicalize

W = TypeVar("W")

#: Makes one value of those of two windows.
Merged = Callable[[Any, Any], Any]

_ACCESSED: Final = itemgetter(0)


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


class WindowPlace(Protocol):
    """Names the window whose state is read and written."""

    @property
    def window(self) -> Any:
        """The window of the present call."""


class WindowCell:
    """One stored value a key and window: that of the current key and of the place's window."""

    def __init__(
        self,
        values: WindowValues[Any],
        backend: KeyedStateBackend,
        place: WindowPlace,
        merged: Merged | None,
    ) -> None:
        """`merged` makes one value of those of two windows; None = the state cannot merge."""
        self.values = values
        self._backend = backend
        self._place = place
        self._merged = merged

    def get(self) -> Any:
        """The value that a program sees, or MISSING."""
        return self.values.get(self._place.window, self._backend.current_key)

    def living(self) -> Any:
        """The value that others may be added to, or MISSING."""
        return self.get()

    def put(self, value: Any) -> None:
        """Stores a value; None removes it."""
        if value is None:
            self.clear()
        else:
            self.values.put(self._place.window, self._backend.current_key, value)

    def clear(self) -> None:
        """Removes the value."""
        self.values.remove(self._place.window, self._backend.current_key)

    def merge_from(self, windows: Iterable[Any], name: str) -> None:
        """Moves the values of merged windows into that of the place's window.

        Raises InvalidProgramError for a kind of state that cannot merge.
        """
        if self._merged is None:
            raise InvalidProgramError(
                f"merge_partitioned_state: the state '{name}' of two windows cannot become one; use a reducing,"
                " aggregating or list state"
            )
        for window in windows:
            taken = self.values.take(window, self._backend.current_key)
            if taken is not MISSING:
                own = WindowCell.get(self)
                WindowCell.put(
                    self, taken if own is MISSING else self._merged_stored(self._merged, own, taken)
                )

    def _merged_stored(self, merged: Merged, own: Any, taken: Any) -> Any:
        """The stored value that replaces two stored values."""
        return merged(own, taken)


class ExpiringCell(WindowCell):
    """A value that is stored with the time of its last access, and expires as a whole."""

    def __init__(
        self,
        values: WindowValues[Any],
        backend: KeyedStateBackend,
        place: WindowPlace,
        merged: Merged | None,
        ttl: TimeToLive,
    ) -> None:
        super().__init__(values, backend, place, merged)
        self._ttl = ttl

    def get(self) -> Any:
        return self._unexpired(shows_expired=self._ttl.shows_expired)

    def living(self) -> Any:
        return self._unexpired(shows_expired=False)

    def _unexpired(self, *, shows_expired: bool) -> Any:
        ttl, pair = self._ttl, super().get()
        ttl.accesses += 1
        if pair is MISSING:
            return MISSING
        (accessed, value), now = pair, ttl.now()
        if accessed + ttl.lifetime_ms <= now:
            self.clear()
            return value if shows_expired else MISSING
        if ttl.renewed_by_reads and accessed != now:
            super().put((now, value))
        return value

    def put(self, value: Any) -> None:
        self._ttl.accesses += 1
        super().put(None if value is None else (self._ttl.now(), value))

    def _merged_stored(self, merged: Merged, own: Any, taken: Any) -> Any:
        deadline = self._ttl.deadline()
        if own[0] <= deadline or taken[0] <= deadline:
            # At most one is left: the later one.
            return max(own, taken, key=_ACCESSED)
        value = merged(own[1], taken[1])
        return None if value is None else (self._ttl.now(), value)


class Elements(NamedTuple):
    """How the elements of a list, or the entries of a map, bear the times of their last access."""

    #: The latest of these times.
    latest: Callable[[Any], int]
    #: The same content, each element as a pair (time in epoch ms, element).
    stamped: Callable[[Any, int], Any]
    #: The content of such pairs.
    bare: Callable[[Any], Any]


ELEMENTS: Final = Elements(
    lambda pairs: max(map(_ACCESSED, pairs)),
    lambda content, now: [(now, value) for value in content],
    lambda pairs: [value for _, value in pairs],
)
ENTRIES: Final = Elements(
    lambda pairs: max(map(_ACCESSED, pairs.values())),
    lambda content, now: {key: (now, value) for key, value in content.items()},
    lambda pairs: {key: value for key, (_, value) in pairs.items()},
)


class StampedCell(WindowCell):
    """A list or map of (time of last access, element): stored with the latest of these times.

    Whoever reads it removes expired elements. Unread content that has expired as a whole is removed by the backend.
    """

    def __init__(
        self,
        values: WindowValues[Any],
        backend: KeyedStateBackend,
        place: WindowPlace,
        merged: Merged | None,
        elements: Elements,
    ) -> None:
        super().__init__(values, backend, place, merged)
        self._elements = elements

    def get(self) -> Any:
        found = super().get()
        return found if found is MISSING else found[1]

    def put(self, value: Any) -> None:
        super().put(None if value is None else (self._elements.latest(value), value))

    def _merged_stored(self, merged: Merged, own: Any, taken: Any) -> Any:
        value = merged(own[1], taken[1])
        return self._elements.latest(value), value


def move_elements(former: WindowTables[Any], values: WindowValues[Any], elements: Elements) -> None:
    """Moves restored lists or maps to where they now are, because their time to live was added or removed.

    If it was added, now is the time of the last access. `former` holds no stamp of the whole.
    """
    ttl = values.tables.ttl
    now = 0 if ttl is None else ttl.now()
    for window in former.windows():
        for keys, contents in former.take(window):
            for key, content in zip(keys, contents, strict=True):
                moved = elements.bare(content) if ttl is None else (now, elements.stamped(content, now))
                values.put(window, key, moved)
        former.drop(window)
