"""The memory of all databases of a worker: one block cache, and a limit of write buffers that is charged to it.

Owner: any task thread of the worker, under a lock; made with the first database and dropped with the last. It
bounds RocksDB's memory, not that of write-back caches in Python.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rocksdict import Cache, WriteBufferManager

from yarrow.common.values.quantities import MemorySize
from yarrow.runtime.config.memory import managed_memory, task_executor_budget
from yarrow.runtime.config.options import rocksdb
from yarrow.runtime.config.settings import Settings


@dataclass(frozen=True, slots=True)
class DatabaseMemory:
    """The memory with which one database is opened."""

    cache: Cache
    #: None if the memory is not managed: each state then has its own write buffers.
    write_buffers: WriteBufferManager | None
    #: Most bytes of blocks and write buffers together; without write buffers if not managed.
    limit: int

    @property
    def used(self) -> int:
        """Bytes in blocks and, if managed, write buffers."""
        return self.cache.get_usage()


class WorkerMemory:
    """Shares one DatabaseMemory among the databases of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: DatabaseMemory | None = None
        self._users = 0

    @property
    def shared(self) -> DatabaseMemory | None:
        """The memory that open databases share; None while no database shares it."""
        return self._shared

    def acquire(self, settings: Settings) -> DatabaseMemory:
        """The memory of one more database; the settings of the first decide for all that are open."""
        if not (settings.get(rocksdb.MEMORY_MANAGED) or settings.is_set(rocksdb.MEMORY_PER_SLOT)):
            size = settings.get(rocksdb.BLOCK_CACHE_SIZE).bytes
            return DatabaseMemory(Cache(size), None, size)
        with self._lock:
            if self._shared is None:
                self._shared = _managed(settings)
            self._users += 1
            return self._shared

    def release(self, memory: DatabaseMemory) -> None:
        """Counts a closed database."""
        with self._lock:
            if memory is self._shared:
                self._users -= 1
                if not self._users:
                    self._shared = None


#: The memory of this process: workers are forked before it is used.
WORKER_MEMORY = WorkerMemory()


def slot_memory(settings: Settings) -> MemorySize:
    """RocksDB's memory in a slot."""
    return managed_memory(settings, task_executor_budget(settings).slot)


def _managed(settings: Settings) -> DatabaseMemory:
    total = slot_memory(settings).bytes
    cache = Cache(total)
    # Write buffers are charged to the cache as dummy entries: blocks and buffers together stay within its
    # capacity. A manager begins to flush at 7/8, and buffers may grow to 3/2 of its size before that takes
    # effect.
    buffers = int(total * settings.get(rocksdb.WRITE_BUFFER_RATIO) * 2 / 3)
    manager = WriteBufferManager.new_write_buffer_manager_with_cache(buffers, False, cache)
    return DatabaseMemory(cache, manager, total)
