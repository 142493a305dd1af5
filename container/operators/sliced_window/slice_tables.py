"""SliceTables: the tables of the slices that windows are made of: which there are, and when one is not needed any more.

Owner: the task thread. A row is added to one slice, whatever the size of its windows is. Must not know watermarks, nor
what a value means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Any

from yarrow.container.operators.time_slices import TimeSlices
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.window import TimeWindow


class SliceTables:
    """The slices of one operator by their start."""

    def __init__(self, layout: TimeSlices, values: WindowValues[TimeWindow]) -> None:
        self.layout = layout
        self._values, self.tables = values, values.tables
        #: The end of the last window that reads a slice, by its start; and (end, start) as a heap.
        self._last_ends: dict[int, int] = {}
        self._leaving: list[tuple[int, int]] = []
        #: Tables that this piece of work has asked for.
        self._at_hand: dict[int, ValueTable] = {}
        #: For this piece of work, by the start of a slice: gives the value of a canonical key, or None. Empty at first.
        self.getters: dict[int, Callable[[Any], Any]] = {}
        for window in self.tables.windows():
            self.open(window.start)

    def __contains__(self, start: int) -> bool:
        return start in self._last_ends

    def __iter__(self) -> Iterator[int]:
        return iter(self._last_ends)

    def slice(self, start: int) -> TimeWindow:
        """The slice that starts there, as the window that names its table."""
        return TimeWindow(start, start + self.layout.step)

    def open(self, start: int) -> bool:
        """Notes a slice that gets a row; False = it was there. A window has to contain it."""
        if start in self._last_ends:
            return False
        ends = self.layout.ends_of(start)
        # Cumulative windows have no leaving slice: what has fired once is merged.
        last = ends[0] if self.layout.cumulative else ends[-1]
        self._last_ends[start] = last
        self.getters.pop(start, None)
        heappush(self._leaving, (last, start))
        return True

    def begin_work(self) -> None:
        """Forgets the tables at hand: a cut or a chunk may have put them aside."""
        self._at_hand.clear()
        self.getters.clear()

    def table(self, start: int) -> ValueTable | None:
        """The table of a slice, for this piece of work; None = it has no rows."""
        table = self._at_hand.get(start)
        if table is None and start in self._last_ends:
            table = self._at_hand[start] = self.tables.table(self.slice(start))
        return table

    def get(self, start: int, key: Any) -> Any:
        """The value of a canonical key in a slice, or MISSING. It must not be changed."""
        table = self._at_hand.get(start)
        if table is None:
            table = self.table(start)
            if table is None:
                return MISSING
        return table.find(key)[2]

    def getter(self, start: int) -> Callable[[Any], Any]:
        """Gives the value of a canonical key in a slice, for this piece of work; None = it has none."""
        table = self.table(start)
        if table is None:
            get: Callable[[Any], Any] = _no_value
        else:
            get = partial(self._get, start) if table.whole is None else table.whole.get
        self.getters[start] = get
        return get

    def _get(self, start: int, key: Any) -> Any:
        value = self.get(start, key)
        return None if value is MISSING else value

    def put(self, start: int, key: Any, value: Any) -> None:
        """Sets the value of a canonical key in a slice; None = it has none any more."""
        self.open(start)
        table = self.table(start)
        assert table is not None
        if value is None:
            table.remove(key)
        else:
            key, entries, _ = table.find(key)
            entries[key] = value

    def drop_until(self, end: int) -> None:
        """Removes the slices that no window behind this end reads."""
        while self._leaving and self._leaving[0][0] <= end:
            _, start = heappop(self._leaving)
            del self._last_ends[start]
            self._at_hand.pop(start, None)
            self.getters.pop(start, None)
            self._values.drop(self.slice(start))


def _no_value(key: Any) -> None:
    return None
