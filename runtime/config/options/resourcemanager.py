"""Options of ResourceManager, SlotManager and slots.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import (
    BOOLEAN,
    COUNT,
    DURATION,
    PORT,
    floating,
    integer,
)
from yarrow.runtime.config.values.option import option, optional

TASK_MANAGER_TIMEOUT: Final = option(
    "resourcemanager.taskmanager-timeout",
    DURATION,
    "30 s",
    "How long a TaskExecutor may be idle before it is released.",
    deprecated_keys=("slotmanager.taskmanager-timeout",),
)
TASK_MANAGER_REGISTRATION_TIMEOUT: Final = option(
    "resourcemanager.taskmanager-registration.timeout",
    DURATION,
    "5 min",
    "How long a requested TaskExecutor may take to register before another is requested.",
    fallback_keys=("taskmanager.registration.timeout",),
)
JOB_TIMEOUT: Final = option(
    "resourcemanager.job.timeout",
    DURATION,
    "5 min",
    "How long a job may be without a leading JobMaster.",
    no_effect="JobMasters live in the process of the ResourceManager and come and go with it",
)
RPC_PORT: Final = option(
    "resourcemanager.rpc.port",
    PORT,
    "0",
    "The port of the ResourceManager where it is not the JobManager's; 0: the same.",
    no_effect="the ResourceManager is served on the JobManager's port (`jobmanager.rpc.port`)",
)
STANDALONE_START_UP_TIME: Final = optional(
    "resourcemanager.standalone.start-up-time",
    DURATION,
    "Time at the start of a standalone cluster in which slot requests wait for TaskExecutors to register.",
    unset="`slot.request.timeout`",
    no_effect="slot requests wait for `slot.request.timeout` at any time",
)
START_WORKER_MAX_FAILURE_RATE: Final = option(
    "resourcemanager.start-worker.max-failure-rate",
    floating(0.0, None, "10.0"),
    "10.0",
    "TaskExecutors that may fail to start in a minute before no more are requested for a while.",
)
START_WORKER_RETRY_INTERVAL: Final = option(
    "resourcemanager.start-worker.retry-interval",
    DURATION,
    "3 s",
    "Pause after too many failed starts, before the master requests TaskExecutors again.",
)
NUMBER_OF_SLOTS_MIN: Final = option(
    "slotmanager.number-of-slots.min",
    COUNT,
    "0",
    "Slots that the cluster keeps even when no job needs them.",
)
NUMBER_OF_SLOTS_MAX: Final = option(
    "slotmanager.number-of-slots.max",
    integer(minimum=1, example="100"),
    "2147483647",
    "The most slots that the cluster allocates; of no effect on a standalone cluster.",
)
REDUNDANT_TASK_MANAGERS: Final = option(
    "slotmanager.redundant-taskmanager-num",
    COUNT,
    "0",
    "Spare TaskExecutors kept to recover faster.",
)
REQUIREMENT_CHECK_DELAY: Final = option(
    "slotmanager.requirement-check.delay",
    DURATION,
    "50 ms",
    "How long the SlotManager gathers changes of requirements before it acts on them.",
)
SLOT_IDLE_TIMEOUT: Final = option(
    "slot.idle.timeout",
    DURATION,
    "50 s",
    "How long a JobMaster keeps a slot that has no task.",
)
SLOT_REQUEST_TIMEOUT: Final = option(
    "slot.request.timeout",
    DURATION,
    "5 min",
    "How long a JobMaster waits for a slot before the job fails.",
)
EVENLY_SPREAD_OUT_SLOTS: Final = option(
    "cluster.evenly-spread-out-slots",
    BOOLEAN,
    "false",
    "Whether slots are spread over all TaskExecutors.",
)
