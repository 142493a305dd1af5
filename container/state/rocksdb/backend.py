"""RocksDBKeyedStateBackend: keyed state in a RocksDB database of the operator's subtask.

Owner: the task thread. Each state has a column family, and a bounded write-back cache of decoded values.
Timers and operators' own sections stay on the heap and are stored in the canonical form. The first state
opens the database, so that operators without keyed state cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import (
    KeyedBackendContext,
    PendingKeyedSnapshot,
)
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.heap_sections import HeapSections
from yarrow.container.state.heap_snapshot import state_form
from yarrow.container.state.registering_backend import RegisteringBackend
from yarrow.container.state.rocksdb.canonical import StoredForm
from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.folders import make_directories
from yarrow.container.state.rocksdb.keys import DatabaseKeys, decode, group_start, key_by_window
from yarrow.container.state.rocksdb.list_store import ListStore, RocksDBListState
from yarrow.container.state.rocksdb.map_store import MapKeys, MapStore, RocksDBMapState
from yarrow.container.state.rocksdb.migration import Migration, stored_values
from yarrow.container.state.rocksdb.resources import DatabaseResources
from yarrow.container.state.rocksdb.snapshot import (
    CanonicalRemainder,
    CanonicalSnapshot,
    LinkedDatabase,
    NativeSnapshot,
    SnapshotScope,
)
from yarrow.container.state.rocksdb.store import DEFAULT_LIMITS, StateStore, StoreContext, StoreLimits
from yarrow.container.state.rocksdb.uploads import UploadedFiles
from yarrow.container.state.rocksdb.value_store import (
    RocksDBValueState,
    RocksDBValueTable,
    TableStore,
    ValueStore,
    canonical_keys,
)
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.rocksdb.window_store import RocksDBWindowTables, WindowStore
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import ValueTable
from yarrow.datastream.state import ListState, MapState, StateTtlConfig, ValueState
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.options import checkpointing, rocksdb
from yarrow.runtime.data.checkpoint_options import CheckpointOptions, CheckpointType
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.handles import (
    FileStateHandle,
    RocksDBSnapshot,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_group_form import StateForm
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState
from yarrow.runtime.snapshot.value_serializers import ValueSerializer, stored_serializer, value_serializer


def rocksdb_state_backend(context: KeyedBackendContext) -> RocksDBKeyedStateBackend:
    """The factory of the backend. Raises RocksDBFolderError for an unusable directory."""
    directories = context.settings.get(rocksdb.LOCAL_DIR)
    make_directories(directories or ())
    return RocksDBKeyedStateBackend(context)


class RocksDBKeyedStateBackend(RegisteringBackend):
    """The keyed state of one operator's subtask in RocksDB."""

    def __init__(self, context: KeyedBackendContext, limits: StoreLimits = DEFAULT_LIMITS) -> None:
        restored = RestoredKeyedState(
            context.restored, context.key_groups, context.read, context.operator_name, trusted=context.trusted
        )
        super().__init__(context, restored, HeapSections(context, restored))
        self._limits = limits
        self._native = [handle for handle in context.restored if isinstance(handle, RocksDBSnapshot)]
        #: Restored native states without a user in this program.
        self._carried: dict[str, StateMetaInfo] = {}
        #: States with entries from a native snapshot: they have its trust, all others that of this program.
        self._restored_natively: frozenset[str] = frozenset()
        self._stores: dict[str, StateStore] = {}
        self._windows: dict[str, RocksDBWindowTables[Any]] = {}
        #: Stores that read the keys of a chunk in advance.
        self._prefetched: list[ValueStore] = []
        self._keys = DatabaseKeys(context.max_parallelism)
        self._files = UploadedFiles()
        self._incremental = context.settings.get(checkpointing.INCREMENTAL)
        self._resources: DatabaseResources | None = None
        self._scope = SnapshotScope(
            context.operator_name,
            context.key_groups,
            context.max_parallelism,
            RandomIdFactory().hex_id(),
            context.key_type,
            context.key_columns,
        )
        #: Holds the declared key type and columns against the first keys. Cuts look until a state has keys.
        self._evidence = KeyEvidence(context.key_type, context.key_columns)
        self._cuts = 0
        if self._native:
            self._open()

    # ------------------------------------------------------------------ database

    def _open(self) -> DatabaseResources:
        if self._resources is None:
            resources = self._resources = DatabaseResources(self.context, self._scope.backend_id)
            restored = resources.open(self._native)
            self._native = []
            self._carried = restored.states
            self._restored_natively = frozenset(restored.states)
            self._files.restored(self.context.restored_checkpoint_id, restored.files)
            resources.register_metrics()
        return self._resources

    # ------------------------------------------------------------------ states

    def open_value(self, state: StateRegistration) -> ValueState[Any]:
        store = ValueStore(*self._prepare(state))
        self._take(state.name, store, self._restored_entries(state), store.put)
        self._prefetched.append(store)
        self.wants_keys = self.reads_ahead = True
        fix = None if self.context.object_reuse else freeze_or_copy
        return RocksDBValueState(store, state.name, self, fix)

    def open_list(self, state: StateRegistration) -> ListState[Any]:
        store = ListStore(*self._prepare(state))
        self._take(state.name, store, self._restored_entries(state), store.append)
        return RocksDBListState(store, state.name, self.context.operator_name, self)

    def open_map(self, state: StateRegistration) -> MapState[Any, Any]:
        restored = self._restored_map_keys(state)
        map_keys = MapKeys(restored or self._serializer(state.map_key_type, state.name), state.map_key_type)
        store = MapStore(*self._prepare(state), map_keys)

        def put(key: Any, content: Mapping[Any, Any]) -> None:
            entries: dict[bytes, bytes | None] = {}
            for map_key, value in content.items():
                entries[map_keys.dump(map_key)] = store.checked(key, store.values.dump(value))
            store.put_all(key, entries)

        self._take(state.name, store, self._restored_entries(state), put)
        return RocksDBMapState(store, state.name, self)

    def value_table(self, name: str, value_type: TypeInformation | None) -> ValueTable:
        state = self.register(StateRegistration(name, StateKind.VALUE, value_type))
        store = self._stores.get(name)
        if store is None:
            store = table = TableStore(*self._prepare(state))
            self.reads_ahead = True
            self._take(name, table, self._restored_entries(state), table.put)
        if not isinstance(store, TableStore):
            raise StateConflictError(
                f"operator '{self.context.operator_name}': the state name '{name}' is taken by the operator itself; "
                "give your state another name"
            )
        return RocksDBValueTable(store)

    def window_tables(
        self,
        name: str,
        value_type: TypeInformation | None,
        form: WindowForm[Any],
        ttl_config: StateTtlConfig | None = None,
    ) -> RocksDBWindowTables[Any]:
        state = self._by_window(name, value_type, form, ttl_config)
        tables = self._windows.get(name)
        if tables is None:
            serializer = self._restored_map_keys(state) or self._serializer(form.stored_type, name)
            store = WindowStore(*self._prepare(state), serializer.config())
            tables = self._windows[name] = RocksDBWindowTables(form, store)
            tables.ttl = state.ttl
            self._take(name, store, self._restored_entries(state), tables.restoring())
            self.reads_ahead = True
        return tables

    def _prepare(
        self, state: StateRegistration
    ) -> tuple[StoreContext, ColumnFamily, StateValues, TimeToLive | None]:
        """The parts of a store; natively restored content has its present form afterwards."""
        self._sections.refuse_name(state.name)
        database = self._open().database
        family = database.family(state.name)
        migration = self._migration(state)
        serializer = (
            self._serializer(state.value_type, state.name)
            if migration is None
            else migration.value_serializer
        )
        values = StateValues(serializer, state.value_type, state.ttl is not None)
        if migration is not None:
            migration.run(family, values, self.context.key_groups)
            del self._carried[state.name]
        context = StoreContext(
            self.context.operator_name, database, self._keys, self.context.key_groups, self._limits
        )
        return context, family, values, state.ttl

    def _migration(self, state: StateRegistration) -> Migration | None:
        self._open()
        meta = self._carried.get(state.name)
        if meta is None:
            return None
        now = self.context.clock.epoch_ms()
        return Migration(self.context.operator_name, meta, state, now, trusted=self.context.trusted)

    def _restored_map_keys(self, state: StateRegistration) -> ValueSerializer | None:
        migration = self._migration(state)
        return None if migration is None else migration.map_key_serializer

    def _serializer(self, type_info: TypeInformation | None, name: str) -> ValueSerializer:
        return value_serializer(type_info, name, self.context.operator_name)

    def _restored_entries(self, state: StateRegistration) -> Iterator[tuple[Any, Any]]:
        runs = self.restored_runs(state)
        return ((key, value) for run in runs for key, value in zip(run.keys, run.values, strict=True))

    def _take(
        self,
        name: str,
        store: StateStore,
        entries: Iterator[tuple[Any, Any]],
        put: Callable[[Any, Any], None],
    ) -> None:
        """Registers a store, with its state's content in canonical snapshots."""
        for number, (key, content) in enumerate(entries, 1):
            put(key, content)
            if not number % 1024:
                store.bound()
        store.bound()
        self._stores[name] = store

    def state_keys(self, name: str) -> Iterable[Any]:
        store = self._stores.get(name)
        if store is None:
            return ()
        store.write_all()
        groups = self.context.key_groups
        if isinstance(store, WindowStore):
            entries = store.family.scan(group_start(groups.start), group_start(groups.end + 1))
            return dict.fromkeys(key_by_window(database_key) for database_key, _ in entries)
        found: list[Any] = []
        prefix = b""
        for database_key, _ in store.family.scan(group_start(groups.start), group_start(groups.end + 1)):
            if not prefix or not database_key.startswith(prefix):
                key, rest = decode(database_key)
                prefix = database_key[: len(database_key) - len(rest)]
                found.append(key)
        return found

    # ------------------------------------------------------------------ life

    def prefetch(self, keys: Sequence[Any]) -> None:
        if self._prefetched:
            canonical = canonical_keys(keys)
            for store in self._prefetched:
                store.prefetch(canonical)

    @property
    def read_ahead_rows(self) -> int:
        # A store must not be told of more keys than a generation holds.
        stores = self._stores.values()
        limits = [s.generation for s in stores if isinstance(s, TableStore | ValueStore | WindowStore)]
        return min(limits) if self.reads_ahead and limits else 0

    def end_of_chunk(self) -> None:
        for store in self._stores.values():
            store.sweep()
            store.bound()
            store.forget_reads()

    def announce_checkpoint(self, checkpoint_id: int) -> None:
        if self._resources is None or self._resources.database.held:
            return
        # Now, so that the cut itself has little to write.
        for store in self._stores.values():
            store.write_all()
        self._resources.database.flush_ahead()

    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> PendingKeyedSnapshot:
        for store in self._stores.values():
            store.write_all()
        linked = self._link(checkpoint_id)
        sections = [
            (state_form(section.registration, self.context.operator_name), section)
            for section in self._sections.freeze()
        ]
        canonical = linked is None or (options.kind.is_savepoint and not options.native)
        forms = self._stored_forms() if canonical and linked is not None else []
        rest = CanonicalRemainder(sections, self._restored.carried(len(forms) + len(sections)))
        if canonical:
            return CanonicalSnapshot(self._scope, linked, forms, rest)
        assert linked is not None

        def uploaded(files: Mapping[str, FileStateHandle]) -> None:
            if not options.kind.is_savepoint:
                self._files.uploaded(checkpoint_id, files)

        return NativeSnapshot(
            self._scope,
            linked,
            self._metas(),
            self._evidence_of_first_keys(),
            rest,
            self._reusable(options),
            uploaded,
        )

    def _evidence_of_first_keys(self) -> KeyEvidence:
        declared = self.context.key_type, self.context.key_columns
        if any(declared) and not self._evidence.confirms:
            evidence, groups = KeyEvidence(*declared), self.context.key_groups
            metas = {meta.name: meta for meta in self._metas()}
            for name, family in self._open().database.families.items():
                first = family.first_key(group_start(groups.start), group_start(groups.end + 1))
                if first is not None:
                    by_window = name in metas and metas[name].is_by_window
                    evidence.observe_by(partial(key_by_window if by_window else _key_of, first))
            self._evidence = evidence
        return self._evidence

    def _reusable(self, options: CheckpointOptions) -> Mapping[str, FileStateHandle] | None:
        """Files to which the checkpoint may refer; None = it shares no file with other checkpoints."""
        asked = options.checkpoint_type
        incremental = self._incremental or asked is CheckpointType.INCREMENTAL
        if options.kind.is_savepoint or not incremental or not options.location.shared_directory:
            return None
        if asked is CheckpointType.FULL:
            return {}
        return self._files.reusable(options.oldest_kept, options.location.shared_directory)

    def _link(self, checkpoint_id: int) -> LinkedDatabase | None:
        """Links the database as it is now; None if there is none, or it is empty."""
        resources = self._resources
        if resources is None or not resources.database.families:
            return None
        self._cuts += 1
        path = resources.folder.checkpoint(f"{checkpoint_id}-{self._cuts}")
        return LinkedDatabase(
            path, resources.database.begin_checkpoint(path), resources.folder, resources.options
        )

    def _metas(self) -> tuple[StateMetaInfo, ...]:
        return (*(self._meta(name, store) for name, store in self._stores.items()), *self._carried.values())

    def _meta(self, name: str, store: StateStore) -> StateMetaInfo:
        return StateMetaInfo(
            name=name,
            kind=self.registrations[name].kind,
            value=store.values.config,
            map_key=self._map_key_config(store),
            ttl=store.values.ttl,
        )

    def _map_key_config(self, store: StateStore) -> SerializerConfig | None:
        if isinstance(store, WindowStore):
            return store.window_config.by_window()
        return store.map_keys.serializer.config() if isinstance(store, MapStore) else None

    def _stored_forms(self) -> list[StoredForm]:
        """How the snapshot thread reads and writes each state, with its own serializers."""
        return [self._stored_form(meta) for meta in self._metas()]

    def _stored_form(self, meta: StateMetaInfo) -> StoredForm:
        operator = self.context.operator_name
        trusted = self.context.trusted or meta.name not in self._restored_natively
        map_key_form = meta.map_key_form
        map_key = (
            None
            if map_key_form is None
            else stored_serializer(map_key_form, operator, meta.name, trusted=trusted)
        )
        values = stored_values(meta.value, operator, meta.name, ttl=meta.ttl, trusted=trusted)
        form = StateForm(meta.name, meta.kind, values.serializer, map_key, meta.ttl)
        # The time to live is known only for states that the program uses.
        registration = self.registrations.get(meta.name)
        ttl = None if registration is None else registration.ttl
        deadline = None if ttl is None else ttl.deadline()
        return StoredForm(form, values, deadline, meta.is_by_window)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        self._files.completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._files.aborted(checkpoint_id)

    @property
    def entries(self) -> int:
        """RocksDB's estimate, plus unwritten entries."""
        return sum(store.entries for store in self._stores.values()) + self._sections.entries

    def dispose(self) -> None:
        self._stores.clear()
        self._windows.clear()
        self._prefetched.clear()
        resources, self._resources = self._resources, None
        if resources is not None:
            resources.close()


def _key_of(database_key: bytes) -> Any:
    return decode(database_key)[0]
