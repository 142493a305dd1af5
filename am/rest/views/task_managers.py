"""TaskExecutors as REST shows them, under Flink's name of task managers.

Owner: none (pure).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yarrow.am.rest.models.task_managers import (
    AllocatedSlot,
    GarbageCollector,
    Hardware,
    MemoryConfiguration,
    ResourceProfileBody,
    TaskManagerDetails,
    TaskManagerInfo,
    TaskManagerMetrics,
)
from yarrow.runtime.rpc.messages import (
    ExecutionGraphDetails,
    ResourceProfile,
    SlotStatus,
    TaskExecutorInfo,
)

#: Running tasks by TaskExecutor and job.
TaskCounts = Counter[tuple[str, str]]


def count_tasks(jobs: Iterable[ExecutionGraphDetails]) -> TaskCounts:
    """How many tasks each TaskExecutor has of each job."""
    counts: TaskCounts = Counter()
    for job in jobs:
        for vertex in job.vertices:
            for attempt in vertex.subtasks:
                if attempt.resource_id and not attempt.state.is_terminal:
                    counts[(attempt.resource_id, job.job_id)] += 1
    return counts


def task_manager(info: TaskExecutorInfo, tasks: TaskCounts, now: int, container: str = "") -> TaskManagerInfo:
    """A TaskExecutor in the list."""
    return TaskManagerInfo(**_fields(info, tasks, now), container_id=container)


def task_manager_details(
    info: TaskExecutorInfo, tasks: TaskCounts, now: int, container: str = ""
) -> TaskManagerDetails:
    """A TaskExecutor with slots and metrics."""
    return TaskManagerDetails(
        **_fields(info, tasks, now),
        container_id=container,
        allocated_slots=_allocated_slots(info, tasks),
        metrics=_metrics(info.metrics),
    )


def _allocated_slots(info: TaskExecutorInfo, tasks: TaskCounts) -> list[AllocatedSlot]:
    """The slot of each task is unknown here: a job's tasks count equally for its slots."""
    held = Counter(slot.job_id for slot in info.allocated)
    seen: Counter[str] = Counter()
    slots = []
    for slot in info.allocated:
        if slot.job_id is None:
            continue
        share, rest = divmod(tasks[(info.registration.resource_id, slot.job_id)], held[slot.job_id])
        slots.append(
            AllocatedSlot(
                job_id=slot.job_id,
                resource=_profile([slot.profile], info),
                assigned_tasks=share + (1 if seen[slot.job_id] < rest else 0),
            )
        )
        seen[slot.job_id] += 1
    return slots


def _fields(info: TaskExecutorInfo, tasks: TaskCounts, now: int) -> dict[str, Any]:
    registration = info.registration
    slots = registration.slot_report.slots
    return {
        "id": registration.resource_id,
        "path": registration.address,
        "data_port": info.data_port,
        "time_since_last_heartbeat": now - info.milliseconds_since_heartbeat,
        "slots_number": len(slots),
        "free_slots": info.free_slots,
        "assigned_tasks": sum(n for (owner, _), n in tasks.items() if owner == registration.resource_id),
        "total_resource": _profile([slot.profile for slot in slots], info),
        "free_resource": _profile([slot.profile for slot in _free(slots, info.allocated)], info),
        "hardware": Hardware.model_validate(registration.hardware),
        "memory_configuration": MemoryConfiguration(
            framework_heap=registration.supervisor_memory,
            task_heap=max(
                0,
                registration.process_memory
                - registration.supervisor_memory
                - registration.hardware.managed_memory,
            ),
            managed_memory=registration.hardware.managed_memory,
            total_flink_memory=registration.process_memory,
            total_process_memory=registration.process_memory,
        ),
    }


def _free(slots: Sequence[SlotStatus], allocated: Sequence[SlotStatus]) -> list[SlotStatus]:
    taken = {slot.slot_id for slot in allocated}
    return [slot for slot in slots if slot.slot_id not in taken]


def _profile(profiles: Sequence[ResourceProfile], info: TaskExecutorInfo) -> ResourceProfileBody:
    """The sum; a profile without a value gets an equal share of the process's resources."""
    registration = info.registration
    count = max(1, len(registration.slot_report.slots))
    share_of_cores = registration.hardware.cpu_cores / count
    share_of_memory = max(0, registration.process_memory - registration.supervisor_memory) // count
    cores = sum(each.cpu_cores if each.cpu_cores >= 0 else share_of_cores for each in profiles)
    memory = sum(each.memory_bytes if each.memory_bytes >= 0 else share_of_memory for each in profiles)
    managed = min(memory, registration.hardware.managed_memory // count * len(profiles))
    return ResourceProfileBody(
        cpu_cores=cores, task_heap_memory=(memory - managed) >> 20, managed_memory=managed >> 20
    )


def _metrics(values: Mapping[str, float]) -> TaskManagerMetrics:
    def value(name: str, default: int = 0) -> int:
        found = values.get(name, default)
        return int(found) if math.isfinite(found) else default

    memory, shuffle = "Status.JVM.Memory", "Status.Shuffle.Netty"
    collector = "Status.JVM.GarbageCollector.All"
    return TaskManagerMetrics(
        heap_used=value(f"{memory}.Heap.Used"),
        heap_committed=value(f"{memory}.Heap.Committed"),
        heap_max=value(f"{memory}.Heap.Max", -1),
        non_heap_used=value(f"{memory}.NonHeap.Used"),
        non_heap_committed=value(f"{memory}.NonHeap.Committed"),
        non_heap_max=value(f"{memory}.NonHeap.Max", -1),
        direct_count=value(f"{memory}.Direct.Count"),
        direct_used=value(f"{memory}.Direct.MemoryUsed"),
        direct_max=value(f"{memory}.Direct.TotalCapacity"),
        mapped_count=value(f"{memory}.Mapped.Count"),
        mapped_used=value(f"{memory}.Mapped.MemoryUsed"),
        mapped_max=value(f"{memory}.Mapped.TotalCapacity"),
        netty_shuffle_memory_segments_available=value(f"{shuffle}.AvailableMemorySegments"),
        netty_shuffle_memory_segments_used=value(f"{shuffle}.UsedMemorySegments"),
        netty_shuffle_memory_segments_total=value(f"{shuffle}.TotalMemorySegments"),
        netty_shuffle_memory_available=value(f"{shuffle}.AvailableMemory"),
        netty_shuffle_memory_used=value(f"{shuffle}.UsedMemory"),
        netty_shuffle_memory_total=value(f"{shuffle}.TotalMemory"),
        garbage_collectors=[
            GarbageCollector(name="All", count=value(f"{collector}.Count"), time=value(f"{collector}.Time"))
        ],
    )
