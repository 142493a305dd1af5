"""info --code: the functions that workers generate for the chains of a job.

Owner: the main thread. User functions are loaded and operators built as in a worker, on one that does not run:
nothing is opened, no function is called, no connection is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import (
    AllocationID,
    JobMasterID,
    ResourceID,
    WorkerID,
    execution_attempt_id,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.messages import (
    Deployment,
    TaskDeploymentDescriptor,
    VertexPlacement,
    WorkerAddress,
)

if TYPE_CHECKING:
    from yarrow.container.codegen.code_writer import CompiledCode
    from yarrow.container.network.network_environment import NetworkEnvironment

_GRAPH = "plan"
_WORKER, _RESOURCE = WorkerID("plan/1"), ResourceID("plan")


def print_generated_code(graph: JobGraph) -> None:
    """Prints the functions of each vertex's first subtask; names of bound objects stand for what they are."""
    network = _network()
    deployment = _deployment(graph)
    for vertex in graph.vertices:
        print(f"# {vertex.name}")
        sources = [code.source for code in _functions(graph, vertex, deployment, network)]
        print("\n".join(sources) if sources else "# no row functions: whole batches are handed on\n")


def _functions(
    graph: JobGraph, vertex: JobVertex, deployment: Deployment, network: NetworkEnvironment
) -> Iterator[CompiledCode]:
    from yarrow.container.chain.chain_compiler import ChainCompiler
    from yarrow.container.network.result_partition import ResultPartition
    from yarrow.container.operators.base import OperatorContext
    from yarrow.container.operators.registry import build_operator
    from yarrow.container.task.task_builder import TaskBuilder, TaskHooks

    task = next(task for task in deployment.tasks if task.vertex_id == vertex.id)
    hooks = TaskHooks(_NoListener(), lambda *_: None, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
    settings = Settings(graph.configuration)
    builder = TaskBuilder(deployment, graph, task, settings, network, SystemClock(), hooks, lambda: None)
    environment = builder.task_environment()
    operators = [build_operator(descriptor) for descriptor in vertex.operators]
    for operator, descriptor in zip(operators, vertex.operators, strict=True):
        operator.setup(OperatorContext.of(environment, descriptor))
    outputs = [builder.result_partition(edge) for edge in graph.outputs_of(vertex.id)]
    compiler = ChainCompiler(
        vertex,
        operators,
        [partition for partition in outputs if isinstance(partition, ResultPartition)],
        lambda partition: graph.vertex(partition.edge.target).max_parallelism,
        environment.object_reuse,
    )
    stamped = any(operator.stamps_rows for operator in operators)
    if operators[0].takes_rows:
        for index in range(1 + max((edge.target_input for edge in graph.inputs_of(vertex.id)), default=0)):
            yield compiler.compile_input(index, with_timestamps=stamped)
    for index, operator in enumerate(operators):
        # Rows begin here without having come through generated code.
        begins_rows = operator.converts_to_rows or (vertex.is_source and index == 0)
        if begins_rows and (compiler.children(index, None) or compiler.partitions_of(index, None)):
            yield compiler.compile_behind(index, None, with_timestamps=stamped)


class _NoListener:
    """Nobody listens to a task that does not run."""


def _network() -> NetworkEnvironment:
    from yarrow.container.network.io_thread import IoThread
    from yarrow.container.network.network_environment import NetworkEnvironment
    from yarrow.container.protocol.worker_protocol import WorkerSettings

    settings = WorkerSettings(
        worker_id=_WORKER,
        resource_id=_RESOURCE,
        host="127.0.0.1",
        host_key="plan",
        working_directory="/nonexistent",
        memory_budget_bytes=1 << 30,
        cpu_cores=1.0,
        configuration={},
        data_secret=b"",
    )
    return NetworkEnvironment(settings, IoThread())


def _deployment(graph: JobGraph) -> Deployment:
    """Everything in one worker."""
    address = WorkerAddress(
        worker_id=_WORKER, resource_id=_RESOURCE, host="127.0.0.1", port=0, unix_path="", host_key="plan"
    )
    return Deployment(
        job_id=graph.job_id,
        job_master_id=JobMasterID("plan"),
        job_graph=b"",
        workers=(address,),
        placements=tuple(
            VertexPlacement(
                vertex_id=vertex.id,
                graph_id=_GRAPH,
                workers=(0,) * vertex.parallelism,
                attempts=(0,) * vertex.parallelism,
            )
            for vertex in graph.vertices
        ),
        tasks=tuple(
            TaskDeploymentDescriptor(
                attempt_id=execution_attempt_id(_GRAPH, vertex.id, 0, 0),
                vertex_id=vertex.id,
                subtask=0,
                attempt_number=0,
                allocation_id=AllocationID("plan"),
            )
            for vertex in graph.vertices
        ),
    )
