"""Chaining: which operators are fused into one vertex, by Flink's conditions, as pure functions of the StreamGraph.

Owner: the thread that builds the program. Nothing here changes the graph. A chain is a tree: its head takes
records from edges. Every other operator has exactly one input, and the operator before it calls it.
"""

from __future__ import annotations

from collections.abc import Iterator

from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from yarrow.runtime.graph.transformations import ChainingStrategy


def is_chainable(edge: StreamEdge, graph: StreamGraph) -> bool:
    """Whether the edge becomes a call inside a vertex instead of an exchange."""
    upstream, downstream = graph.nodes[edge.source], graph.nodes[edge.target]
    return (
        graph.chaining_enabled
        and len(downstream.in_edges) == 1
        and edge.partitioner.kind is PartitionerKind.FORWARD
        and upstream.slot_sharing_group == downstream.slot_sharing_group
        and upstream.parallelism == downstream.parallelism
        and _strategies_allow(upstream, downstream)
        and _max_parallelisms_allow(upstream, downstream, graph)
    )


def _strategies_allow(upstream: StreamNode, downstream: StreamNode) -> bool:
    return upstream.chaining is not ChainingStrategy.NEVER and downstream.chaining is ChainingStrategy.ALWAYS


def _max_parallelisms_allow(upstream: StreamNode, downstream: StreamNode, graph: StreamGraph) -> bool:
    return graph.chain_different_max_parallelism or upstream.max_parallelism == downstream.max_parallelism


def chained_edges(node: StreamNode, graph: StreamGraph) -> Iterator[StreamEdge]:
    """The edges over which the operator calls others of its vertex."""
    return (edge for edge in node.out_edges if is_chainable(edge, graph))


def heads(graph: StreamGraph) -> Iterator[StreamNode]:
    """The operators that begin a vertex."""
    for node in graph.nodes.values():
        if not any(is_chainable(edge, graph) for edge in node.in_edges):
            yield node


def chain_of(head: StreamNode, graph: StreamGraph) -> list[StreamNode]:
    """The operators of the vertex that `head` begins; each comes after its caller, and the head is first."""
    members: list[StreamNode] = []
    waiting = [head]
    while waiting:
        node = waiting.pop()
        members.append(node)
        waiting.extend(graph.nodes[edge.target] for edge in reversed(list(chained_edges(node, graph))))
    return members


def chain_name(head: StreamNode, graph: StreamGraph) -> str:
    """The name of a vertex in Flink's form: `A -> B -> C`, with `A -> (B, C -> D)` where a chain divides."""
    names: dict[int, str] = {}
    for node in reversed(chain_of(head, graph)):
        behind = [names[edge.target] for edge in chained_edges(node, graph)]
        joined = behind[0] if len(behind) == 1 else f"({', '.join(behind)})"
        names[node.id] = f"{node.name} -> {joined}" if behind else node.name
    return names[head.id]
