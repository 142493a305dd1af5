"""Options of checkpoints, savepoints and state backends.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.execution_modes import CheckpointingMode, ExternalizedCheckpointRetention
from yarrow.common.values.value_types import (
    BOOLEAN,
    COUNT,
    DIRECTORIES,
    DURATION,
    FILE_SYSTEM_PATH,
    POSITIVE,
    STRING,
    enum_of,
    memory_size,
)
from yarrow.runtime.config.values.option import option, optional

INTERVAL: Final = optional(
    "execution.checkpointing.interval",
    DURATION,
    "Time between the starts of two checkpoints.",
    unset="no checkpoints are made",
)
MODE: Final = option(
    "execution.checkpointing.mode",
    enum_of(CheckpointingMode),
    "EXACTLY_ONCE",
    "What checkpoints promise.",
)
TIMEOUT: Final = option(
    "execution.checkpointing.timeout",
    DURATION,
    "10 min",
    "How long a checkpoint may take before it is given up.",
)
MIN_PAUSE: Final = option(
    "execution.checkpointing.min-pause",
    DURATION,
    "0 ms",
    "Time from the end of a checkpoint to the start of the next.",
)
MAX_CONCURRENT: Final = option(
    "execution.checkpointing.max-concurrent-checkpoints",
    POSITIVE,
    "1",
    "Checkpoints that may be under way at once.",
)
TOLERABLE_FAILED: Final = option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    COUNT,
    "0",
    "Checkpoints that may fail one after the other before the job fails.",
)
EXTERNALIZED_RETENTION: Final = option(
    "execution.checkpointing.externalized-checkpoint-retention",
    enum_of(ExternalizedCheckpointRetention),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What becomes of the last checkpoint when the job is cancelled or fails. It stays in any case if the job failed by"
    " an error that no restart can help.",
)
DIRECTORY: Final = optional(
    "execution.checkpointing.dir",
    FILE_SYSTEM_PATH,
    "Where checkpoints are written, a path all processes reach.",
    unset="checkpoints stay in the master process",
    deprecated_keys=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIRECTORY: Final = optional(
    "execution.checkpointing.savepoint-dir",
    FILE_SYSTEM_PATH,
    "Where savepoints are written when the request names no place.",
    unset="the request must name it",
    deprecated_keys=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
STORAGE: Final = optional(
    "execution.checkpointing.storage",
    STRING,
    "Where checkpoints go: `jobmanager`, `filesystem`, or `module:name` of a storage of your own.",
    unset="`filesystem` when a directory is set",
    deprecated_keys=("state.checkpoint-storage",),
)
NUM_RETAINED: Final = option(
    "execution.checkpointing.num-retained",
    POSITIVE,
    "1",
    "Finished checkpoints that are kept.",
    deprecated_keys=("state.checkpoints.num-retained",),
)
INCREMENTAL: Final = option(
    "execution.checkpointing.incremental",
    BOOLEAN,
    "false",
    "Whether a checkpoint holds only what changed since the last, where the backend can.",
    deprecated_keys=("state.backend.incremental",),
)
DATA_INLINE_THRESHOLD: Final = option(
    "execution.checkpointing.data-inline-threshold",
    memory_size("20 kb"),
    "20 kb",
    "State up to this size is kept in the checkpoint's metadata and not in a file of its own.",
    deprecated_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
)
JOB_MANAGER_MAX_STATE_SIZE: Final = option(
    "execution.checkpointing.jobmanager-storage.max-state-size",
    memory_size("5 mb"),
    "5 mb",
    "Largest state of one subtask if checkpoints stay in the master process; never above "
    "`rpc.message.max-size`. The constructor argument of JobManagerCheckpointStorage sets it too.",
)
ALLOW_NON_REPLAYABLE_SOURCES: Final = option(
    "execution.checkpointing.allow-non-replayable-sources",
    BOOLEAN,
    "false",
    "Whether a job takes exactly-once checkpoints although one of its sources cannot read its records "
    "again. A failure then loses that source's records since the last checkpoint.",
)
UNALIGNED: Final = option(
    "execution.checkpointing.unaligned.enabled",
    BOOLEAN,
    "false",
    "Whether barriers overtake queued data. The checkpoint then holds this data.",
    deprecated_keys=("execution.checkpointing.unaligned",),
)
UNALIGNED_FORCED: Final = option(
    "execution.checkpointing.unaligned.forced",
    BOOLEAN,
    "false",
    "Whether unaligned checkpoints are used where a graph would forbid them.",
)
ALIGNED_TIMEOUT: Final = option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    DURATION,
    "0 ms",
    "How long an unaligned checkpoint stays aligned before barriers overtake data.",
    deprecated_keys=("execution.checkpointing.alignment-timeout",),
)
AFTER_TASKS_FINISH: Final = option(
    "execution.checkpointing.checkpoints-after-tasks-finish",
    BOOLEAN,
    "true",
    "Whether checkpoints go on when some tasks have finished.",
    deprecated_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
)
STATE_BACKEND: Final = option(
    "state.backend.type",
    STRING,
    "hashmap",
    "Where keyed state lives: `hashmap`, `rocksdb`, or `module:name` of a function that makes a backend of your own.",
    deprecated_keys=("state.backend",),
)
STATE_DEBUG: Final = option(
    "state.backend.debug",
    BOOLEAN,
    "false",
    "Whether the job fails when it changes a value from state and does not write the value back. The "
    "error names state and key. Yarrow's own; slow, for tests of a program.",
)
LOCAL_BACKUP: Final = option(
    "execution.checkpointing.local-backup.enabled",
    BOOLEAN,
    "false",
    "Whether a copy of the last checkpoint stays on the local disk.",
    no_effect="every checkpoint is read from its storage",
)
LOCAL_RECOVERY: Final = option(
    "execution.state-recovery.from-local",
    BOOLEAN,
    "false",
    "Whether a restart reads the copy on the local disk.",
    deprecated_keys=("state.backend.local-recovery",),
    no_effect="every checkpoint is read from its storage",
)
LOCAL_BACKUP_DIRS: Final = optional(
    "execution.checkpointing.local-backup.dirs",
    DIRECTORIES,
    "Directories of these copies.",
    unset="below `process.working-dir`",
    deprecated_keys=("taskmanager.state.local.root-dirs",),
    no_effect="every checkpoint is read from its storage",
)
