"""The memory budget: how the memory of a TaskExecutor is divided among its slots.

Owner: any thread; pure functions. They measure nothing: the supervisor compares the use of processes with the
budget.
"""

from __future__ import annotations

from typing import Final

import msgspec

from yarrow.common.values.quantities import MemorySize
from yarrow.runtime.config.options import jobmanager, rocksdb, taskmanager
from yarrow.runtime.config.settings import ReadableConfig
from yarrow.runtime.config.values.errors import MemoryBudgetError

#: Memory of the master process besides the finished jobs it keeps.
JOB_MANAGER_BASE: Final = MemorySize.of_mebi_bytes(128)
#: Skein's JVM, in the master's container on YARN: a heap of 128 MiB, and as much again beside it.
SKEIN_MEMORY: Final = MemorySize.of_mebi_bytes(256)

#: The part of a slot's budget that state backends get where no size is given; Flink's share of managed memory.
MANAGED_FRACTION: Final = 0.4


class MemoryBudget(msgspec.Struct, frozen=True):
    """The parts of one TaskExecutor's memory: `supervisor + slots * slot` is `process`, save for rounding."""

    process: MemorySize
    supervisor: MemorySize
    slots: int
    #: The equal share of each slot, the limit of its worker process.
    slot: MemorySize


def divide_memory(
    process: MemorySize,
    supervisor: MemorySize,
    slots: int,
    minimum_per_slot: MemorySize,
) -> MemoryBudget:
    """Takes the supervisor's part from the process size and divides the rest equally among the slots.

    Raises MemoryBudgetError when a slot would get less than `minimum_per_slot`.
    """
    if slots < 1:
        raise MemoryBudgetError(
            f"{taskmanager.NUMBER_OF_TASK_SLOTS.key} is {slots}; a TaskExecutor needs at least one slot.",
            (taskmanager.NUMBER_OF_TASK_SLOTS.key,),
        )
    needed = MemorySize(supervisor.bytes + slots * minimum_per_slot.bytes)
    if process < needed:
        raise MemoryBudgetError(
            f"{taskmanager.PROCESS_SIZE.key} of {process.human()} is too small: {supervisor.human()} for the"
            f" supervisor ({taskmanager.SUPERVISOR_SIZE.key}) and at least"
            f" {minimum_per_slot.human()} for each of"
            f" {slots} slots ({taskmanager.SLOT_MINIMUM_SIZE.key}) make {needed.human()}."
            f" Raise it to at least"
            f" `{needed}` or lower {taskmanager.NUMBER_OF_TASK_SLOTS.key}.",
            (
                taskmanager.PROCESS_SIZE.key,
                taskmanager.SUPERVISOR_SIZE.key,
                taskmanager.NUMBER_OF_TASK_SLOTS.key,
            ),
        )
    slot = MemorySize((process.bytes - supervisor.bytes) // slots)
    return MemoryBudget(process, supervisor, slots, slot)


def process_size_for(slots: int, slot: MemorySize, supervisor: MemorySize) -> MemorySize:
    """The process size with which each of `slots` slots gets `slot`."""
    return MemorySize(supervisor.bytes + slots * slot.bytes)


def task_executor_budget(config: ReadableConfig, slots: int | None = None) -> MemoryBudget:
    """The budget a configuration gives a TaskExecutor with `slots` slots, or with the configured number.

    Raises MemoryBudgetError or InvalidOptionValue.
    """
    return divide_memory(
        config.get(taskmanager.PROCESS_SIZE),
        config.get(taskmanager.SUPERVISOR_SIZE),
        config.get(taskmanager.NUMBER_OF_TASK_SLOTS) if slots is None else slots,
        config.get(taskmanager.SLOT_MINIMUM_SIZE),
    )


def managed_memory(config: ReadableConfig, slot: MemorySize) -> MemorySize:
    """Memory of a slot for state backends: the configured size, else a fraction of `slot`."""
    fixed = config.get(rocksdb.MEMORY_PER_SLOT)
    return MemorySize(int(slot.bytes * MANAGED_FRACTION)) if fixed is None else fixed


def reserved_memory(config: ReadableConfig, slot: MemorySize) -> MemorySize:
    """`managed_memory` where it is a bound; 0 where each database has a size of its own."""
    bound = config.get(rocksdb.MEMORY_MANAGED) or config.is_set(rocksdb.MEMORY_PER_SLOT)
    return managed_memory(config, slot) if bound else MemorySize(0)


def check_job_manager_memory(config: ReadableConfig) -> None:
    """Raise MemoryBudgetError if the master process cannot hold the finished jobs that it must keep."""
    process, store = config.get(jobmanager.PROCESS_SIZE), config.get(jobmanager.JOB_STORE_CACHE_SIZE)
    needed = MemorySize(JOB_MANAGER_BASE.bytes + store.bytes)
    if process < needed:
        raise MemoryBudgetError(
            f"{jobmanager.PROCESS_SIZE.key} of {process.human()} is too small:"
            f" {JOB_MANAGER_BASE.human()} for the"
            f" process itself and {store.human()} for finished jobs"
            f" ({jobmanager.JOB_STORE_CACHE_SIZE.key}) make"
            f" {needed.human()}. Raise it to at least `{needed}`,"
            f" on YARN to `{MemorySize(needed.bytes + SKEIN_MEMORY.bytes)}`.",
            (jobmanager.PROCESS_SIZE.key, jobmanager.JOB_STORE_CACHE_SIZE.key),
        )
