"""Options of how one job runs: target, mode, buffering and recovery from a savepoint.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.quantities import Duration
from yarrow.common.values.value_types import (
    BOOLEAN,
    FILE_SYSTEM_PATH,
    POSITIVE,
    STRING,
    duration,
    enum_of,
    memory_size,
)
from yarrow.runtime.config.values.option import MemorySize, option, optional


class RuntimeMode(enum.Enum):
    """Flink's runtime execution modes."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class ExchangeMode(enum.Enum):
    """Whether a redistributing edge hands batches on at once or when its producer has finished."""

    PIPELINED = "pipelined"
    BLOCKING = "blocking"


class TaskThreads(enum.Enum):
    """The threads of a worker that run its subtasks."""

    SHARED = "shared"
    PER_TASK = "per-task"


class ClaimMode(enum.Enum):
    """The owner of the snapshot that a job restores from."""

    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"
    LEGACY = "LEGACY"


TARGET: Final = optional(
    "execution.target",
    STRING,
    "Where a job runs: `local`, `remote`, `yarn-session`, `yarn-per-job`, `yarn-application`.",
    unset="`local` for a program started by itself, `remote` under `yarrow run`",
)
ATTACHED: Final = option(
    "execution.attached",
    BOOLEAN,
    "false",
    "Whether the client waits for the job to end.",
)
SHUTDOWN_ON_ATTACHED_EXIT: Final = option(
    "execution.shutdown-on-attached-exit",
    BOOLEAN,
    "false",
    "Whether an attached job, and a cluster that was started for it, end when the client does. Ctrl-C and "
    "signals end both at once, SIGKILL or the loss of the client's machine within "
    "`client.heartbeat.timeout`.",
)
IN_PROCESS: Final = option(
    "execution.in-process",
    BOOLEAN,
    "false",
    "Run control plane and tasks as threads of the client, so that a breakpoint in a user function works.",
)
RUNTIME_MODE: Final = option(
    "execution.runtime-mode",
    enum_of(RuntimeMode),
    "STREAMING",
    "Whether a job runs as a stream or as a batch program. AUTOMATIC: as a batch program if all its sources end.",
)
BUFFER_TIMEOUT_ENABLED: Final = option(
    "execution.buffer-timeout.enabled",
    BOOLEAN,
    "true",
    "Whether a batch that is not full is sent on after a while.",
)
BUFFER_TIMEOUT: Final = option(
    "execution.buffer-timeout.interval",
    duration("ms", "100 ms"),
    "100 ms",
    "How long a batch that is not full waits before it is sent; 0 sends every record at once.",
    deprecated_keys=("execution.buffer-timeout",),
)
SLICE_TIME: Final = option(
    "execution.batch.slice-time",
    duration("ms", "5 ms", Duration(1)),
    "5 ms",
    "How long a task runs rows before it looks at its mailbox: the most by which"
    " timers, barriers and cancel are late.",
)
TASK_THREADS: Final = option(
    "execution.task-threads",
    enum_of(TaskThreads),
    "shared",
    "Whether all subtasks of a slot run on one thread of its worker, or each on a thread of its own.",
)
BATCH_MAX_ROWS: Final = option(
    "execution.batch.max-rows",
    POSITIVE,
    "2048",
    "Rows to which a batch grows under load.",
)
BATCH_MAX_SIZE: Final = option(
    "execution.batch.max-size",
    memory_size("1 mb", MemorySize(1)),
    "1 mb",
    "Bytes to which a batch grows under load.",
)
SORT_MEMORY: Final = option(
    "execution.batch.sort-memory",
    memory_size("128 mb", MemorySize.of_mebi_bytes(1)),
    "128 mb",
    "Bytes of rows that a task in batch mode holds in memory to order its input; more are sorted on disk.",
)
BATCH_COMBINE: Final = option(
    "execution.batch.combine",
    BOOLEAN,
    "true",
    "Whether a task in batch mode folds the rows of each key before it sends them to a rolling aggregate. It does so"
    " where the results cannot show it.",
)
BATCH_LOCAL_MAX_SIZE: Final = option(
    "execution.batch.local-max-size",
    memory_size("64 mb", MemorySize(0)),
    "64 mb",
    "Most bytes of input with which a bounded job in AUTOMATIC mode runs in workers of a TaskExecutor, without Spark"
    " and Java. 0: all bounded jobs run on Spark. BATCH mode always means Spark.",
)
COMBINE_MEMORY: Final = option(
    "execution.batch.combine-memory",
    memory_size("256 mb", MemorySize.of_mebi_bytes(1)),
    "256 mb",
    "Estimated bytes of folded rows that a task in batch mode holds while it reads a source. A task that orders its"
    " input takes a quarter of execution.batch.sort-memory at most.",
)
EXCHANGE_MODE: Final = option(
    "execution.exchange-mode",
    enum_of(ExchangeMode),
    "pipelined",
    "Whether redistributing edges are pipelined or blocking where a program does not say.",
)
SAVEPOINT_PATH: Final = optional(
    "execution.state-recovery.path",
    FILE_SYSTEM_PATH,
    "The savepoint or checkpoint a job restores from.",
    unset="the job starts without state",
    deprecated_keys=("execution.savepoint.path",),
)
CLAIM_MODE: Final = option(
    "execution.state-recovery.claim-mode",
    enum_of(ClaimMode),
    "NO_CLAIM",
    "Whether the job becomes the owner of the snapshot it restores from.",
    deprecated_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE: Final = option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    "false",
    "Whether state of the snapshot that no operator of the job claims is skipped.",
    deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
)
