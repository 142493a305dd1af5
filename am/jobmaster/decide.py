"""Decide: the callback by which parts of a JobMaster report events to its scheduler.

Owner: none (a type).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.am.jobmaster.scheduling.scheduler_events import SchedulerEvent

#: Reports an event to the scheduler, carries out the resulting actions, and returns them.
Decide: TypeAlias = Callable[[SchedulerEvent], Actions]
