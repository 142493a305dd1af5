"""Calls user functions for checkpoints: CheckpointedFunction and CheckpointListener.

Owner: the task thread. Every operator with a user function calls these four functions; a user function that
implements neither interface is ignored. Exceptions of user code pass unchanged: the chain names the operator.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.operators.base import Operator, OperatorContext
from yarrow.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
)
from yarrow.datastream.state import OperatorStateStore
from yarrow.runtime.common.errors import InvalidProgramError


class InitializationContext(FunctionInitializationContext):
    """The context of a function before it is opened; `keyed` is None if the stream has no keys."""

    def __init__(self, context: OperatorContext, keyed: KeyedStateStore | None) -> None:
        self._context = context
        self._keyed = keyed

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._context.operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        if self._keyed is None:
            raise InvalidProgramError(
                f"operator '{self._context.descriptor.name}': keyed state needs a keyed stream; call key_by before "
                "this operator"
            )
        return self._keyed

    def is_restored(self) -> bool:
        return self._context.restored_checkpoint_id is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._context.restored_checkpoint_id


class SnapshotContext(FunctionSnapshotContext):
    """The context of a function at the cut."""

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id


def initialize_function(function: Any, context: OperatorContext, keyed: KeyedStateStore | None) -> None:
    """Lets the function register its state and read restored state, before `open`."""
    if isinstance(function, CheckpointedFunction):
        function.initialize_state(InitializationContext(context, keyed))


def snapshot_function(function: Any, checkpoint_id: int) -> None:
    """Calls the function at the cut."""
    if isinstance(function, CheckpointedFunction):
        function.snapshot_state(SnapshotContext(checkpoint_id))


def notify_function_complete(function: Any, checkpoint_id: int) -> None:
    """Tells the function that the checkpoint is complete."""
    if isinstance(function, CheckpointListener):
        function.notify_checkpoint_complete(checkpoint_id)


def notify_function_aborted(function: Any, checkpoint_id: int) -> None:
    """Tells the function that the checkpoint will never be complete."""
    if isinstance(function, CheckpointListener):
        function.notify_checkpoint_aborted(checkpoint_id)


class CheckpointedFunctionOperator(Operator):
    """An operator that passes checkpoint events to its one user function."""

    #: Set by setup.
    function: Any

    def snapshot_state(self, checkpoint_id: int) -> None:
        snapshot_function(self.function, checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        notify_function_complete(self.function, checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        notify_function_aborted(self.function, checkpoint_id)
