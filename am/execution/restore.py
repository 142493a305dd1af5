"""RestorePlan: what tasks that are about to be deployed begin from, as the deployment carries it.

Owner: none (frozen values). The CheckpointLink makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """What one task starts from."""

    states: Mapping[OperatorID, OperatorSubtaskState] = field(default_factory=dict)
    #: State of the split enumerator, for subtask 0 of a source whose enumerator starts with it.
    coordinator: StateHandle | None = None
    #: The subtask had finished at that checkpoint.
    finished_before: bool = False


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What tasks start from; a task that is not named begins anew."""

    #: -1 = no checkpoint.
    checkpoint_id: int = -1
    #: Base of relative paths in the states.
    directory: str = ""
    tasks: Mapping[ExecutionAttemptID, TaskRestore] = field(default_factory=dict)
    #: The latest savepoint of the job, later than the checkpoint perhaps; -1 = none.
    latest_savepoint_id: int = -1
    #: Pickled values in it may be read.
    trusted: bool = True
