"""The times of schedules under the names of this package; they are values of the vocabulary.

Owner: none.
"""

from __future__ import annotations

from yarrow.common.values.schedule import InvalidScheduleError, Schedule

__all__ = ["InvalidScheduleError", "Schedule"]
