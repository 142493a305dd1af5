"""Options of a TaskExecutor: slots, worker processes, memory, addresses, exchange and cancellation.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import (
    DIRECTORIES,
    DURATION,
    PORT_RANGE,
    STRING,
    duration,
    enum_of,
    floating,
    integer,
    memory_size,
)
from yarrow.runtime.config.values.option import MemorySize, option, optional


class WorkerStart(enum.Enum):
    """The way in which the worker process of a slot starts."""

    FORK = "fork"
    SPAWN = "spawn"


class DataTransport(enum.Enum):
    """The way in which workers of one host exchange data."""

    AUTO = "auto"
    CONTAINER = "container"
    TCP = "tcp"


NUMBER_OF_TASK_SLOTS: Final = option(
    "taskmanager.numberOfTaskSlots",
    integer(minimum=1, example="4"),
    "1",
    "Slots of one TaskExecutor, each a worker process of its own.",
)
PROCESS_SIZE: Final = option(
    "taskmanager.memory.process.size",
    memory_size("2 gb", MemorySize.of_mebi_bytes(1)),
    "1 gb",
    "Memory of a whole TaskExecutor: supervisor, template and the workers of all slots. What is left after"
    " `taskmanager.memory.supervisor.size` is divided equally among the slots. Flink has no default here.",
    fallback_keys=("taskmanager.memory.flink.size",),
    deprecated_keys=("taskmanager.heap.size",),
)
SUPERVISOR_SIZE: Final = option(
    "taskmanager.memory.supervisor.size",
    memory_size("192 mb"),
    "192 mb",
    "The fixed part of `taskmanager.memory.process.size` that the supervisor and the worker template use.",
)
SLOT_MINIMUM_SIZE: Final = option(
    "taskmanager.memory.slot.minimum-size",
    memory_size("64 mb", MemorySize.of_mebi_bytes(1)),
    "64 mb",
    "The least memory a slot may be left with; a configuration that leaves less is"
    " refused before anything starts.",
)
MEMORY_WARNING_THRESHOLD: Final = option(
    "taskmanager.memory.warning-threshold",
    floating(0.0, 1.0, "0.9"),
    "0.9",
    "Part of a process's memory budget. The log and REST name a process above this part, with its largest "
    "holder.",
)
NETWORK_FRACTION: Final = option(
    "taskmanager.memory.network.fraction",
    floating(0.0, 1.0, "0.1"),
    "0.1",
    "Part of `taskmanager.memory.process.size` that batches on their way between tasks may hold, within"
    " `taskmanager.memory.network.min` and `taskmanager.memory.network.max`; divided"
    " equally among the slots.",
    deprecated_keys=("taskmanager.network.memory.fraction",),
    no_effect="what may be on its way is bounded for each task by `taskmanager.memory.network.task-pool.size`",
)
NETWORK_MIN: Final = option(
    "taskmanager.memory.network.min",
    memory_size("64 mb"),
    "64 mb",
    "Lower bound of the memory for batches on their way between tasks.",
    deprecated_keys=("taskmanager.network.memory.min",),
    no_effect="as for `taskmanager.memory.network.fraction`",
)
NETWORK_MAX: Final = option(
    "taskmanager.memory.network.max",
    memory_size("1 gb"),
    "9223372036854775807",
    "Upper bound of the memory for batches on their way between tasks.",
    deprecated_keys=("taskmanager.network.memory.max",),
    no_effect="as for `taskmanager.memory.network.fraction`",
)
NETWORK_TASK_POOL_SIZE: Final = option(
    "taskmanager.memory.network.task-pool.size",
    memory_size("32 mb", MemorySize(1)),
    "32 mb",
    "The most bytes that queued batches of one task may hold. A full pool stops the task's producers.",
)
NETWORK_TASK_POOL_BATCHES: Final = option(
    "taskmanager.memory.network.task-pool.batches",
    integer(minimum=2, example="256"),
    "256",
    "The most batches that may be queued for one task.",
)
LOOP_MEMORY: Final = option(
    "taskmanager.memory.network.loop.size",
    memory_size("64 mb", MemorySize(1)),
    "64 mb",
    "Bytes of feedback that wait in memory for one subtask of an iteration. More goes to disk.",
)
LOOP_INPUT_BOUND: Final = option(
    "taskmanager.network.loop.input-bound",
    memory_size("4 mb", MemorySize(1)),
    "4 mb",
    "Bytes of waiting feedback beyond which a subtask of an iteration takes no new input.",
)
CHANNEL_CREDIT_SIZE: Final = option(
    "taskmanager.network.channel.credit-size",
    memory_size("4 mb", MemorySize(1)),
    "4 mb",
    "Bytes a receiver lets a sender have under way in one channel. A single row above it travels alone.",
)
CHANNEL_CREDIT_BATCHES: Final = option(
    "taskmanager.network.channel.credit-batches",
    integer(minimum=1, example="4"),
    "4",
    "Batches a receiver lets a sender have under way in one channel.",
)
BLOCKING_SPOOL_MAX_SIZE: Final = option(
    "taskmanager.network.blocking-spool.max-size",
    memory_size("10 gb", MemorySize.of_mebi_bytes(1)),
    "10 gb",
    "Disk space that the results of blocking edges may take in one worker.",
)
MAX_FRAME_SIZE: Final = option(
    "taskmanager.network.max-frame-size",
    memory_size("256 mb", MemorySize.of_mebi_bytes(1)),
    "256 mb",
    "The longest frame a data connection accepts; checked before anything of the frame is decoded.",
)
STALLED_CHANNEL_WARNING: Final = option(
    "taskmanager.network.stalled-channel-warning",
    duration("s", "1 min"),
    "1 min",
    "Time without credit after which the log names a channel that holds data, and the metric "
    "`stalledChannels` of its task counts it. 0 turns the watch off.",
)
CPU_CORES: Final = optional(
    "taskmanager.cpu.cores",
    floating(0.1, None, "4.0"),
    "Cores of one TaskExecutor; the thread counts of Arrow, OpenBLAS and polars follow each slot's share.",
    unset="all cores of the machine",
)
TMP_DIRS: Final = optional(
    "io.tmp.dirs",
    DIRECTORIES,
    "Directories for temporary files, separated by comma, bar or colon.",
    unset="the system's directory for temporary files",
    deprecated_keys=("taskmanager.tmp.dirs",),
)
WORKER_START: Final = option(
    "taskmanager.worker.start",
    enum_of(WorkerStart),
    "fork",
    "How a worker process starts: forked from the warm template, or spawned as a new interpreter.",
)
HOST: Final = optional(
    "taskmanager.host",
    STRING,
    "The address under which other processes reach this TaskExecutor.",
    unset="the host's name or address, by `taskmanager.network.bind-policy`",
)
BIND_POLICY: Final = option(
    "taskmanager.network.bind-policy",
    STRING,
    "ip",
    "What a TaskExecutor without `taskmanager.host` gives as its address: `name` or `ip` of the host.",
)
BIND_HOST: Final = optional(
    "taskmanager.bind-host",
    STRING,
    "The local address a TaskExecutor listens on.",
    unset="all addresses",
)
RPC_PORT: Final = option(
    "taskmanager.rpc.port",
    PORT_RANGE,
    "0",
    "The port, or the range to choose from, of a TaskExecutor's RPC endpoint.",
)
DATA_PORT: Final = option(
    "taskmanager.data.port",
    PORT_RANGE,
    "0",
    "The ports by which workers are reached for data over TCP, one for each slot of each TaskExecutor of a host.",
)
DATA_BIND_PORT: Final = optional(
    "taskmanager.data.bind-port",
    PORT_RANGE,
    "The local ports for data over TCP where they differ, each with the one of `taskmanager.data.port` at its place.",
    unset="`taskmanager.data.port`",
)
RESOURCE_ID: Final = optional(
    "taskmanager.resource-id",
    STRING,
    "The ResourceID of a TaskExecutor; must be unique in the cluster.",
    unset="made from host, port and a random part",
)
REGISTRATION_TIMEOUT: Final = option(
    "taskmanager.registration.timeout",
    DURATION,
    "5 min",
    "How long a TaskExecutor tries to register with a ResourceManager before it ends.",
    deprecated_keys=("taskmanager.maxRegistrationDuration",),
)
SLOT_TIMEOUT: Final = option(
    "taskmanager.slot.timeout",
    DURATION,
    "10 s",
    "How long an allocated slot waits to be used by its job before it is free again.",
    fallback_keys=("pekko.ask.timeout", "akka.ask.timeout"),
)
LOG_PATH: Final = optional(
    "taskmanager.log.path",
    STRING,
    "The log file of a TaskExecutor.",
    unset="a file below `env.log.dir`",
    no_effect="REST shows the log that the TaskExecutor writes below `env.log.dir`",
)
CANCELLATION_TIMEOUT: Final = option(
    "task.cancellation.timeout",
    DURATION,
    "3 min",
    "How long a cancelled task may take to end before its worker process is killed; 0 waits for ever.",
)
CANCELLATION_INTERVAL: Final = option(
    "task.cancellation.interval",
    DURATION,
    "30 s",
    "Time between two attempts to interrupt a task that is being cancelled.",
    deprecated_keys=("task.cancellation-interval",),
    no_effect="a task is cancelled between two slices, Python code is not interrupted, and `task.cancellation.timeout`"
    " ends what does not end",
)
DATA_TRANSPORT: Final = option(
    "taskmanager.data.transport",
    enum_of(DataTransport),
    "auto",
    "How workers exchange data. `auto` uses Unix sockets between workers of one host and TCP with mutual "
    "TLS between hosts. `container` counts each TaskExecutor as a host of its own, for containers that "
    "share the network of their host and not its files. `tcp` is always TCP.",
)
