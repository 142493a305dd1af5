"""RestoreProvider: from which checkpoint tasks start, as deployment and failover ask for it.

Owner: the JobMaster's loop. The interface between failover and checkpoints: whoever coordinates checkpoints implements
it, JobsWithoutState is that of a job that has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from yarrow.am.execution.execution_graph import Execution
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


class RestoreProvider(Protocol):
    """What failover asks of checkpoints; calls return at once."""

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint from which a task that restarts now would begin; -1 = from none."""
        ...

    def needs_global_restart(self) -> bool:
        """True when the latest checkpoint lies before a savepoint: a region would go back past it alone."""
        ...

    def on_restart(self, attempts: frozenset[ExecutionAttemptID]) -> None:
        """These are being cancelled to start again: pending checkpoints are aborted."""
        ...

    def restore_for(self, executions: Sequence[Execution]) -> RestorePlan:
        """For executions that are about to be deployed: their part of the latest completed checkpoint."""
        ...


class JobsWithoutState:
    """Every task begins anew."""

    checkpoint_id = -1

    def needs_global_restart(self) -> bool:
        return False

    def on_restart(self, attempts: frozenset[ExecutionAttemptID]) -> None:
        """Nothing is pending."""

    def restore_for(self, executions: Sequence[Execution]) -> RestorePlan:
        return RestorePlan()
