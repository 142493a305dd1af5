"""TaskLife: the stages of one task, their transitions, and whether its operators have finished.

Owner: the task thread. The task and its parts share one TaskLife. It must not act on a stage: the caller that
enters one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.state_machine import StateMachine, transitions


class TaskStage(Enum):
    """The stages of a task's life."""

    CREATED = "created"
    RUNNING = "running"
    #: Input has ended; outputs and operators are being drained, possibly until a checkpoint is complete.
    FINISHING = "finishing"
    #: After the cut of a savepoint that stops the job: nothing runs until the savepoint's outcome is known.
    SUSPENDED = "suspended"
    #: A peer broke off: the task waits for a cancel, and fails by itself after a while.
    AWAITING_VERDICT = "awaiting verdict"
    ENDED = "ended"


TASK_TRANSITIONS: Mapping[TaskStage, frozenset[TaskStage]] = transitions(
    {
        # A task that had ended before the restored checkpoint continues with finished operators.
        TaskStage.CREATED: (TaskStage.RUNNING, TaskStage.FINISHING, TaskStage.ENDED),
        TaskStage.RUNNING: (
            TaskStage.FINISHING,
            TaskStage.SUSPENDED,
            TaskStage.AWAITING_VERDICT,
            TaskStage.ENDED,
        ),
        TaskStage.FINISHING: (TaskStage.SUSPENDED, TaskStage.AWAITING_VERDICT, TaskStage.ENDED),
        # Back to its former stage if the savepoint fails, to FINISHING if it completes.
        TaskStage.SUSPENDED: (
            TaskStage.RUNNING,
            TaskStage.FINISHING,
            TaskStage.AWAITING_VERDICT,
            TaskStage.ENDED,
        ),
        TaskStage.AWAITING_VERDICT: (TaskStage.ENDED,),
        TaskStage.ENDED: (),
    }
)
_WORKING = (TaskStage.RUNNING, TaskStage.FINISHING)
_LIVE = (*_WORKING, TaskStage.SUSPENDED)


class TaskLife:
    """The stage of one task, and whether its operators have finished."""

    def __init__(self, task_name: str, clock: Clock) -> None:
        self._machine = StateMachine(f"task '{task_name}'", TaskStage.CREATED, TASK_TRANSITIONS, clock)
        #: The present stage, which only `enter` sets. It is an attribute because loops read it once a chunk.
        self.stage = TaskStage.CREATED
        #: The operators have finished; only the last checkpoint is missing.
        self.finished = False
        #: The task had ended before the restored checkpoint: see `StreamTask.skip`.
        self.skipped = False

    def enter(self, stage: TaskStage) -> None:
        """Goes to `stage`. Raises IllegalTransitionError if the table has no such edge."""
        self._machine.transition(stage)
        self.stage = stage

    @property
    def is_working(self) -> bool:
        """Whether the task takes input or drains its outputs."""
        return self.stage in _WORKING

    @property
    def is_live(self) -> bool:
        """Whether the task hears of checkpoints: it works, or is suspended at a savepoint."""
        return self.stage in _LIVE

    def begin_to_finish(self) -> bool:
        """Notes that the operators are finishing; False if they were before."""
        begins, self.finished = not self.finished, True
        return begins
