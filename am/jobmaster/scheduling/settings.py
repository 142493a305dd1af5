"""Options of a JobMaster as one frozen value, built from the configuration in one place.

Owner: none (frozen values). Times are seconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.jobmaster.scheduling.restart_strategies import NoRestartBackoff, RestartBackoffFactory
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES
from yarrow.runtime.rpc.registration import RegistrationSettings


class FailoverScope(StrEnum):
    """jobmanager.execution.failover-strategy."""

    #: The failed region and the regions that depend on it.
    REGION = "region"
    #: The whole job.
    FULL = "full"
    #: Only the failed subtask if it has no edges, and so is a region of its own; else its region.
    INDIVIDUAL = "individual"


class SchedulerMode(StrEnum):
    """jobmanager.scheduler.mode."""

    #: All slots first, then all tasks.
    EAGER = "eager"
    #: A pipelined region starts once its slots are there and its blocking inputs are complete.
    LAZY_FROM_SOURCES = "lazy-from-sources"


class JobMasterSettings(msgspec.Struct, frozen=True):
    """How a JobMaster behaves."""

    scheduler_mode: SchedulerMode = SchedulerMode.EAGER
    #: slot.request.timeout
    slot_request_timeout: float = 300.0
    #: slot.idle.timeout
    slot_idle_timeout: float = 50.0
    #: task.cancellation.timeout
    cancellation_timeout: float = 180.0
    heartbeat: HeartbeatSettings = msgspec.field(default_factory=HeartbeatSettings)
    #: cluster.registration.*
    registration: RegistrationSettings = msgspec.field(default_factory=RegistrationSettings)
    #: web.exception-history-size
    exception_history_size: int = 16
    #: jobmanager.execution.attempts-history-size
    attempts_history_size: int = 16
    #: restart-strategy.*
    restart_backoff: RestartBackoffFactory = NoRestartBackoff
    #: jobmanager.execution.failover-strategy
    failover_scope: FailoverScope = FailoverScope.REGION
    #: execution.checkpointing.*
    checkpoints: CheckpointSettings = msgspec.field(default_factory=CheckpointSettings)
    #: Encoded graphs with more bytes are sent through the blob store.
    inline_graph_bytes: int = DEFAULT_MAX_MESSAGE_BYTES // 4
    #: Most rows of one collect operator that wait for the client; then the operator blocks.
    collect_buffer_rows: int = 100_000
    #: Seconds between looks at idle slots.
    check_interval: float = 1.0
