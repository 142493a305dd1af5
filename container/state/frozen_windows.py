"""FrozenWindows: the windows of one state at a cut on the heap, where the cut takes no step for each window.

Owner: task thread and snapshot thread. A small window belongs to the snapshot until the task asks for its table. Then
it is cut, as large ones are at once. Whoever takes a window out of the dict of untouched ones has it: to both threads
that is one step. The snapshot thread copies a small window in one piece, and the task waits for that copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from yarrow.container.state.frozen_shard import FrozenShard
from yarrow.container.state.heap_table import HeapTable

W = TypeVar("W")

#: A window with its keys and values, as many of the one as of the other.
WindowContent = tuple[W, list[Any], list[Any]]

#: Seconds that a thread waits for a piece of the other.
_SECONDS: Final = 0.0002


class FrozenWindows(Generic[W]):
    """The windows of one state as they were at a cut."""

    def __init__(
        self,
        cut: int,
        untouched: dict[W, HeapTable],
        ended: Callable[[FrozenWindows[W]], None],
        beside: Iterator[WindowContent[W]],
    ) -> None:
        """`untouched`: the tables by window, a copy of the state's own dict. `ended` hears of `end`.

        `beside`: frozen rows without a table, which the snapshot thread reads.
        """
        self._cut = cut
        self._beside = beside
        self._untouched = untouched
        #: What the task thread has cut: the table of a window, and its shards.
        self._frozen: dict[W, tuple[HeapTable, list[tuple[int, FrozenShard]]]] = {}
        #: The table that the snapshot thread copies.
        self._copied: HeapTable | None = None
        #: The task thread is about to cut a table.
        self._is_touching = False
        self._ended = ended

    # ------------------------------------------------------------------ task thread

    def begin_touch(self) -> None:
        """A table is about to be taken and frozen; `end_touch` follows."""
        self._is_touching = True

    def take(self, window: W, table: HeapTable | None) -> HeapTable | None:
        """Takes a window from the snapshot thread, or waits until that has copied `table`.

        Returns the table, which `freeze` gets; None if no snapshot needs it any more.
        """
        found = self._untouched.pop(window, None)
        while found is None and table is not None and self._copied is table:
            time.sleep(_SECONDS)
        return found

    def freeze(self, window: W, table: HeapTable) -> None:
        """Cuts a table that was taken."""
        self._frozen[window] = table, table.cut(self._cut)

    def end_touch(self) -> None:
        """All that was taken is frozen."""
        self._is_touching = False

    def end(self) -> None:
        """No snapshot needs the windows any more; no effect when repeated."""
        self._ended(self)

    def windows_cut(self) -> list[tuple[W, HeapTable]]:
        """The windows that the task thread has cut, and their tables."""
        return [(window, table) for window, (table, _) in self._frozen.items()]

    # ------------------------------------------------------------------ snapshot thread

    def copies(self) -> Iterator[WindowContent[W]]:
        """Keys and values of each untouched window, which the task may change from then on, and rows without table."""
        for window in list(self._untouched):
            table = self._untouched.get(window)
            if table is None:
                continue
            # Before the table is taken: whoever finds it gone then knows whether to wait.
            self._copied = table
            try:
                if self._untouched.pop(window, None) is None:
                    continue
                (entries,) = table.live
                keys, values = list(entries), list(entries.values())
                if table.protect is not None:
                    values = list(map(table.protect, values))
            finally:
                self._copied = None
            if keys:
                yield window, keys, values
        yield from self._beside

    def shards(self) -> Iterator[tuple[W, HeapTable, int, FrozenShard]]:
        """The shards of the windows that the task thread has cut; after `copies`, when no window is untouched."""
        while self._is_touching:
            time.sleep(_SECONDS)
        for window, (table, shards) in self._frozen.items():
            for index, shard in shards:
                yield window, table, index, shard

    def abandon(self) -> Iterator[tuple[W, HeapTable, int, FrozenShard]]:
        """Cuts no more windows; the shards of those that were cut. Any thread."""
        self._untouched.clear()
        return self.shards()
