"""RestorePlan: the state from which newly deployed tasks begin, as a deployment carries it.

Owner: none (frozen values). The CheckpointLink makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle


class TaskRestore(msgspec.Struct, frozen=True):
    """The state from which one task starts."""

    states: Mapping[OperatorID, OperatorSubtaskState] = msgspec.field(default_factory=dict)
    #: State of the split enumerator, for subtask 0 of a source whose enumerator starts with that subtask.
    coordinator: StateHandle | None = None
    #: The subtask had finished when that checkpoint was taken.
    finished_before: bool = False


class RestorePlan(msgspec.Struct, frozen=True):
    """The states from which tasks start. A task that is not named begins without state."""

    #: -1 = no checkpoint.
    checkpoint_id: int = -1
    #: Base of relative paths in the states.
    directory: str = ""
    tasks: Mapping[ExecutionAttemptID, TaskRestore] = msgspec.field(default_factory=dict)
    #: The latest savepoint of the job, which may be later than the checkpoint; -1 = none.
    latest_savepoint_id: int = -1
    #: True if pickled values in the checkpoint may be read.
    trusted: bool = True
