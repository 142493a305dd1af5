"""Bodies about TaskExecutors, which Flink's API calls task managers.

Owner: none (declarations). Memory of the hardware and of processes is in bytes, that of resource profiles in
megabytes, as in Flink.
"""

from __future__ import annotations

from pydantic import Field

from yarrow.am.rest.models.base import CamelModel, RestModel


class ResourceProfileBody(CamelModel):
    """The resources of slots together (megabytes)."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = Field(default_factory=dict)


class Hardware(CamelModel):
    """The machine (bytes)."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(CamelModel):
    """The budget of the process (bytes): the supervisor has the framework's part, workers the tasks'."""

    framework_heap: int
    task_heap: int
    #: The share of state backends (RocksDB) in the memory of all slots.
    managed_memory: int
    #: Pools of a JVM: a Python process has none of them. Batches between tasks are bounded by credit, not by a pool.
    framework_off_heap: int | None = None
    task_off_heap: int | None = None
    network_memory: int | None = None
    jvm_metaspace: int | None = None
    jvm_overhead: int | None = None
    total_flink_memory: int
    total_process_memory: int


class TaskManagerInfo(CamelModel):
    """A registered TaskExecutor."""

    id: str
    path: str
    #: The lowest port on which a worker takes data from other hosts, -1 = none: no job runs, or all is on one host.
    data_port: int
    jmx_port: int = -1
    #: Epoch milliseconds of the last heartbeat.
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: ResourceProfileBody
    free_resource: ResourceProfileBody
    hardware: Hardware
    memory_configuration: MemoryConfiguration
    #: YARN's id of its container, "" without YARN. Yarrow's.
    container_id: str = ""


class TaskManagers(RestModel):
    """All registered TaskExecutors."""

    taskmanagers: list[TaskManagerInfo]


class GarbageCollector(RestModel):
    """Collections so far, and the milliseconds they took."""

    name: str
    count: int
    time: int


class TaskManagerMetrics(CamelModel):
    """Memory of the process (bytes); the heap is what supervisor and workers use together."""

    heap_used: int
    heap_committed: int
    heap_max: int
    non_heap_used: int
    non_heap_committed: int
    non_heap_max: int
    direct_count: int
    direct_used: int
    direct_max: int
    mapped_count: int
    mapped_used: int
    mapped_max: int
    netty_shuffle_memory_segments_available: int
    netty_shuffle_memory_segments_used: int
    netty_shuffle_memory_segments_total: int
    netty_shuffle_memory_available: int
    netty_shuffle_memory_used: int
    netty_shuffle_memory_total: int
    garbage_collectors: list[GarbageCollector]


class AllocatedSlot(CamelModel):
    """A slot that a job holds; a job's tasks count equally for the slots it has there."""

    job_id: str
    resource: ResourceProfileBody
    assigned_tasks: int


class TaskManagerDetails(TaskManagerInfo):
    """A registered TaskExecutor with its slots and metrics."""

    allocated_slots: list[AllocatedSlot]
    metrics: TaskManagerMetrics
