"""State handles: where a piece of a snapshot lies and what is in it; the metadata of a checkpoint is made of these.

Owner: none (frozen values, msgspec-encoded). No live objects, no pickle. Changing a field changes the format of
savepoints: raise METADATA_VERSION and keep reading the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.operator_spec import TypeSpec

METADATA_VERSION = 1


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all handles."""


class InlineStateHandle(Handle, frozen=True, kw_only=True, tag="inline"):
    """The bytes themselves; the hash of the metadata covers them."""

    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)


class FileStateHandle(Handle, frozen=True, kw_only=True, tag="file"):
    """`length` bytes at `offset` of a file, and their SHA-256.

    `path` is relative to the folder of the `_metadata` file where it lies below it (a savepoint can be moved), else
    absolute or with a scheme.
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
    """Kinds of keyed state."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


class ValueFormat(StrEnum):
    """How values are written."""

    #: By the columns of a declared type.
    TYPED = "typed"
    #: Self-describing, without a declared type: runtime.snapshot.plain_values.
    PLAIN = "plain"
    #: Pickle, protocol 5: only where the program declared it.
    PICKLE = "pickle"


class SerializerConfig(Handle, frozen=True, kw_only=True):
    """What must be known to read values again; compared with the job's own type at restore."""

    format: ValueFormat
    version: int = 1
    #: TypeInformation.to_spec() of the declared type; None = none.
    type_spec: TypeSpec = None
    #: Types of plain values that had to be pickled.
    pickled: tuple[str, ...] = ()


class StateMetaInfo(Handle, frozen=True, kw_only=True):
    """One named keyed state."""

    name: str
    kind: StateKind
    value: SerializerConfig
    #: Of the keys of a MapState.
    map_key: SerializerConfig | None = None
    #: True when each value has the time of its last access in front.
    ttl: bool = False


class KeyGroupsSnapshot(Handle, frozen=True, kw_only=True, tag="key_groups"):
    """Keyed state in the canonical form, which every backend writes for savepoints and can restore."""

    #: First and last key group, both included.
    key_groups: tuple[int, int]
    states: tuple[StateMetaInfo, ...]
    handle: StateHandle
    #: TypeInformation.to_spec() of what the keys are; left out where that is not known.
    key_type: TypeSpec | msgspec.UnsetType = msgspec.UNSET


class DatabaseFile(Handle, frozen=True, kw_only=True):
    """A file of a RocksDB checkpoint under the name it must have there."""

    name: str
    handle: StateHandle


class RocksDBSnapshot(Handle, frozen=True, kw_only=True, tag="rocksdb"):
    """A native checkpoint: immutable files shared between checkpoints, small ones of its own."""

    key_groups: tuple[int, int]
    #: Of the database that wrote it: files of one database may be reused by its next checkpoint only.
    backend_id: str
    states: tuple[StateMetaInfo, ...]
    shared: tuple[DatabaseFile, ...]
    private: tuple[DatabaseFile, ...]
    #: As in KeyGroupsSnapshot.
    key_type: TypeSpec | msgspec.UnsetType = msgspec.UNSET


KeyedStateHandle = KeyGroupsSnapshot | RocksDBSnapshot


class OperatorStateMode(StrEnum):
    """How operator state is divided at another parallelism."""

    #: Elements are dealt out among the subtasks.
    SPLIT = "split"
    #: Every subtask gets all elements of all.
    UNION = "union"
    #: The same in all subtasks: each gets one copy.
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
    """Records in flight that belong to an unaligned checkpoint: what lay before the reader or behind the writer.

    The bytes are frames (runtime header and payload) in the order in which the consumer would have read them.
    """

    #: Names the edge independently of its position in the graph: source operator, side output, input of the target.
    edge: str
    #: Subtask that wrote the records, and the one they were meant for.
    producer: int
    consumer: int
    #: True for records that still waited at the producer: they follow those of the consumer's queue.
    at_producer: bool
    handle: StateHandle
    #: How rows are written; None for columns. PICKLE = of undeclared type: for the job's own eyes only.
    rows: SerializerConfig | None = None
    #: Subtasks and key groups of the reader when it was written; the reader itself may have no state. 0 = not known.
    consumers: int = 0
    max_parallelism: int = 0
    #: Set by an assignment, never stored: other subtasks get these rows too, each takes those of its key groups.
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
    #: The latest savepoint of the job when it was taken: sinks spare its transactions. Left out where there is none.
    latest_savepoint_id: int | msgspec.UnsetType = msgspec.UNSET

    def operator(self, operator_id: OperatorID) -> OperatorState | None:
        """The state of an operator; None when it has none here."""
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
