"""Mix-ins of functions that take part in checkpoints: state of their own, and notice of completion.

Interfaces alone; called by the thread that owns the task, between two records. They do not know where snapshots are
stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from yarrow.datastream.functions.function import KeyedStateStore

if TYPE_CHECKING:
    from yarrow.datastream.state import OperatorStateStore


class FunctionInitializationContext(ABC):
    """The state of a CheckpointedFunction before it is opened: empty or restored."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the access to state that belongs to the operator."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the access to state that belongs to the key at hand; only on a keyed stream."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the job began from a checkpoint or savepoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of that checkpoint, or None."""


class FunctionSnapshotContext(ABC):
    """The checkpoint that a CheckpointedFunction takes part in."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint, which grows from one checkpoint to the next."""


class CheckpointedFunction(ABC):
    """To be mixed into a function that keeps state of its own and puts it into operator state at a checkpoint."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Register state and read the restored values; called once, before `open`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put all values that must survive into the state. No record is processed meanwhile: it must be short."""


class CheckpointListener(ABC):
    """A mix-in for functions that hear whether a checkpoint completed or was aborted."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Hear that the checkpoint is complete.

        It covers all earlier ones, whose notifications may have been lost.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - optional
        """The checkpoint will never be complete; nothing needs to be done unless it was prepared for."""
