"""Pipelined regions: vertices that must run at the same time, because data flows between them unstored.

Owner: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.am.jobmaster.slot_pool import SharedSlot
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, ResultPartitionType


@dataclass(frozen=True, slots=True)
class PipelinedRegion:
    """Vertices connected by pipelined edges, and those whose complete results they read."""

    vertices: tuple[JobVertexID, ...]
    #: Vertices of other regions that must have finished before this one starts.
    blocking_inputs: frozenset[JobVertexID]


def pipelined_regions(job: JobGraph) -> tuple[PipelinedRegion, ...]:
    """The regions of a job, in the topological order of their first vertices."""
    leader = {vertex.id: vertex.id for vertex in job.vertices}

    def find(vertex: JobVertexID) -> JobVertexID:
        while leader[vertex] != vertex:
            leader[vertex] = leader[leader[vertex]]
            vertex = leader[vertex]
        return vertex

    for edge in job.edges:
        if edge.result_type is ResultPartitionType.PIPELINED:
            leader[find(edge.target)] = find(edge.source)
    members: dict[JobVertexID, list[JobVertexID]] = {}
    for vertex in job.vertices:
        members.setdefault(find(vertex.id), []).append(vertex.id)
    regions = []
    for vertices in members.values():
        inside = set(vertices)
        blocking = {edge.source for edge in job.edges if edge.target in inside} - inside
        regions.append(PipelinedRegion(tuple(vertices), frozenset(blocking)))
    return tuple(regions)


def one_region(job: JobGraph) -> tuple[PipelinedRegion, ...]:
    """The whole job as one region: eager scheduling."""
    return (PipelinedRegion(tuple(vertex.id for vertex in job.vertices), frozenset()),)


def shared_slot(vertex: JobVertex, subtask: int) -> SharedSlot:
    """The shared slot in which a subtask runs."""
    return SharedSlot(vertex.slot_sharing_group, subtask)


def slots_needed(job: JobGraph) -> int:
    """The sum over slot sharing groups of the largest parallelism."""
    largest: dict[str, int] = {}
    for vertex in job.vertices:
        group = vertex.slot_sharing_group
        largest[group] = max(largest.get(group, 0), vertex.parallelism)
    return sum(largest.values())
