"""InputDependencyConstraint under PyFlink's name of its module; `yarrow.common.execution_modes` defines it."""

from __future__ import annotations

from yarrow.common.execution_modes import InputDependencyConstraint

__all__ = ["InputDependencyConstraint"]
