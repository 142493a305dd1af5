"""JobMasterServices: the shared services that all JobMasters of one leadership use.

Owner: the control plane of one leadership; a value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointRecovery
from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.commit_records import CommitRecords, CommitRecordsInMemory
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.messages import DelegationTokens
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)


def log_printed(text: str) -> None:
    """Writes printed text into the master's log."""
    for line in text.splitlines():
        _log.info("printed: %s", line)


class JobMasterServices(msgspec.Struct, frozen=True):
    """The clock, timers, storage and other services that a JobMaster uses."""

    rpc: RpcService
    resource_manager: LeaderRetrieval
    blobs: BlobStore
    clock: Clock
    timers: Timers
    ids: IdFactory
    #: Epoch of the leadership under which jobs run: their fencing tokens begin with it.
    epoch: int = 0
    #: The recovery records of jobs' checkpoints; they outlive JobMasters.
    checkpoint_recovery: CheckpointRecovery = msgspec.field(default_factory=InMemoryCheckpointRecovery)
    #: What bounded jobs are certain to commit; outlives JobMasters.
    commit_records: CommitRecords = msgspec.field(default_factory=CommitRecordsInMemory)
    #: Folder for the last decisions about a job whose JobMaster fails; None = they are not written.
    log_directory: Path | None = None
    #: Takes what user functions of bounded jobs print; any thread, may block.
    print_output: Callable[[str], None] = log_printed
    #: Hadoop's newest tokens for SparkDrivers; None = the tokens of the containers are the newest, or the processes
    #: need no tokens.
    newest_tokens: Callable[[], DelegationTokens | None] = lambda: None
