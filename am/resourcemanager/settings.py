"""Options of the ResourceManager and of its SlotManager as frozen values.

Owner: none (frozen values). Times are seconds.
"""

from __future__ import annotations

import msgspec

from yarrow.am.resourcemanager.requested_task_executors import StartSettings
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings


class SlotManagerSettings(msgspec.Struct, frozen=True):
    """Options of the SlotManager."""

    #: resourcemanager.taskmanager-timeout
    task_executor_timeout: float = 30.0
    #: cluster.evenly-spread-out-slots
    evenly_spread_out: bool = False
    #: taskmanager.numberOfTaskSlots: the number of slots of a requested TaskExecutor.
    slots_per_task_executor: int = 1
    #: slotmanager.number-of-slots.max; None = no limit.
    max_slots: int | None = None
    #: slotmanager.number-of-slots.min: kept even if no job needs them.
    min_slots: int = 0
    starts: StartSettings = msgspec.field(default_factory=StartSettings)
    #: False = TaskExecutors come by themselves (standalone): none is requested, none released.
    can_request: bool = True
    #: slotmanager.redundant-taskmanager-num: TaskExecutors kept free while a job runs, to replace lost ones
    #: at once.
    redundant_task_executors: int = 0
    #: slotmanager.requirement-check.delay: seconds between a job's declaration and the request for
    #: TaskExecutors. A job that has just ended frees its slots meanwhile.
    requirement_check_delay: float = 0.0


class ResourceManagerSettings(msgspec.Struct, frozen=True):
    """Options of the ResourceManager."""

    slots: SlotManagerSettings = msgspec.field(default_factory=SlotManagerSettings)
    heartbeat: HeartbeatSettings = msgspec.field(default_factory=HeartbeatSettings)
    #: Seconds between looks at idle TaskExecutors and failed starts.
    check_interval: float = 0.5
