"""Where a task is in its life; see stream_task, which makes every step from one stage to the next.

Owner: none (values).
"""

from __future__ import annotations

from enum import Enum


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
