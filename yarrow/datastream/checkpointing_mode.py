"""CheckpointingMode under the name that PyFlink gives its module; it is defined in `yarrow.common.execution_modes`."""

from __future__ import annotations

from yarrow.common.execution_modes import CheckpointingMode

__all__ = ["CheckpointingMode"]
