"""HeldValues: the partial values of one subtask, by slice of windows and by key, until they are given away.

Owner: the task thread, which lets generated code write to the dicts. They are no state: all leave before a cut. Must
not know watermarks, or how a row becomes a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from yarrow.container.state.value_table import MISSING
from yarrow.runtime.data.keys import canonicalize, user_key

#: Finds a raw key in a slice: (canonical key, dict of the slice, value or MISSING); see ValueTable.
Miss = Callable[[Any], tuple[Any, dict[Any, Any], Any]]


class HeldValues:
    """Partial values in the memory of a task."""

    def __init__(self) -> None:
        #: The dict of each slice by its start, and what finds keys that the dict lacks. It stays the same object, since
        #: generated code has it.
        self.slices: dict[int, tuple[dict[Any, Any], Miss]] = {}
        #: (time at which a slice leaves, start): a heap.
        self._leaving: list[tuple[int, int]] = []
        #: Number of partial values.
        self.count = 0

    def open(self, start: int, leaves_at: int) -> tuple[dict[Any, Any], Miss]:
        """A slice without values, which leaves when event time has come to `leaves_at`."""
        entries: dict[Any, Any] = {}

        def miss(key: Any) -> tuple[Any, dict[Any, Any], Any]:
            key = canonicalize(key)
            value = entries.get(key, MISSING)
            if value is MISSING:
                self.count += 1
            return key, entries, value

        made = self.slices[start] = entries, miss
        heappush(self._leaving, (leaves_at, start))
        return made

    def remove(self, start: int, key: Any) -> None:
        """Removes the value of a raw key; there need be none."""
        self.slices[start][0].pop(canonicalize(key), None)
        self.count -= 1

    def take(self, time: int) -> Iterator[tuple[int, list[tuple[Any, Any, None]]]]:
        """Takes the slices that leave at a time or before: their starts, and triples of key, value and None."""
        while self._leaving and self._leaving[0][0] <= time:
            _, start = heappop(self._leaving)
            entries, _ = self.slices.pop(start)
            self.count -= len(entries)
            if entries:
                yield start, [(user_key(key), value, None) for key, value in entries.items()]
