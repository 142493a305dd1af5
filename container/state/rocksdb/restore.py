"""NativeRestore: downloads and opens one database of a native checkpoint, and copies others into it by key group.

Owner: the task thread, before the first record; a few threads of its own fetch files. Nothing is decoded
here: entries move as they are, also those of states without a user in this program.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import structs
from rocksdict import Options, ReadOptions

from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.errors import StateBackendError
from yarrow.container.state.rocksdb.database import HELPER, Database, open_read_only
from yarrow.container.state.rocksdb.folders import DatabaseFolder
from yarrow.container.state.rocksdb.keys import group_start
from yarrow.container.state.rocksdb.list_store import NEXT_NUMBER, counter_entry, number_of
from yarrow.runtime.config.options import rocksdb
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.handles import (
    DatabaseFile,
    FileStateHandle,
    RocksDBSnapshot,
    StateMetaInfo,
)

#: The first key behind all key groups.
_BEHIND_GROUPS: Final = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """An open database and its states."""

    database: Database
    states: dict[str, StateMetaInfo]
    #: By name, unchanged files of a checkpoint in it; none if it was merged from several databases.
    files: Mapping[str, FileStateHandle] = field(default_factory=dict)


class NativeRestore:
    """Opens the database of a subtask with its part of native checkpoints."""

    def __init__(self, context: KeyedBackendContext, folder: DatabaseFolder, options: Options) -> None:
        self._context = context
        self._folder = folder
        self._options = options

    def open(self, snapshots: Sequence[RocksDBSnapshot]) -> RestoredDatabase:
        """Opens the database; it is empty without content for this subtask.

        Raises CorruptSnapshotError for damaged files, and RocksDBError for calls that RocksDB refuses.
        """
        ours = [s for s in snapshots if self._shared_groups(s).number_of_key_groups]
        states = self._states_of(ours)
        if not ours:
            return RestoredDatabase(self._open(), states)
        # The database with most of our key groups is opened as it is; the others are copied into it.
        ours.sort(key=lambda snapshot: self._shared_groups(snapshot).number_of_key_groups, reverse=True)
        base, *others = ours
        self._download(base, self._folder.database)
        database = self._open()
        try:
            self._cut_to_own_groups(database, base)
            for number, snapshot in enumerate(others):
                path = self._folder.restored(number)
                self._download(snapshot, path)
                self._copy(path, self._shared_groups(snapshot), database)
                shutil.rmtree(path, ignore_errors=True)
        except BaseException:
            database.close()
            raise
        return RestoredDatabase(database, states, {} if others else self._files_of(base))

    def _files_of(self, base: RocksDBSnapshot) -> dict[str, FileStateHandle]:
        if KeyGroupRange(*base.key_groups) != self._context.key_groups:
            return {}
        return {f.name: f.handle for f in base.shared if isinstance(f.handle, FileStateHandle)}

    def _open(self) -> Database:
        return Database(self._context.operator_name, self._folder.database, self._options, HELPER)

    def _shared_groups(self, snapshot: RocksDBSnapshot) -> KeyGroupRange:
        return self._context.key_groups.intersection(KeyGroupRange(*snapshot.key_groups))

    def _states_of(self, snapshots: Sequence[RocksDBSnapshot]) -> dict[str, StateMetaInfo]:
        found: dict[str, StateMetaInfo] = {}
        for snapshot in snapshots:
            for state in snapshot.states:
                before = found.setdefault(state.name, state)
                merged = _merged(before, state)
                if merged is None:
                    raise StateBackendError(
                        f"operator '{self._context.operator_name}', state '{state.name}': two parts of the"
                        f" checkpoint hold the state in different forms ({before} and {state}). Restore from"
                        " another checkpoint or from a savepoint"
                    )
                found[state.name] = merged
        return found

    def _download(self, snapshot: RocksDBSnapshot, path: str) -> None:
        target = Path(path)
        target.mkdir(parents=True, exist_ok=True)

        def fetch(file: DatabaseFile) -> None:
            if Path(file.name).name != file.name:
                raise StateBackendError(
                    f"operator '{self._context.operator_name}': the checkpoint names a file '{file.name}' outside of "
                    "its database; restore from another checkpoint"
                )
            data = self._context.read(file.handle)
            try:
                (target / file.name).write_bytes(data)
            except OSError as error:
                raise StateBackendError(
                    f"operator '{self._context.operator_name}': {target / file.name} cannot be written while the "
                    f"checkpoint is restored ({error}); look for a full disk"
                ) from error

        threads = self._context.settings.get(rocksdb.TRANSFER_THREADS)
        with ThreadPoolExecutor(threads, thread_name_prefix="rocksdb-restore") as pool:
            for _ in pool.map(fetch, (*snapshot.shared, *snapshot.private)):
                pass

    def _cut_to_own_groups(self, database: Database, base: RocksDBSnapshot) -> None:
        """Removes entries outside of the groups that the snapshot holds for this subtask: others are copied there.

        Its files may hold more than its groups, left from a wider range of the database.
        """
        if KeyGroupRange(*base.key_groups) == self._context.key_groups:
            return
        ours = self._shared_groups(base)
        for family in database.families.values():
            if ours.start:
                database.delete_range(family, group_start(0), group_start(ours.start))
            database.delete_range(family, group_start(ours.end + 1), _BEHIND_GROUPS)

    def _copy(self, path: str, groups: KeyGroupRange, database: Database) -> None:
        try:
            source, states = open_read_only(path, self._options)
        except Exception as error:
            raise database.failure(None, f"open the restored part {path}", error) from error
        try:
            for name, entries in states.items():
                family = database.family(name)
                bounds = ReadOptions()
                bounds.set_iterate_upper_bound(group_start(groups.end + 1))
                start = group_start(groups.start)
                family.put_all(entries.items(from_key=start, read_opt=bounds))  # type: ignore[arg-type]
                number = max(number_of(entries.get(NEXT_NUMBER)), number_of(family.get(NEXT_NUMBER)))
                if number:
                    family.put_all((counter_entry(number),))
        finally:
            for entries in states.values():
                entries.close()
            source.close()


def _merged(one: StateMetaInfo, other: StateMetaInfo) -> StateMetaInfo | None:
    """One description for two parts of a state, which may differ in what was pickled; None if they differ more."""
    pickled = tuple(sorted({*one.value.pickled, *other.value.pickled}))
    merged = _with_pickled(one, pickled)
    return merged if merged == _with_pickled(other, pickled) else None


def _with_pickled(state: StateMetaInfo, pickled: tuple[str, ...]) -> StateMetaInfo:
    # Pickles among map keys do not matter: the keys are read in any case.
    map_key = None if state.map_key is None else structs.replace(state.map_key, pickled=())
    return structs.replace(state, value=structs.replace(state.value, pickled=pickled), map_key=map_key)
