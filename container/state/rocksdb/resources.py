"""DatabaseResources: the open database of one backend, its folder and its share of the worker's memory.

Owner: the task thread; any thread may read it for metrics. Every acquired resource is released once, also if
opening fails. It must not know states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocksdict import Options

from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.rocksdb.database import HELPER, ColumnFamily, Database
from yarrow.container.state.rocksdb.folders import new_folder
from yarrow.container.state.rocksdb.memory import WORKER_MEMORY
from yarrow.container.state.rocksdb.options import database_settings, rocksdb_options
from yarrow.container.state.rocksdb.restore import NativeRestore, RestoredDatabase
from yarrow.runtime.config.options import rocksdb
from yarrow.runtime.snapshot.handles import RocksDBSnapshot


class DatabaseResources:
    """The open database of a backend, its folder and its share of the worker's memory."""

    def __init__(self, context: KeyedBackendContext, unique: str) -> None:
        self._context = context
        settings = context.settings
        directories = settings.get(rocksdb.LOCAL_DIR) or ()
        owner = f"{context.operator_id}-{context.subtask}"
        self.folder = new_folder(directories, context.local_directory, owner, unique)
        self.memory = WORKER_MEMORY.acquire(settings)
        self.options: Options = rocksdb_options(database_settings(settings), self.memory)
        self.database: Database
        self._is_open = False
        HELPER.acquire()

    def open(self, snapshots: Sequence[RocksDBSnapshot]) -> RestoredDatabase:
        """Opens the database with the content of native snapshots."""
        try:
            restored = NativeRestore(self._context, self.folder, self.options).open(snapshots)
        except BaseException:
            self._release()
            raise
        self.database = restored.database
        self._is_open = True
        return restored

    def register_metrics(self) -> None:
        """Registers RocksDB's own metrics; they are 0 once it is closed."""
        metrics, memory = self._context.metrics, self.memory

        def over_families(measure: Callable[[ColumnFamily], int]) -> int:
            return sum(map(measure, list(self.database.families.values()))) if self._is_open else 0

        metrics.gauge("rocksdb_block-cache-usage", lambda: memory.used)
        metrics.gauge("rocksdb_block-cache-capacity", lambda: memory.limit)
        metrics.gauge(
            "rocksdb_cur-size-all-mem-tables", lambda: over_families(lambda f: f.write_buffer_bytes)
        )
        metrics.gauge("rocksdb_estimate-num-keys", lambda: over_families(lambda f: f.estimated_entries))

    def close(self) -> None:
        """Closes the database, and removes its files except those that a snapshot still reads."""
        self._is_open = False
        try:
            self.database.close()
        finally:
            self._release()

    def _release(self) -> None:
        HELPER.release()
        WORKER_MEMORY.release(self.memory)
        self.folder.release()
