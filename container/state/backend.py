"""KeyedStateBackend and what it exchanges with operators and snapshots: the small interface of every state backend.

Owner: the task thread, apart from `PendingKeyedSnapshot.write`, which runs on the worker's snapshot thread. Keys are
given raw; backends make them canonical (runtime.data.keys). A backend must not know barriers, RPC or storage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.handles import KeyedStateHandle, StateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput


@dataclass(frozen=True, slots=True)
class KeyedBackendContext:
    """What a backend is made from."""

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
    #: A folder of this worker for files that end with it; made on demand.
    local_directory: str
    metrics: OperatorMetricGroup
    #: Any thread: run an action on the task thread between slices.
    post: Callable[[Callable[[], None]], None]
    #: What the subtask restores: parts of other subtasks' snapshots too; only key groups of its own range count.
    restored: Sequence[KeyedStateHandle] = ()
    #: The checkpoint that they are of, -1 = not known.
    restored_checkpoint_id: int = -1
    #: Reads and verifies the bytes of a handle; raises CorruptSnapshotError naming the file.
    read: Callable[[StateHandle], bytes] = lambda handle: b""
    #: Pickled values of `restored` may be read. What a JobMaster deploys is of its own job; whoever named a savepoint
    #: vouched for it. Tools that read a savepoint of somebody else say False.
    trusted: bool = True
    #: Declared type of the keys, to be written beside the state; None = not declared. `restored` was compared with it.
    key_type: TypeInformation | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """A registered timer: `key` canonical, `namespace` None outside of windows."""

    timestamp: int
    key: Any
    namespace: Any = None


class TimerSection(Protocol):
    """Timers of one time domain of an operator, kept by its timer service and snapshotted with the keyed state."""

    def snapshot_timers(self) -> Collection[Timer]:
        """All timers at this moment, whatever is registered later; order does not matter.

        The call is short; the Timer objects are made while it is iterated, which the snapshot thread may do.
        """
        ...

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        """Timers of the subtask's key groups; called once, before the first record."""
        ...


class KeyedSection(Protocol):
    """Values by key that an operator keeps in a form of its own (arrays), snapshotted with the keyed state."""

    @property
    def value_type(self) -> TypeInformation | None:
        """The declared type of the values given; None: plain values."""
        ...

    @property
    def entry_count(self) -> int:
        """Keys that have a value."""
        ...

    def freeze_entries(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """Canonical keys and values of this moment, some ten thousand at a time.

        The call is short; the lists are made while it is iterated, once, which the snapshot thread may do.
        """
        ...

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Canonical keys of the subtask's key groups, with their values; called once, before the first record."""
        ...


class PendingKeyedSnapshot(Protocol):
    """The asynchronous part of a snapshot."""

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """Writes what was frozen at the cut; snapshot thread. Empty when there is no state."""
        ...

    def discard(self) -> None:
        """Lets go of what was frozen without writing it; also after a failed `write`. Any thread."""
        ...


class KeyedStateBackend(ABC):
    """The keyed state of one operator's subtask."""

    #: The key of the record or timer at hand, raw or canonical: set by the operator before each call.
    current_key: Any
    #: True where the operator is to call `prefetch` with the keys of a chunk before it runs over it.
    wants_keys: bool = False
    #: True where a state of it is read for a chunk at once, by `prefetch` of the backend or of a value table.
    reads_ahead: bool = False

    @property
    def read_ahead_rows(self) -> int:
        """Rows that it may be told of at once, in advance of their chunks; 0 = those of a chunk only."""
        return 0

    @abstractmethod
    def value_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        """The handle of a state; the same name with another kind or type is refused, as in all the following."""

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

    @abstractmethod
    def register_timers(self, name: str, section: TimerSection) -> None:
        """Has the timers snapshotted as state `name`, and hands over the restored ones at once."""

    @abstractmethod
    def register_section(self, name: str, section: KeyedSection) -> None:
        """The same for values that the operator keeps itself, as a value state `name`."""

    @abstractmethod
    def state_keys(self, name: str) -> Iterable[Any]:
        """The canonical keys that have content of a registered state, fixed at the call; in any order."""

    def prefetch(self, keys: Sequence[Any]) -> None:
        """The raw keys of the chunk that comes: backends on disk read them in one call."""
        return None

    def end_of_chunk(self) -> None:
        """A chunk is done: backends with a write-back cache bound it here."""
        return None

    def announce_checkpoint(self, checkpoint_id: int) -> None:
        """A checkpoint is on its way: what makes its cut short may be prepared."""
        return None

    @abstractmethod
    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> PendingKeyedSnapshot:
        """The cut: later changes are not part of it. Must be short, whatever the size of the state."""

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Files of that checkpoint may be referred to by the next."""
        return None

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """That checkpoint will never be restored."""
        return None

    @property
    @abstractmethod
    def entries(self) -> int:
        """Values held, or an estimate where counting is dear."""

    @abstractmethod
    def dispose(self) -> None:
        """Closes and removes local files; called once."""


class StateBackendFactory(Protocol):
    """What `state.backend.type: module:name` names: custom backends."""

    def __call__(self, context: KeyedBackendContext) -> KeyedStateBackend:
        """The backend of one operator's subtask, restored."""
        ...
