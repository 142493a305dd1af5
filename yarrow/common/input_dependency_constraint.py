"""InputDependencyConstraint: when a task that reads blocking results may be scheduled. A value."""

from __future__ import annotations

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """Whether one input of a task must be ready, or every one."""

    ANY = 0
    ALL = 1
