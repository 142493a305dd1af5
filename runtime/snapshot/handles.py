"""State handles: each names the place and content of a piece of a snapshot; a checkpoint's metadata consist of them.

Owner: none (frozen values, msgspec-encoded). No live objects, no pickle. Changing a field changes the format
of savepoints: raise METADATA_VERSION and keep reading the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.operator_spec import TypeSpec

METADATA_VERSION = 1


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all handles."""


class InlineStateHandle(Handle, frozen=True, kw_only=True, tag="inline"):
    """A handle that contains the bytes; the hash of the metadata covers them."""

    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)


class FileStateHandle(Handle, frozen=True, kw_only=True, tag="file"):
    """`length` bytes at `offset` of a file, and their SHA-256.

    `path` is relative for a file below the folder of `_metadata`, so that a savepoint can be moved. Otherwise
    it is absolute or has a scheme.
    """

    path: str
    offset: int
    length: int
    sha256: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length


StateHandle = InlineStateHandle | FileStateHandle


class StateKind(StrEnum):
    """Kinds of keyed state.

    A key may come several times among the entries of a map: its map is what they hold together.
    """

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


class ValueFormat(StrEnum):
    """The form of values."""

    #: By the columns of a declared type.
    TYPED = "typed"
    #: Self-describing, without a declared type: runtime.snapshot.plain_values.
    PLAIN = "plain"
    #: Pickle, protocol 5: only where the program declared it.
    PICKLE = "pickle"


class SerializerConfig(Handle, frozen=True, kw_only=True):
    """How values were written; a restore compares it with the job's own type."""

    format: ValueFormat
    version: int = 1
    #: TypeInformation.to_spec() of the declared type; None = none.
    type_spec: TypeSpec = None
    #: Types of plain values that were pickled.
    pickled: tuple[str, ...] = ()

    def by_window(self) -> SerializerConfig:
        """The same as `StateMetaInfo.map_key` of entries that lie by window."""
        return msgspec.structs.replace(self, version=self.version + BY_WINDOW)


#: Added to the version of `StateMetaInfo.map_key` where entries of a native snapshot lie by window and then by key.
#: Releases that know no such order take it for a version of later ones, and refuse the state by name.
BY_WINDOW: Final = 1000


class StateMetaInfo(Handle, frozen=True, kw_only=True):
    """One named keyed state."""

    name: str
    kind: StateKind
    value: SerializerConfig
    #: Serializer of the keys of a MapState.
    map_key: SerializerConfig | None = None
    #: True if the time of the last access precedes each value.
    ttl: bool = False

    @property
    def is_by_window(self) -> bool:
        """True for entries of a native snapshot that lie by window; in the canonical form none do."""
        return self.map_key is not None and self.map_key.version >= BY_WINDOW

    @property
    def map_key_form(self) -> SerializerConfig | None:
        """`map_key` without the mark for entries by window."""
        if self.map_key is None or not self.is_by_window:
            return self.map_key
        return msgspec.structs.replace(self.map_key, version=self.map_key.version - BY_WINDOW)


class KeyGroupsSnapshot(Handle, frozen=True, kw_only=True, tag="key_groups"):
    """Keyed state in the canonical form, which every backend writes for savepoints and can restore."""

    #: First and last key group, both included.
    key_groups: tuple[int, int]
    states: tuple[StateMetaInfo, ...]
    handle: StateHandle
    #: TypeInformation.to_spec() of the keys; left out if it is unknown.
    key_type: TypeSpec | msgspec.UnsetType = msgspec.UNSET
    #: The columns whose values the keys are, in their order; left out for keys that are no tuples of columns.
    key_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class DatabaseFile(Handle, frozen=True, kw_only=True):
    """A file of a RocksDB checkpoint, with its required name."""

    name: str
    handle: StateHandle


class RocksDBSnapshot(Handle, frozen=True, kw_only=True, tag="rocksdb"):
    """A native checkpoint: immutable files that checkpoints share, and small files of its own."""

    key_groups: tuple[int, int]
    #: The database that wrote it: only its own next checkpoint may reuse its files.
    backend_id: str
    states: tuple[StateMetaInfo, ...]
    shared: tuple[DatabaseFile, ...]
    private: tuple[DatabaseFile, ...]
    #: As in KeyGroupsSnapshot.
    key_type: TypeSpec | msgspec.UnsetType = msgspec.UNSET
    key_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


KeyedStateHandle = KeyGroupsSnapshot | RocksDBSnapshot


class OperatorStateMode(StrEnum):
    """How operator state is divided at another parallelism."""

    #: Elements are divided among the subtasks.
    SPLIT = "split"
    #: Every subtask gets all elements of all subtasks.
    UNION = "union"
    #: Equal in all subtasks: each gets one copy.
    BROADCAST = "broadcast"


class NamedOperatorState(Handle, frozen=True, kw_only=True):
    """One named operator state: (offset, length) of each element within the handle's bytes.

    A broadcast state is one element: the encoded map.
    """

    name: str
    mode: OperatorStateMode
    value: SerializerConfig
    elements: tuple[tuple[int, int], ...]
    map_key: SerializerConfig | None = None


class OperatorStateHandle(Handle, frozen=True, kw_only=True):
    """The operator states of one subtask, in one piece of bytes."""

    states: tuple[NamedOperatorState, ...]
    handle: StateHandle


class ChannelStateHandle(Handle, frozen=True, kw_only=True):
    """Records in flight of an unaligned checkpoint, before the reader or behind the writer.

    The bytes are frames (runtime header and payload) in the order in which the consumer would have read them.
    """

    #: Names the edge independently of its position in the graph: source operator, side output, input of the target.
    edge: str
    #: Subtask that wrote the records, and the subtask for which they were meant.
    producer: int
    consumer: int
    #: True if the records still waited at the producer: they follow those of the consumer's queue.
    at_producer: bool
    handle: StateHandle
    #: How rows are written; None for columns. PICKLE = rows of undeclared type: only for the job itself.
    rows: SerializerConfig | None = None
    #: Subtasks and key groups of the reader at that time; the reader itself may have no state. 0 = unknown.
    consumers: int = 0
    max_parallelism: int = 0
    #: Set by an assignment, never stored: several subtasks get these rows, and each takes those of its key
    #: groups.
    shared: bool = False


class OperatorSubtaskState(Handle, frozen=True, kw_only=True):
    """All state of one operator's subtask."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    operator: tuple[OperatorStateHandle, ...] = ()
    #: On the head of a chain only.
    channels: tuple[ChannelStateHandle, ...] = ()

    def state_handles(self) -> Iterator[StateHandle]:
        """Every handle in it."""
        for keyed in self.keyed:
            if isinstance(keyed, KeyGroupsSnapshot):
                yield keyed.handle
            else:
                for file in (*keyed.shared, *keyed.private):
                    yield file.handle
        for operator in self.operator:
            yield operator.handle
        for channel in self.channels:
            yield channel.handle

    def shared_files(self) -> Iterator[FileStateHandle]:
        """The files that other checkpoints may hold too."""
        for keyed in self.keyed:
            if isinstance(keyed, RocksDBSnapshot):
                for file in keyed.shared:
                    if isinstance(file.handle, FileStateHandle):
                        yield file.handle

    @property
    def state_size(self) -> int:
        """Bytes of all state, uploaded by this checkpoint or by an earlier one."""
        return sum(handle.size for handle in self.state_handles())

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to restore."""
        return not (self.keyed or self.operator or self.channels)


class OperatorState(Handle, frozen=True, kw_only=True):
    """One operator in the metadata of a checkpoint."""

    operator_id: OperatorID
    name: str
    uid: str | None
    parallelism: int
    max_parallelism: int
    #: By subtask; those without state are left out.
    subtasks: dict[int, OperatorSubtaskState]
    #: State of the source's split enumerator.
    coordinator: StateHandle | None = None
    #: Subtasks that had finished before the checkpoint: they are not run again.
    finished_subtasks: tuple[int, ...] = ()
    #: The kind of the operator (`state_kind` of its spec); left out if it is unknown.
    kind: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def fully_finished(self) -> bool:
        """True when every subtask had finished."""
        return len(self.finished_subtasks) == self.parallelism


class CheckpointMetadata(Handle, frozen=True, kw_only=True):
    """The content of `_metadata`: everything needed to restore a checkpoint or savepoint."""

    version: int = METADATA_VERSION
    engine_version: str
    job_id: JobID
    job_name: str
    checkpoint_id: int
    timestamp_ms: int
    kind: SnapshotKind
    operators: tuple[OperatorState, ...]
    #: The latest savepoint of the job at that time: sinks spare its transactions. Left out if there is none.
    latest_savepoint_id: int | msgspec.UnsetType = msgspec.UNSET

    def operator(self, operator_id: OperatorID) -> OperatorState | None:
        """The state of an operator; None if it has none here."""
        for state in self.operators:
            if state.operator_id == operator_id:
                return state
        return None

    def shared_files(self) -> Iterator[FileStateHandle]:
        """The files that other checkpoints may hold too."""
        for operator in self.operators:
            for subtask in operator.subtasks.values():
                yield from subtask.shared_files()

    @property
    def state_size(self) -> int:
        """Bytes of all state."""
        return sum(state.state_size for operator in self.operators for state in operator.subtasks.values())
