"""Options of the master process: address, memory, scheduling and finished jobs.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import (
    FILE_SYSTEM_PATH,
    PORT,
    POSITIVE,
    STRING,
    duration,
    enum_of,
    integer,
    memory_size,
)
from yarrow.runtime.config.values.option import MemorySize, option, optional


class SchedulingMode(enum.Enum):
    """When the subtasks of a job are deployed."""

    EAGER = "eager"
    LAZY_FROM_SOURCE = "lazy-from-source"


class FailoverStrategy(enum.Enum):
    """The tasks that restart with a failed subtask."""

    REGION = "region"
    FULL = "full"
    INDIVIDUAL = "individual"


RPC_ADDRESS: Final = option(
    "jobmanager.rpc.address",
    STRING,
    "localhost",
    "The address under which other processes reach the JobManager. Flink has no"
    " default; its shipped file says localhost.",
)
RPC_PORT: Final = option("jobmanager.rpc.port", PORT, "6123", "The port of the JobManager's RPC endpoints.")
BIND_HOST: Final = optional(
    "jobmanager.bind-host",
    STRING,
    "The local address the JobManager listens on.",
    unset="all addresses",
)
RPC_BIND_PORT: Final = optional(
    "jobmanager.rpc.bind-port",
    PORT,
    "The local port of the RPC endpoints, where it differs.",
    unset="`jobmanager.rpc.port`",
)
PROCESS_SIZE: Final = option(
    "jobmanager.memory.process.size",
    memory_size("1600 mb", MemorySize.of_mebi_bytes(1)),
    "1 gb",
    "Memory of the master process. Flink has no default here.",
    fallback_keys=("jobmanager.memory.flink.size",),
    deprecated_keys=("jobmanager.heap.size",),
)
SCHEDULING_MODE: Final = option(
    "jobmanager.scheduling-mode",
    enum_of(SchedulingMode),
    "eager",
    "Deploy all subtasks at once (`eager`), or each when its inputs have something"
    " to read (`lazy-from-source`).",
)
FAILOVER_STRATEGY: Final = option(
    "jobmanager.execution.failover-strategy",
    enum_of(FailoverStrategy),
    "region",
    "What restarts when a subtask fails: the regions it touches (`region`), or the whole job (`full`)."
    " `individual` is `region`, where a subtask without edges is a region of its own and restarts alone.",
)
ATTEMPTS_HISTORY_SIZE: Final = option(
    "jobmanager.execution.attempts-history-size",
    POSITIVE,
    "16",
    "Past attempts of a subtask that are kept for REST.",
    deprecated_keys=("job-manager.max-attempts-history-size",),
)
RESOURCE_ID: Final = optional(
    "jobmanager.resource-id",
    STRING,
    "The ResourceID of the JobManager.",
    unset="a random id",
    no_effect="the JobManager is named by its address",
)
ARCHIVE_DIR: Final = optional(
    "jobmanager.archive.fs.dir",
    FILE_SYSTEM_PATH,
    "Folder in which each job that has ended is archived, in a file named by its id, for Flink's HistoryServer.",
    unset="finished jobs are not archived",
)
JOB_STORE_CACHE_SIZE: Final = option(
    "jobstore.cache-size",
    memory_size("50 mb"),
    "52428800",
    "Memory the master process may hold for finished jobs; a bare number counts in bytes.",
)
JOB_STORE_EXPIRATION_TIME: Final = option(
    "jobstore.expiration-time",
    duration("s", "1 h"),
    "3600",
    "Age at which a finished job is dropped; a bare number counts in seconds.",
)
JOB_STORE_MAX_CAPACITY: Final = option(
    "jobstore.max-capacity",
    integer(minimum=0, example="100"),
    "2147483647",
    "The most finished jobs that are kept.",
)
