"""Rules of batch jobs: which programs BATCH refuses, each by operator and remedy. Pure.

Owner: any thread; the client asks when it has built the graph. Must not look into user code.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.config.options.execution import RuntimeMode
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.states import JobType


class BatchRefusedError(UnsupportedFeatureError):
    """A program cannot run in BATCH mode; the message names the operator and the remedy."""

    def __init__(self, operator: str, problem: str, remedy: str) -> None:
        super().__init__(f"execution.runtime-mode BATCH refuses operator '{operator}': {problem}; {remedy}")
        self.operator = operator


def is_bounded(graph: JobGraph) -> bool:
    """Whether all sources end by themselves: AUTOMATIC then means BATCH."""
    return all(vertex.head.spec.is_bounded for vertex in graph.vertices if vertex.is_source)


def in_mode(graph: JobGraph, mode: RuntimeMode) -> JobGraph:
    """The job as it runs in that mode; AUTOMATIC means BATCH if all sources end by themselves.

    Raises BatchRefusedError, with operator and remedy, for a program that BATCH does not run.
    """
    if mode is RuntimeMode.STREAMING or (mode is RuntimeMode.AUTOMATIC and not is_bounded(graph)):
        return graph
    # A stream's client does without the modules of batch plans.
    from yarrow.runtime.graph.batch_plan_text import with_batch_plan
    from yarrow.runtime.graph.batch_planner import plan

    check(graph)
    shown = with_batch_plan(graph.plan, plan(graph)) if graph.plan else graph.plan
    return msgspec.structs.replace(graph, job_type=JobType.BATCH, plan=shown)


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
