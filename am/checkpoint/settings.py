"""CheckpointSettings: how one job takes checkpoints, as one frozen value.

Owner: none (frozen values). Times are seconds unless the name says otherwise, sizes bytes. Reading raises
ConfigError for an impossible value. runtime.config.checkpoint_rules finds contradictions between keys at
submission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import yarrow.runtime.config.options.checkpointing as options
import yarrow.runtime.config.options.execution as execution
import yarrow.runtime.config.options.rpc as rpc
import yarrow.runtime.config.options.security as security
import yarrow.runtime.config.options.web as web
from yarrow.common.execution_modes import CheckpointingMode, ExternalizedCheckpointRetention
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.storage_names import is_custom
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES


class StorageKind(StrEnum):
    """execution.checkpointing.storage."""

    JOB_MANAGER = "jobmanager"
    FILE_SYSTEM = "filesystem"
    #: module:name
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """The execution.checkpointing.* and related options; the defaults are those of a job that sets none."""

    #: Seconds between periodic checkpoints; None = there are none.
    interval: float | None = None
    min_pause: float = 0.0
    timeout: float = 600.0
    max_concurrent: int = 1
    #: Tolerated consecutive failures; one more fails the job.
    tolerable_failures: int = 0
    exactly_once: bool = True
    unaligned: bool = False
    aligned_timeout_ms: int = 0
    after_tasks_finish: bool = True
    #: Number of completed checkpoints that are kept.
    retained: int = 1
    retention: ExternalizedCheckpointRetention = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    storage: StorageKind = StorageKind.JOB_MANAGER
    #: module:name of the user's own storage; "" = none.
    custom_storage: str = ""
    #: All options as text, for a custom storage.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Folder of checkpoints; "" = none.
    directory: str = ""
    savepoint_directory: str = ""
    inline_threshold: int = 20 * 1024
    #: Most bytes of one subtask's state with the jobmanager storage.
    max_inline_state: int = 5 * 1024 * 1024
    #: rpc.message.max-size: no inline state may be larger.
    message_limit: int = DEFAULT_MAX_MESSAGE_BYTES
    #: web.checkpoints.history
    history: int = 10
    state_backend: str = "hashmap"
    incremental: bool = False
    #: security.snapshot.secret-file, "" = none.
    secret_file: str = ""
    trust_pickle: bool = True
    #: Savepoint or checkpoint to begin from, "" = none.
    restore_path: str = ""
    claim_mode: execution.ClaimMode = execution.ClaimMode.NO_CLAIM
    ignore_unclaimed_state: bool = False

    @property
    def covers_each_row_once(self) -> bool:
        """True if execute_and_collect must hold rows back until a completed checkpoint covers them."""
        return self.interval is not None and self.exactly_once

    @classmethod
    def of(cls, settings: Settings) -> CheckpointSettings:
        """Reads a job's configuration over the cluster's."""
        interval = settings.get(options.INTERVAL)
        directory = settings.get(options.DIRECTORY) or ""
        storage = settings.get(options.STORAGE)
        kind = StorageKind.FILE_SYSTEM if directory else StorageKind.JOB_MANAGER
        custom = storage if storage is not None and is_custom(storage) else ""
        if custom:
            kind = StorageKind.CUSTOM
        elif storage is not None:
            kind = StorageKind(storage.lower())
        return cls(
            interval=interval.seconds if interval is not None and interval.seconds > 0 else None,
            min_pause=settings.get(options.MIN_PAUSE).seconds,
            timeout=settings.get(options.TIMEOUT).seconds,
            max_concurrent=settings.get(options.MAX_CONCURRENT),
            tolerable_failures=settings.get(options.TOLERABLE_FAILED),
            exactly_once=settings.get(options.MODE) is CheckpointingMode.EXACTLY_ONCE,
            unaligned=settings.get(options.UNALIGNED),
            aligned_timeout_ms=settings.get(options.ALIGNED_TIMEOUT).millis,
            after_tasks_finish=settings.get(options.AFTER_TASKS_FINISH),
            retained=settings.get(options.NUM_RETAINED),
            retention=settings.get(options.EXTERNALIZED_RETENTION),
            storage=kind,
            custom_storage=custom,
            keys=settings.to_dict(redact=False) if custom else {},
            directory=directory,
            savepoint_directory=settings.get(options.SAVEPOINT_DIRECTORY) or "",
            inline_threshold=settings.get(options.DATA_INLINE_THRESHOLD).bytes,
            max_inline_state=settings.get(options.JOB_MANAGER_MAX_STATE_SIZE).bytes,
            message_limit=settings.get(rpc.MESSAGE_MAX_SIZE).bytes,
            history=settings.get(web.CHECKPOINTS_HISTORY),
            state_backend=settings.get(options.STATE_BACKEND),
            incremental=settings.get(options.INCREMENTAL),
            secret_file=settings.get(security.SNAPSHOT_SECRET_FILE) or "",
            trust_pickle=settings.get(security.SNAPSHOT_TRUST_PICKLE),
            restore_path=settings.get(execution.SAVEPOINT_PATH) or "",
            claim_mode=settings.get(execution.CLAIM_MODE),
            ignore_unclaimed_state=settings.get(execution.IGNORE_UNCLAIMED_STATE),
        )
