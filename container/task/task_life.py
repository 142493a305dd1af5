"""The life of one task: its stages, the steps between them, and whether its operators have finished.

Owner: the task thread. The task and its parts share one TaskLife. It must not do anything about a stage: whoever enters
one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.state_machine import StateMachine


class TaskStage(Enum):
    """Where a task is in its life."""

    CREATED = "created"
    RUNNING = "running"
    #: Input has ended; outputs and operators are being drained, which may take until a checkpoint is complete.
    FINISHING = "finishing"
    #: Behind the cut of a savepoint that stops the job: nothing runs until it is known what became of it.
    SUSPENDED = "suspended"
    #: A peer broke off: waits to be cancelled, fails by itself after a while.
    AWAITING_VERDICT = "awaiting verdict"
    ENDED = "ended"


TASK_TRANSITIONS: Mapping[TaskStage, frozenset[TaskStage]] = MappingProxyType(
    {
        # A task that had ended before the restored checkpoint goes on where its operators have finished.
        TaskStage.CREATED: frozenset({TaskStage.RUNNING, TaskStage.FINISHING, TaskStage.ENDED}),
        TaskStage.RUNNING: frozenset(
            {TaskStage.FINISHING, TaskStage.SUSPENDED, TaskStage.AWAITING_VERDICT, TaskStage.ENDED}
        ),
        TaskStage.FINISHING: frozenset({TaskStage.SUSPENDED, TaskStage.AWAITING_VERDICT, TaskStage.ENDED}),
        # Back to where it was when the savepoint fails, to FINISHING when the savepoint is complete.
        TaskStage.SUSPENDED: frozenset(
            {TaskStage.RUNNING, TaskStage.FINISHING, TaskStage.AWAITING_VERDICT, TaskStage.ENDED}
        ),
        TaskStage.AWAITING_VERDICT: frozenset({TaskStage.ENDED}),
        TaskStage.ENDED: frozenset(),
    }
)
_WORKING = (TaskStage.RUNNING, TaskStage.FINISHING)
_LIVE = (*_WORKING, TaskStage.SUSPENDED)


class TaskLife:
    """The stage of one task, and whether its operators have finished."""

    def __init__(self, task_name: str, clock: Clock) -> None:
        self._machine = StateMachine(f"task '{task_name}'", TaskStage.CREATED, TASK_TRANSITIONS, clock)
        #: The present stage, which only `enter` sets. An attribute, since loops read it once a chunk.
        self.stage = TaskStage.CREATED
        #: `finish` of the operators was called; only the last checkpoint is still to come.
        self.finished = False
        #: The task had ended before the checkpoint that was restored: see `StreamTask.skip`.
        self.skipped = False

    def enter(self, stage: TaskStage) -> None:
        """Goes to `stage`; raises IllegalTransitionError where the table has no such step."""
        self._machine.transition(stage)
        self.stage = stage

    @property
    def is_working(self) -> bool:
        """Whether the task takes input or drains its outputs."""
        return self.stage in _WORKING

    @property
    def is_live(self) -> bool:
        """Whether the task hears of checkpoints: it works, or stands at a savepoint."""
        return self.stage in _LIVE

    def begin_to_finish(self) -> bool:
        """Notes that the operators are being finished; False when they were before."""
        begins, self.finished = not self.finished, True
        return begins
