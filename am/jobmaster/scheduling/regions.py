"""Regions: vertices and subtasks that must run at the same time, because data flows between them unstored.

Owner: none (pure). Blocking edges separate regions. Scheduling looks at vertices, failover at subtasks.
runtime/graph/distribution.py says which subtasks a pointwise edge connects, for workers as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from yarrow.am.jobmaster.scheduling.slot_pool import SharedSlot
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.distribution import consumers_of, producers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, ResultPartitionType


class Subtask(NamedTuple):
    """One subtask of a vertex, whichever its attempt."""

    vertex: JobVertexID
    number: int


class PipelinedRegion(msgspec.Struct, frozen=True):
    """Vertices connected by pipelined edges, and the vertices whose complete results they read."""

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
        blocking = {edge.source for edge in job.edges if is_blocking(edge) and edge.target in inside}
        # Two vertices may also be joined on a way around a blocking edge: such a region could never start.
        regions.append(PipelinedRegion(tuple(vertices), frozenset(blocking - inside)))
    return tuple(regions)


def one_region(job: JobGraph) -> tuple[PipelinedRegion, ...]:
    """The whole job as one region: eager scheduling."""
    return (PipelinedRegion(tuple(vertex.id for vertex in job.vertices), frozenset()),)


def is_blocking(edge: JobEdge) -> bool:
    """True for an edge whose consumers start when its producers have finished."""
    return edge.result_type is ResultPartitionType.BLOCKING


class SubtaskGraph:
    """Subtasks, the edges between them and the regions that they form: the parts of a job that fail together."""

    def __init__(self, job: JobGraph) -> None:
        self._job = job
        self._parallelism = {vertex.id: vertex.parallelism for vertex in job.vertices}
        self._inputs = {vertex.id: job.inputs_of(vertex.id) for vertex in job.vertices}
        self._outputs = {vertex.id: job.outputs_of(vertex.id) for vertex in job.vertices}
        self._region: dict[Subtask, int] = {}
        self._members: list[list[Subtask]] = []
        self._build()

    def all(self) -> Iterator[Subtask]:
        """Every subtask, vertex by vertex."""
        for vertex in self._job.vertices:
            yield from self.of_vertex(vertex.id)

    def of_vertex(self, vertex: JobVertexID) -> list[Subtask]:
        """The subtasks of a vertex."""
        return [Subtask(vertex, index) for index in range(self._parallelism[vertex])]

    def region_of(self, subtask: Subtask) -> int:
        """The number of the subtask's region."""
        return self._region[subtask]

    def members(self, region: int) -> list[Subtask]:
        """The subtasks of a region, vertex by vertex."""
        return self._members[region]

    def blocking_producers(self, subtask: Subtask) -> Iterator[tuple[JobEdge, Subtask]]:
        """The subtasks whose complete results this subtask reads."""
        for edge in self._inputs[subtask.vertex]:
            if is_blocking(edge):
                for index in self._producers(edge, subtask.number):
                    yield edge, Subtask(edge.source, index)

    def blocking_consumers(self, subtask: Subtask) -> Iterator[tuple[JobEdge, Subtask]]:
        """The subtasks that read this subtask's complete result."""
        for edge in self._outputs[subtask.vertex]:
            if is_blocking(edge):
                for index in self._consumers(edge, subtask.number):
                    yield edge, Subtask(edge.target, index)

    def _producers(self, edge: JobEdge, consumer: int) -> range:
        producers, consumers = self._parallelism[edge.source], self._parallelism[edge.target]
        return producers_of(edge.partitioner.kind, producers, consumers, consumer)

    def _consumers(self, edge: JobEdge, producer: int) -> range:
        producers, consumers = self._parallelism[edge.source], self._parallelism[edge.target]
        return consumers_of(edge.partitioner.kind, producers, consumers, producer)

    def _build(self) -> None:
        leader = {subtask: subtask for subtask in self.all()}

        def find(subtask: Subtask) -> Subtask:
            while leader[subtask] != subtask:
                leader[subtask] = leader[leader[subtask]]
                subtask = leader[subtask]
            return subtask

        def join(one: Subtask, other: Subtask) -> None:
            leader[find(one)] = find(other)

        for edge in self._job.edges:
            if is_blocking(edge):
                continue
            if edge.partitioner.kind.is_pointwise:
                for target in self.of_vertex(edge.target):
                    for index in self._producers(edge, target.number):
                        join(target, Subtask(edge.source, index))
            else:
                first = Subtask(edge.source, 0)
                for subtask in (*self.of_vertex(edge.source), *self.of_vertex(edge.target)):
                    join(subtask, first)
        numbers: dict[Subtask, int] = {}
        for subtask in leader:
            number = numbers.setdefault(find(subtask), len(numbers))
            if number == len(self._members):
                self._members.append([])
            self._region[subtask] = number
            self._members[number].append(subtask)


def shared_slot(vertex: JobVertex, subtask: int) -> SharedSlot:
    """The shared slot in which a subtask runs."""
    return SharedSlot(vertex.slot_sharing_group, subtask)


def slots_needed(job: JobGraph) -> int:
    """The number of slots that a job needs: the sum over slot sharing groups of the largest parallelism."""
    largest: dict[str, int] = {}
    for vertex in job.vertices:
        group = vertex.slot_sharing_group
        largest[group] = max(largest.get(group, 0), vertex.parallelism)
    return sum(largest.values())
