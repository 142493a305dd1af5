"""Fault points: named places where a test may end or stall a process, or drop a message; otherwise nothing happens.

Owner: any thread of any process. A plan is installed once a process, by tests only (`testing.fault-plan` in a
job's configuration, or directly). Production code only calls `reach`; it must not look at the plan.
"""

from __future__ import annotations

from typing import Protocol


class FaultPlanner(Protocol):
    """Decides what happens at a fault point."""

    def reached(self, point: str, detail: dict[str, object]) -> None:
        """Handles a fault point: may raise, block or end the process."""
        ...


_planner: FaultPlanner | None = None


def install(planner: FaultPlanner | None) -> None:
    """Sets the plan of this process; None removes it."""
    global _planner
    _planner = planner


def reach(point: str, **detail: object) -> None:
    """Reports that the process is at `point` (`part.place`, for instance `checkpoint.before-acknowledge`)."""
    if _planner is not None:
        _planner.reached(point, detail)
