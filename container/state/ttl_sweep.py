"""TtlSweep: removes expired content of a heap table step by step, so that unread content is removed too.

Owner: the task thread, between chunks. Each step checks a bounded number of keys; it must not keep content
alive or delay a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import HeapWindowTables
from yarrow.runtime.snapshot.handles import StateKind


class TtlSweep:
    """Walks round all keys of a table, shard by shard."""

    def __init__(self, table: HeapTable, kind: StateKind, ttl: TimeToLive) -> None:
        self._table = table
        self._kind = kind
        self._ttl = ttl
        self._shard = 0
        #: Unchecked keys of the present shard.
        self._keys: list[object] = []

    def advance(self) -> None:
        """Checks as many keys as are due.

        During a snapshot it removes nothing, because removing would copy content.
        """
        budget = self._ttl.take_sweep_budget()
        table = self._table
        if not budget or table.is_held:
            return
        deadline = self._ttl.deadline()
        for _ in range(table.shard_count + 1):
            if not self._keys:
                self._shard = (self._shard + 1) % table.shard_count
                self._keys = table.keys_of_shard(self._shard)
            # From the end, so that the rest is not copied.
            looked_at = self._keys[-budget:]
            del self._keys[-budget:]
            for key in looked_at:
                key, shard, stored = table.peek(key)
                if stored is not MISSING:
                    left = TimeToLive.living(self._kind, stored, deadline)
                    if left is MISSING:
                        table.remove(key)
                    elif left is not stored:
                        shard[key] = left
            budget -= len(looked_at)
            if budget <= 0:
                return


class WindowTtlSweep:
    """Walks round all keys of a state by window, window by window. A window without keys stays listed."""

    def __init__(self, tables: HeapWindowTables[Any], ttl: TimeToLive) -> None:
        self._tables = tables
        self._ttl = ttl
        self._round = self._pieces()
        #: A window, and its keys that are to be checked.
        self._window: Any = None
        self._keys: list[object] = []

    def advance(self) -> None:
        """Checks as many keys as are due, at most once round; none while a snapshot holds windows."""
        budget, tables = self._ttl.take_sweep_budget(), self._tables
        if not budget or tables.is_held:
            return
        deadline = self._ttl.deadline()
        while budget > 0:
            if not self._keys:
                piece = next(self._round, None)
                if piece is None:
                    self._round = self._pieces()
                    return
                self._window, self._keys = piece
            looked_at = self._keys[-budget:]
            del self._keys[-budget:]
            budget -= len(looked_at)
            table = tables.untouched(self._window)
            if table is not None:
                self._remove_expired(table, looked_at, deadline)

    def _pieces(self) -> Iterator[tuple[Any, list[object]]]:
        """The windows of now, each with the keys of one shard after the other."""
        for window in self._tables.windows():
            shard = 0
            while (table := self._tables.untouched(window)) is not None and shard < table.shard_count:
                yield window, table.keys_of_shard(shard)
                shard += 1

    def _remove_expired(self, table: HeapTable, keys: list[object], deadline: int) -> None:
        for key in keys:
            stored = table.peek(key)[2]
            if stored is not MISSING and stored[0] <= deadline:
                self._tables.table(self._window).remove(key)
