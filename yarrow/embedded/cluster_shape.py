"""The size of a cluster on this machine: slots, TaskExecutors and memory, for a job or a test.

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
from yarrow.runtime.graph.states import BatchRunner, JobType

#: Default memory of a slot: an interpreter, pyarrow and room to work in.
SLOT_MEMORY = MemorySize.of_mebi_bytes(512)
_HEARTBEAT = Duration.of_millis(1000)
#: A TaskExecutor on this machine starts within seconds, or something is broken.
_SLOT_TIMEOUT = Duration.of_seconds(60)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The parts of a cluster to start."""

    slots_per_task_executor: int
    #: Started with the cluster; more start when a job needs them.
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
    """One TaskExecutor with all slots the job needs, or as many as taskmanager.numberOfTaskSlots requires.

    A bounded job on Spark needs none: it runs in its SparkDriver. Without Spark its tasks run in one TaskExecutor.
    """
    is_batch = job_graph.job_type is JobType.BATCH
    is_local = is_batch and job_graph.batch_runner is BatchRunner.LOCAL
    needed = slots_needed(job_graph)
    if is_local:
        # It runs stage by stage.
        needed = max(vertex.parallelism for vertex in job_graph.vertices)
    slots = needed
    if config.is_set(taskmanager.NUMBER_OF_TASK_SLOTS):
        slots = config.get(taskmanager.NUMBER_OF_TASK_SLOTS)
    return ClusterShape(
        slots_per_task_executor=slots,
        task_executors=int(is_local) if is_batch else -(-needed // slots),
        processes=not config.get(execution.IN_PROCESS),
        one_job=True,
    )


def embedded_settings(config: Settings, slots: int) -> Settings:
    """The settings, with defaults for a cluster on one machine: memory, heartbeats, patience.

    Raises MemoryBudgetError if the configured process size leaves a slot too little.
    """
    if not config.is_set(rpc.HEARTBEAT_INTERVAL) and config.get(rpc.HEARTBEAT_TIMEOUT) > _HEARTBEAT:
        # Metrics come with heartbeats, and somebody may be watching.
        config = config.with_value(rpc.HEARTBEAT_INTERVAL, _HEARTBEAT)
    if not config.is_set(resourcemanager.SLOT_REQUEST_TIMEOUT):
        config = config.with_value(resourcemanager.SLOT_REQUEST_TIMEOUT, _SLOT_TIMEOUT)
    if not config.is_set(resourcemanager.REQUIREMENT_CHECK_DELAY):
        # One job, whose TaskExecutor processes already wait.
        config = config.with_value(resourcemanager.REQUIREMENT_CHECK_DELAY, Duration(0))
    if not config.is_set(taskmanager.PROCESS_SIZE):
        needed = process_size_for(slots, SLOT_MEMORY, config.get(taskmanager.SUPERVISOR_SIZE))
        config = config.with_value(
            taskmanager.PROCESS_SIZE, max(needed, config.get(taskmanager.PROCESS_SIZE))
        )
    task_executor_budget(config, slots)
    return config
