"""JobMasterServices: what JobMasters work with that is not theirs.

Owner: whoever made it, the control plane of one leadership; a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from yarrow.am.checkpoint.recovery_in_memory import InMemoryCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import CheckpointRecovery
from yarrow.am.execution.blob_store import BlobStore
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.rpc.leader import LeaderRetrieval
from yarrow.runtime.rpc.service import RpcService


@dataclass(frozen=True, slots=True)
class JobMasterServices:
    """What a JobMaster gets from its surroundings."""

    rpc: RpcService
    resource_manager: LeaderRetrieval
    blobs: BlobStore
    clock: Clock
    timers: Timers
    ids: IdFactory
    #: Of the leadership under which jobs run: their fencing tokens begin with it.
    epoch: int = 0
    #: What of the jobs' checkpoints outlives their masters.
    checkpoint_recovery: CheckpointRecovery = field(default_factory=InMemoryCheckpointRecovery)
    #: Gets the last decisions about a job when its JobMaster fails; None = they are not written.
    log_directory: Path | None = None
