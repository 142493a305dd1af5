"""KeyedStateBackend: the interface of every state backend, for operators and snapshots.

Owner: the task thread, except `PendingKeyedSnapshot.write`, which runs on the worker's snapshot thread.
Callers pass raw keys; backends make them canonical (runtime.data.keys). A backend must not know barriers, RPC
or storage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.metrics.metric_registry import OperatorMetricGroup
from yarrow.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.snapshot.handles import KeyedStateHandle, StateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput


class KeyedBackendContext(msgspec.Struct, frozen=True):
    """The settings and services from which a backend is made."""

    operator_name: str
    operator_id: str
    job_id: str
    subtask: int
    max_parallelism: int
    key_groups: KeyGroupRange
    object_reuse: bool
    clock: Clock
    #: The worker's settings under the job's.
    settings: Settings
    #: A folder of this worker for files that end with the backend; made on demand.
    local_directory: str
    metrics: OperatorMetricGroup
    #: Runs an action on the task thread between slices. Any thread.
    post: Callable[[Callable[[], None]], None]
    #: The restored snapshots, also parts of other subtasks; only key groups of the subtask's own range count.
    restored: Sequence[KeyedStateHandle] = ()
    #: Their checkpoint, -1 = unknown.
    restored_checkpoint_id: int = -1
    #: Reads and verifies the bytes of a handle. Raises CorruptSnapshotError with the file.
    read: Callable[[StateHandle], bytes] = lambda handle: b""
    #: True if pickled values of `restored` may be read. A JobMaster deploys state of its own job, and a user
    #: who names a savepoint vouches for it. Tools that read a savepoint of somebody else say False.
    trusted: bool = True
    #: Declared type of the keys, which is stored beside the state; None = not declared. `restored` was
    #: compared with it.
    key_type: TypeInformation | None = None
    #: The columns whose tuples are the keys, in their order, stored and compared likewise; empty = not known.
    key_columns: tuple[str, ...] = ()


class Timer(NamedTuple):
    """A registered timer: `key` is canonical, `namespace` is None outside of windows."""

    timestamp: int
    key: Any
    namespace: Any = None


class TimerSection(Protocol):
    """The timers of one time domain of an operator.

    Its timer service keeps them, and they are snapshotted with the keyed state.
    """

    def snapshot_timers(self) -> Collection[Timer]:
        """All present timers in any order, whatever is registered later.

        The call is short; iterating makes the Timer objects, which the snapshot thread may do.
        """
        ...

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        """Restores timers of the subtask's key groups; called once, before the first record."""
        ...


class KeyedSection(Protocol):
    """Values by key in an operator's own form (arrays), snapshotted with the keyed state."""

    @property
    def value_type(self) -> TypeInformation | None:
        """The declared type of the values; None = plain values."""
        ...

    @property
    def entry_count(self) -> int:
        """Number of keys with a value."""
        ...

    def freeze_entries(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """Present canonical keys and values, some ten thousand at a time.

        The call is short; iterating, once, makes the lists, which the snapshot thread may do.
        """
        ...

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Restores canonical keys of the subtask's key groups, with values; called once, before the first record."""
        ...


class PendingKeyedSnapshot(Protocol):
    """The asynchronous part of a snapshot."""

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """Writes the frozen state; empty without state. Snapshot thread."""
        ...

    def discard(self) -> None:
        """Drops the frozen state, also after a failed `write`. Any thread."""
        ...


class KeyedStateBackend(ABC):
    """The keyed state of one operator's subtask."""

    #: The key of the present record or timer, raw or canonical; the operator sets it before each call.
    current_key: Any
    #: True if the operator must call `prefetch` with the keys of a chunk before it processes the chunk.
    wants_keys: bool = False
    #: True if `prefetch`, of the backend or of a value table, reads a state for a whole chunk at once.
    reads_ahead: bool = False
    #: True if all state is in memory. A KeyedSection then needs no more memory than a state of the same values.
    holds_all_in_memory: bool = False
    #: False if no state expires. A state with a time to live is then stored as one without.
    keeps_access_times: bool = True

    @property
    def read_ahead_rows(self) -> int:
        """Most rows that `prefetch` takes in advance of their chunks; 0 = only those of the next chunk."""
        return 0

    @abstractmethod
    def value_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        """The handle of a state. As in all such methods, the same name with another kind or type is refused."""

    @abstractmethod
    def list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]: ...

    @abstractmethod
    def map_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]: ...

    @abstractmethod
    def reducing_state(self, descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]: ...

    @abstractmethod
    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]: ...

    @abstractmethod
    def value_table(self, name: str, value_type: TypeInformation | None) -> Any:
        """A container.state.value_table.ValueTable: one value a key, for generated code of built-in aggregates."""

    def window_tables(
        self,
        name: str,
        value_type: TypeInformation | None,
        form: WindowForm[Any],
        ttl_config: StateTtlConfig | None = None,
    ) -> Any:
        """A container.state.window_tables.WindowTables: such a table for each window (namespace) of the state.

        With a time to live its values are pairs (access time in epoch ms, value), and the caller hides expired ones.
        Raises UnsupportedFeatureError where the backend has no such tables.
        """
        raise UnsupportedFeatureError(
            f"state '{name}': the state backend {type(self).__name__} keeps no tables by window; give it a method "
            "window_tables (see yarrow.container.state.window_tables), or set state.backend.type to hashmap or rocksdb"
        )

    @abstractmethod
    def register_timers(self, name: str, section: TimerSection) -> None:
        """Snapshots the timers as state `name`, and restores the restored ones at once."""

    @abstractmethod
    def register_section(self, name: str, section: KeyedSection) -> None:
        """Snapshots an operator's own values as value state `name`, and restores the restored ones at once."""

    @abstractmethod
    def state_keys(self, name: str) -> Iterable[Any]:
        """The canonical keys with content in a registered state, fixed at the call, in any order."""

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Takes the raw keys of the next chunk: backends on disk read them in one call."""
        return None

    def end_of_chunk(self) -> None:
        """Ends a chunk: backends with a write-back cache trim it here."""
        return None

    def announce_checkpoint(self, checkpoint_id: int) -> None:
        """Announces a checkpoint, so that the backend can shorten its cut by preparing it."""
        return None

    @abstractmethod
    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> PendingKeyedSnapshot:
        """Cuts: later changes are not part of the snapshot. Must be short, whatever the size of the state."""

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Allows the next checkpoint to refer to files of that checkpoint."""
        return None

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Says that the checkpoint will never be restored."""
        return None

    @property
    @abstractmethod
    def entries(self) -> int:
        """Number of values, or an estimate if counting is expensive."""

    @abstractmethod
    def dispose(self) -> None:
        """Closes the backend and removes local files; called once."""


class StateBackendFactory(Protocol):
    """A custom backend's factory, which `state.backend.type: module:name` names."""

    def __call__(self, context: KeyedBackendContext) -> KeyedStateBackend:
        """The restored backend of one operator's subtask."""
        ...
