"""Decide: how the parts of a JobMaster tell its scheduler what has happened.

Owner: none (a type).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.am.jobmaster.scheduling.scheduler_events import SchedulerEvent

#: Tells the scheduler of an event and carries out what it says; the actions, which have been carried out.
Decide: TypeAlias = Callable[[SchedulerEvent], Actions]
