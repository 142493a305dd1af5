"""Restarts under way: sets of subtasks that have failed or are being cancelled and wait to start again.

Owner: the JobMaster's loop. Pure bookkeeping; job_scheduler.py cancels the tasks and makes the new attempts. A
restart is ready when all its tasks have ended and its pause has passed; sets that overlap become one.
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.am.jobmaster.scheduling.regions import Subtask


@dataclass(slots=True)
class PendingRestart:
    """One set of subtasks."""

    id: int
    members: frozenset[Subtask]
    #: Seconds from the failure to the new attempts.
    delay: float
    #: Monotonic time before which they do not start.
    due: float
    pause_over: bool


class Restarts:
    """All restarts of a job that are under way."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingRestart] = {}
        self._of: dict[Subtask, PendingRestart] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __contains__(self, subtask: Subtask) -> bool:
        return subtask in self._of

    def pending(self) -> tuple[PendingRestart, ...]:
        """All of them, oldest first."""
        return tuple(self._pending.values())

    def get(self, restart_id: int) -> PendingRestart | None:
        """The restart with that id; None when it has begun or became part of another."""
        return self._pending.get(restart_id)

    def of(self, subtask: Subtask) -> PendingRestart | None:
        """The restart to which a subtask belongs."""
        return self._of.get(subtask)

    def add(self, members: frozenset[Subtask], delay: float, now: float) -> PendingRestart:
        """A new restart, which takes in those that share a subtask with it."""
        for other in {id(found): found for member in members if (found := self._of.get(member))}.values():
            members |= other.members
            delay = max(delay, other.due - now)
            self.remove(other)
        self._count += 1
        restart = PendingRestart(self._count, members, delay, now + delay, delay <= 0)
        self._pending[restart.id] = restart
        self._of.update(dict.fromkeys(members, restart))
        return restart

    def remove(self, restart: PendingRestart) -> None:
        """It begins, or is given up."""
        del self._pending[restart.id]
        for member in restart.members:
            del self._of[member]

    def clear(self) -> None:
        """The job ends: nothing starts again."""
        self._pending.clear()
        self._of.clear()
