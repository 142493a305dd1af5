"""The way round each loop of a JobGraph: its head, its tail and the edges between them. Pure.

Owner: any thread. Workers ask which channels of a task carry markers of a loop. Must not know channels or tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind

Node = TypeVar("Node", int, JobVertexID)

#: Rounds in a row without feedback behind which a loop is over.
QUIET_ROUNDS = 2


class LoopPath(NamedTuple):
    """One loop."""

    number: int
    head: JobVertexID
    tail: JobVertexID
    #: Indexes of the edges on some way from head to tail.
    edges: frozenset[int]
    #: Rounds in a row without feedback behind which it is over.
    quiet_rounds: int


def loops_of(graph: JobGraph) -> tuple[LoopPath, ...]:
    """All loops of a job, in the order of their heads."""
    heads: dict[int, JobVertexID] = {}
    tails: dict[int, JobVertexID] = {}
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if (opened := operator.spec.opens_loop) is not None:
                heads[opened] = vertex.id
            if (closed := operator.spec.closes_loop) is not None:
                tails[closed] = vertex.id
    return tuple(_path(graph, number, head, tails[number]) for number, head in heads.items())


def _path(graph: JobGraph, number: int, head: JobVertexID, tail: JobVertexID) -> LoopPath:
    behind: dict[JobVertexID, set[JobVertexID]] = {}
    before: dict[JobVertexID, set[JobVertexID]] = {}
    for edge in graph.edges:
        behind.setdefault(edge.source, set()).add(edge.target)
        before.setdefault(edge.target, set()).add(edge.source)
    body = reached({head}, behind) & reached({tail}, before)
    edges = [edge for edge in graph.edges if edge.source in body and edge.target in body]
    # Behind rescale a head hears of some heads only, and of others through these: a round for each step of that way.
    some_only = any(edge.partitioner.kind is PartitionerKind.RESCALE for edge in edges)
    rounds = 1 + graph.vertex(head).parallelism if some_only else QUIET_ROUNDS
    return LoopPath(number, head, tail, frozenset(edge.index for edge in edges), max(QUIET_ROUNDS, rounds))


def reached(begin: Iterable[Node], following: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """All nodes on ways that begin at some nodes, these included."""
    found: set[Node] = set()
    waiting = list(begin)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(following.get(node, ()))
    return found
