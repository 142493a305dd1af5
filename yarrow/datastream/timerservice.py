"""TimerService under the name that PyFlink gives its module; it is defined in `functions.timers`."""

from __future__ import annotations

from yarrow.datastream.functions.timers import TimerService

__all__ = ["TimerService"]
