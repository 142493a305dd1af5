"""Checks of a submitted job, before the Dispatcher starts anything.

Owner: none (pure). Each refusal names the thing, the expected value and what to do.
"""

from __future__ import annotations

import sys

import msgspec

from yarrow.runtime.common.errors import JobSubmissionError
from yarrow.runtime.common.ids import is_hex_id
from yarrow.runtime.graph.job_graph import (
    JOB_GRAPH_VERSION,
    JobEdge,
    JobGraph,
    JobVertex,
    decode_job_graph,
)
from yarrow.runtime.graph.operator_spec import PartitionerKind

#: Largest number of key groups.
MAX_PARALLELISM = 32768


class _Versioned(msgspec.Struct):
    version: int = 0


def decode_and_validate(encoded: bytes) -> JobGraph:
    """Decodes a graph. Raises JobSubmissionError if it cannot run here."""
    try:
        version = msgspec.msgpack.decode(encoded, type=_Versioned).version
        if version != JOB_GRAPH_VERSION:
            raise JobSubmissionError(
                f"the job graph has version {version}, this cluster runs version {JOB_GRAPH_VERSION}:"
                " install the same version of Yarrow on client and cluster"
            )
        graph = decode_job_graph(encoded)
    except msgspec.DecodeError as error:
        raise JobSubmissionError(f"the submitted bytes are no job graph: {error}") from None
    validate(graph)
    return graph


def validate(graph: JobGraph) -> None:
    """Raises JobSubmissionError for the first fault."""
    if not is_hex_id(graph.job_id):
        raise JobSubmissionError(f"{graph.job_id!r} is no job id: expected 32 hexadecimal digits")
    if not graph.vertices:
        raise JobSubmissionError(
            f"job {graph.name!r} has no operators: add a source and a sink, then execute"
        )
    _check_python(graph)
    vertices: dict[str, JobVertex] = {}
    for vertex in graph.vertices:
        if vertex.id in vertices:
            raise JobSubmissionError(f"two vertices of job {graph.name!r} have the id {vertex.id}")
        vertices[vertex.id] = vertex
        _check_parallelism(vertex)
    for edge in graph.edges:
        _check_edge(edge, vertices)


def _check_python(graph: JobGraph) -> None:
    own = sys.version_info[:2]
    theirs = tuple(graph.user_code.python_version)
    if theirs != own:
        raise JobSubmissionError(
            f"job {graph.name!r} was built with Python {theirs[0]}.{theirs[1]}, this cluster runs Python "
            f"{own[0]}.{own[1]}. Functions do not travel between them: use the same minor version on both"
        )


def _check_parallelism(vertex: JobVertex) -> None:
    if vertex.parallelism < 1:
        raise JobSubmissionError(
            f"{vertex.name}: parallelism {vertex.parallelism} is below 1: set at least 1"
        )
    if vertex.parallelism > vertex.max_parallelism:
        raise JobSubmissionError(
            f"{vertex.name}: parallelism {vertex.parallelism} is above its max parallelism "
            f"{vertex.max_parallelism}: lower the parallelism, or raise the max parallelism with "
            "set_max_parallelism"
        )
    if vertex.max_parallelism > MAX_PARALLELISM:
        raise JobSubmissionError(
            f"{vertex.name}: max parallelism {vertex.max_parallelism} is above {MAX_PARALLELISM}: set at "
            f"most {MAX_PARALLELISM}"
        )


def _check_edge(edge: JobEdge, vertices: dict[str, JobVertex]) -> None:
    source, target = vertices.get(edge.source), vertices.get(edge.target)
    if source is None or target is None:
        unknown = edge.source if source is None else edge.target
        raise JobSubmissionError(f"edge {edge.index} names the vertex {unknown}, which the job does not have")
    if edge.partitioner.kind is PartitionerKind.FORWARD and source.parallelism != target.parallelism:
        raise JobSubmissionError(
            f"forward edge from {source.name} to {target.name}: parallelism {source.parallelism} and"
            f" {target.parallelism} differ; use rescale() or rebalance()"
        )
