"""Job graphs whose functions are never run: for tests and benchmarks of the control plane.

Owner: none (pure).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.graph.connector_spec import PrintOperator, SourceOperator
from yarrow.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorDescriptor,
    ResultPartitionType,
    UserCode,
)
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerKind, PartitionerSpec, StreamKind


@dataclass(frozen=True, slots=True)
class Stage:
    """One vertex of a straight line."""

    parallelism: int
    group: str = "default"
    #: Whether it waits for the stage before it to finish.
    blocking: bool = False
    operator: OperatorSpec | None = None
    max_parallelism: int = 1024


def linear_job(*stages: Stage, job_id: int = 1, name: str = "line") -> JobGraph:
    """A job whose vertices follow each other, with forward edges between equal parallelisms."""
    vertices = tuple(_vertex(index, stage) for index, stage in enumerate(stages))
    edges = tuple(_edge(index, stages, vertices) for index in range(len(stages) - 1))
    return JobGraph(
        job_id=JobID(f"{job_id:032x}"),
        name=name,
        vertices=vertices,
        edges=edges,
        user_code=UserCode(python_version=(sys.version_info.major, sys.version_info.minor)),
    )


def _vertex(index: int, stage: Stage) -> JobVertex:
    spec = stage.operator or (SourceOperator(source=b"") if index == 0 else PrintOperator())
    operator = OperatorDescriptor(id=OperatorID(f"{index + 1:032x}"), name=f"operator {index}", spec=spec)
    return JobVertex(
        id=JobVertexID(f"{index + 1:032x}"),
        name=f"vertex {index}",
        operators=(operator,),
        chained_edges=(),
        parallelism=stage.parallelism,
        max_parallelism=stage.max_parallelism,
        slot_sharing_group=stage.group,
        buffer_timeout_ms=100,
    )


def _edge(index: int, stages: tuple[Stage, ...], vertices: tuple[JobVertex, ...]) -> JobEdge:
    source, target = stages[index], stages[index + 1]
    same = source.parallelism == target.parallelism
    return JobEdge(
        index=index,
        source=vertices[index].id,
        source_operator=0,
        target=vertices[index + 1].id,
        target_input=0,
        partitioner=PartitionerSpec(kind=PartitionerKind.FORWARD if same else PartitionerKind.REBALANCE),
        result_type=ResultPartitionType.BLOCKING if target.blocking else ResultPartitionType.PIPELINED,
        stream_kind=StreamKind.ROW,
    )
