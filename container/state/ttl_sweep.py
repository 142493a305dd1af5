"""TtlSweep: removes expired content of a heap table step by step, so that unread content is removed too.

Owner: the task thread, between chunks. Each step checks a bounded number of keys; it must not keep content
alive or delay a chunk.
"""

from __future__ import annotations

from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
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
