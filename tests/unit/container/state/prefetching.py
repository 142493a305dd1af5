"""A state backend that is told the keys of each chunk, as one on disk would be; named by jobs of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.data.keys import canonicalize

#: Keys of each call of `prefetch`, of all backends of the process.
prefetched: list[list[Any]] = []


class StoredTable(ValueTable):
    """Values lie in a store apart; only those of the chunk stand in `live`."""

    wants_keys = True

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[Any, Any] = {}

    def prefetch(self, keys: Sequence[Any]) -> None:
        prefetched.append(list(keys))
        for key in map(canonicalize, keys):
            if key in self.store:
                self.live[0][key] = self.store[key]

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        key = canonicalize(key)
        return key, self.live[0], self.live[0].get(key, self.store.get(key, MISSING))

    def remove(self, key: Any) -> None:
        self.live[0].pop(canonicalize(key), None)
        self.store.pop(canonicalize(key), None)

    def write_back(self) -> None:
        self.store.update(self.live[0])
        self.live[0] = {}


class PrefetchingBackend(HeapKeyedStateBackend):
    """Tables as above; handles are those of the heap."""

    wants_keys = True

    def __init__(self, context: KeyedBackendContext) -> None:
        super().__init__(context)
        self.stored: list[StoredTable] = []

    def value_table(self, name: str, value_type: TypeInformation | None) -> ValueTable:
        table = StoredTable()
        self.stored.append(table)
        return table

    def prefetch(self, keys: Sequence[Any]) -> None:
        prefetched.append(list(keys))

    def end_of_chunk(self) -> None:
        super().end_of_chunk()
        for table in self.stored:
            table.write_back()


class ReadingAheadBackend(PrefetchingBackend):
    """Is told the keys of several chunks at once."""

    @property
    def read_ahead_rows(self) -> int:
        return 64
