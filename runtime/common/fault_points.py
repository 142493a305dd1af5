"""Named places at which a test may have a process die, stall or lose a message; nothing happens there otherwise.

Owner: any thread of any process. A plan is installed once a process, by tests only (`testing.fault-plan` in a job's
configuration, or directly). Production code only calls `reach`; it must not look at what a plan is.
"""

from __future__ import annotations

from typing import Protocol


class FaultPlanner(Protocol):
    """Decides what happens at a fault point."""

    def reached(self, point: str, detail: dict[str, object]) -> None:
        """May raise, block or end the process."""
        ...


_planner: FaultPlanner | None = None


def install(planner: FaultPlanner | None) -> None:
    """Sets the plan of this process; None takes it away."""
    global _planner
    _planner = planner


def reach(point: str, **detail: object) -> None:
    """The process stands at `point` (`part.place`, for instance `checkpoint.before-acknowledge`)."""
    if _planner is not None:
        _planner.reached(point, detail)
