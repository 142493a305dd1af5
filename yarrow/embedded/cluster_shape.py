"""How large a cluster on this machine is: slots, TaskExecutors and memory, for a job or for a test.

Owner: any thread; pure.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.runtime.config.memory import process_size_for, task_executor_budget
from yarrow.runtime.config.options import execution, resourcemanager, rpc, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph

#: What a slot gets where the configuration says nothing: an interpreter, pyarrow and room to work in.
SLOT_MEMORY = MemorySize.of_mebi_bytes(512)
_HEARTBEAT = Duration.of_millis(1000)
#: A TaskExecutor of this machine is there within seconds, or something is broken.
_SLOT_TIMEOUT = Duration.of_seconds(60)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """What is started."""

    slots_per_task_executor: int
    #: Started with the cluster; more come when a job needs them.
    task_executors: int = 1
    #: False = control plane, TaskExecutors and workers are threads of this process.
    processes: bool = True
    #: The cluster ends with its first job.
    one_job: bool = False


def slots_needed(job_graph: JobGraph) -> int:
    """The sum over slot sharing groups of the largest parallelism in each."""
    largest: dict[str, int] = defaultdict(int)
    for vertex in job_graph.vertices:
        group = vertex.slot_sharing_group
        largest[group] = max(largest[group], vertex.parallelism)
    return sum(largest.values())


def shape_for_job(job_graph: JobGraph, config: Settings) -> ClusterShape:
    """One TaskExecutor with all slots the job needs, or as many as taskmanager.numberOfTaskSlots requires."""
    needed = slots_needed(job_graph)
    slots = needed
    if config.is_set(taskmanager.NUMBER_OF_TASK_SLOTS):
        slots = config.get(taskmanager.NUMBER_OF_TASK_SLOTS)
    return ClusterShape(
        slots_per_task_executor=slots,
        task_executors=-(-needed // slots),
        processes=not config.get(execution.IN_PROCESS),
        one_job=True,
    )


def embedded_settings(config: Settings, slots: int) -> Settings:
    """The settings with what fits a cluster of one machine where they say nothing: memory, heartbeats, patience.

    Raises MemoryBudgetError when the process size that is set leaves a slot too little.
    """
    if not config.is_set(rpc.HEARTBEAT_INTERVAL) and config.get(rpc.HEARTBEAT_TIMEOUT) > _HEARTBEAT:
        # Metrics come with heartbeats, and somebody may be looking on.
        config = config.with_value(rpc.HEARTBEAT_INTERVAL, _HEARTBEAT)
    if not config.is_set(resourcemanager.SLOT_REQUEST_TIMEOUT):
        config = config.with_value(resourcemanager.SLOT_REQUEST_TIMEOUT, _SLOT_TIMEOUT)
    if not config.is_set(resourcemanager.REQUIREMENT_CHECK_DELAY):
        # One job, whose TaskExecutors are processes that wait already.
        config = config.with_value(resourcemanager.REQUIREMENT_CHECK_DELAY, Duration(0))
    if not config.is_set(taskmanager.PROCESS_SIZE):
        needed = process_size_for(slots, SLOT_MEMORY, config.get(taskmanager.SUPERVISOR_SIZE))
        config = config.with_value(
            taskmanager.PROCESS_SIZE, max(needed, config.get(taskmanager.PROCESS_SIZE))
        )
    task_executor_budget(config, slots)
    return config
