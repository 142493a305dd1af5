"""Rules of batch jobs: which programs BATCH refuses, each by operator and remedy. Pure.

Owner: any thread; the client asks when it has built the graph. Must not look into user code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options.execution import RUNTIME_MODE, RuntimeMode
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration, borders_of, iterations_of
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import IterationRole, PartitionerKind
from yarrow.runtime.graph.states import BatchRunner, JobType

if TYPE_CHECKING:
    from yarrow.runtime.graph.batch.batch_runner import RunnerChoice


class BatchRefusedError(UnsupportedFeatureError):
    """A program cannot run in BATCH mode; the message names the operator and the remedy."""

    def __init__(self, operator: str, problem: str, remedy: str) -> None:
        super().__init__(f"execution.runtime-mode BATCH refuses operator '{operator}': {problem}; {remedy}")
        self.operator = operator


def is_bounded(graph: JobGraph) -> bool:
    """Whether all sources end by themselves: AUTOMATIC then means BATCH."""
    return all(vertex.head.spec.is_bounded for vertex in graph.vertices if vertex.is_source)


def in_mode(graph: JobGraph, mode: RuntimeMode, choose: Callable[[], RunnerChoice]) -> JobGraph:
    """The job as it runs in that mode; AUTOMATIC means BATCH if all sources end by themselves.

    `choose` says who runs it in BATCH. Raises BatchRefusedError, with operator and remedy, for a program that BATCH
    does not run. Raises InvalidOptionValue for a key of Spark that no job may set so.
    """
    if mode is RuntimeMode.STREAMING or (mode is RuntimeMode.AUTOMATIC and not is_bounded(graph)):
        _refuse_iterations(graph)
        return graph
    # A stream's client does without the modules of batch plans.
    from yarrow.runtime.graph.batch.batch_plan_text import with_batch_plan
    from yarrow.runtime.graph.batch.batch_planner import plan
    from yarrow.runtime.graph.batch.batch_runner import RunnerChoice
    from yarrow.runtime.graph.batch.spark_options import check_spark_options

    check(graph)
    choice = choose()
    looping = iterations_of(graph)
    if looping and choice.runner is BatchRunner.LOCAL:
        reason = f"the iteration '{looping[0].control.name}' executes a part of the plan several times"
        choice = RunnerChoice(BatchRunner.SPARK, reason)
    if choice.runner is BatchRunner.SPARK:
        check_spark_options(Settings(graph.configuration, "the job"))
    graph = msgspec.structs.replace(
        graph,
        job_type=JobType.BATCH,
        batch_runner=choice.runner,
        batch_runner_reason=choice.reason,
        # Tasks read the mode there, and AUTOMATIC tells them nothing.
        configuration={**graph.configuration, RUNTIME_MODE.key: RuntimeMode.BATCH.value},
    )
    shown = with_batch_plan(graph.plan, plan(graph)) if graph.plan else graph.plan
    return msgspec.structs.replace(graph, plan=shown)


def _refuse_iterations(graph: JobGraph) -> None:
    """A stream has no end of a superstep."""
    for vertex in graph.vertices:
        for operator, _ in borders_of(vertex):
            raise UnsupportedFeatureError(
                f"operator '{operator.name}' belongs to an iteration of data sets, which runs in BATCH mode only: set"
                f" {RUNTIME_MODE.key} to BATCH"
            )


def check(graph: JobGraph) -> None:
    """Raises BatchRefusedError for the first operator that BATCH refuses, upstream first."""
    for vertex in graph.vertices:
        if vertex.is_source and not vertex.head.spec.is_bounded:
            raise BatchRefusedError(
                vertex.head.name,
                "it is a source that does not end by itself",
                "read with from_source and a Source whose boundedness is BOUNDED (files, collections, numbers), or "
                "set the mode to STREAMING",
            )
        _check_inputs(graph, vertex)
        _check_loops(vertex)
    _check_iterations(graph)


def _check_loops(vertex: JobVertex) -> None:
    """A stage runs once, and its rows do not come back."""
    for operator in vertex.operators:
        if operator.spec.opens_loop is not None:
            raise BatchRefusedError(
                operator.name,
                "it is the iteration of a stream, whose rows go round while it runs",
                "set the mode to STREAMING, or iterate over a data set (yarrow.batch.dataset)",
            )


def _check_iterations(graph: JobGraph) -> None:
    """What an iteration computes leaves it by its results alone: anything else would see one superstep, or all."""
    closed = iterations_of(graph)
    known = {iteration.id for iteration in closed}
    for vertex in graph.vertices:
        for operator, place in borders_of(vertex):
            if place.iteration not in known:
                raise BatchRefusedError(
                    operator.name,
                    "it begins an iteration that has no end",
                    "call close_with with the data set that begins the next superstep",
                )
    owners: dict[JobVertexID, str] = {}
    for iteration in closed:
        leading = _leading_on(graph, iteration)
        for vertex_id in iteration.body:
            vertex = graph.vertex(vertex_id)
            sink = next((operator for operator in vertex.operators if operator.spec.is_sink), None)
            name = (sink or vertex.head).name
            if sink is not None or vertex_id not in leading:
                raise BatchRefusedError(
                    name,
                    f"it reads a data set of the iteration '{iteration.control.name}', which lives for a superstep",
                    "read what close_with returns, behind the iteration",
                )
            if vertex_id in owners:
                raise BatchRefusedError(
                    name,
                    f"it belongs to the iterations '{owners[vertex_id]}' and '{iteration.control.name}', and iterations"
                    " cannot be nested",
                    "close the inner one before the outer one begins, or unroll it",
                )
            owners[vertex_id] = iteration.control.name


def _leading_on(graph: JobGraph, iteration: BatchIteration) -> set[JobVertexID]:
    """The vertices of the body behind which an output or the criterion stands."""
    found: set[JobVertexID] = set()
    for vertex_id in reversed(iteration.body):
        roles = {
            place.role for _, place in borders_of(graph.vertex(vertex_id)) if place.iteration == iteration.id
        }
        ends = roles & {IterationRole.OUTPUT, IterationRole.CRITERION}
        if ends or any(edge.target in found for edge in graph.outputs_of(vertex_id)):
            found.add(vertex_id)
    return found


def _check_inputs(graph: JobGraph, vertex: JobVertex) -> None:
    """A key's records of both inputs have to meet, which those of an unkeyed input never do."""
    kinds = {
        edge.partitioner.kind
        for edge in graph.inputs_of(vertex.id)
        if edge.partitioner.kind is not PartitionerKind.BROADCAST
    }
    if PartitionerKind.KEY_GROUP in kinds and len(kinds) > 1:
        raise BatchRefusedError(
            vertex.head.name,
            "one of its inputs is keyed and the other is not",
            "call key_by on both streams, or broadcast the other one, or set the mode to STREAMING",
        )
