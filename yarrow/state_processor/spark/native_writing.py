"""A partition's state in RocksDB's own form: a database of sorted files, which a restore opens as it is.

Owner: a task's thread. The database is made in a temporary folder, and its files are stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Final

from rocksdict import Cache

from yarrow.container.state.rocksdb.bulk_load import BulkDatabase
from yarrow.container.state.rocksdb.memory import DatabaseMemory
from yarrow.container.state.rocksdb.options import database_settings, rocksdb_options
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.handles import DatabaseFile, RocksDBSnapshot
from yarrow.runtime.snapshot.key_group_form import Run, StateForm
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.state_processor.spark.keyed_columns import KeyedColumns

#: Nothing is read while the database is made.
_CACHE_BYTES: Final = 1 << 20


def write_database(
    columns: KeyedColumns,
    form: StateForm,
    runs: Iterable[Run],
    key_groups: KeyGroupRange,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> RocksDBSnapshot:
    """Writes runs that come in order of key groups, each group in one run.

    Raises StateSerializationError naming operator and state, RocksDBError, SnapshotStorageError.
    """
    settings = Settings(dict(columns.configuration), "the writer")
    memory = DatabaseMemory(Cache(_CACHE_BYTES), None, _CACHE_BYTES)
    options = rocksdb_options(database_settings(settings), memory)
    with tempfile.TemporaryDirectory(prefix="yarrow-database-") as folder:
        database = BulkDatabase(columns.operator, form, columns.buckets.max_parallelism, folder, options)
        for run in runs:
            database.add(run.keys, run.values)
        files = [
            DatabaseFile(name=path.name, handle=output.write_own_file(str(path)))
            for path in database.finish()
        ]
    return RocksDBSnapshot(
        key_groups=(key_groups.start, key_groups.end),
        backend_id=RandomIdFactory().hex_id(),
        states=(form.meta(),),
        shared=(),
        private=tuple(files),
        key_type=evidence.spec(),
        key_columns=evidence.columns(),
    )
