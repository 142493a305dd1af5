"""Checks what blocking exchanges rule out: a result that is never complete would never be read.

Part of graph building, on the client's thread. Must not look into sources: callers pass what a source says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options import execution as execution_options
from yarrow.runtime.graph.job_graph import ResultPartitionType
from yarrow.runtime.graph.stream_graph import StreamEdge, StreamGraph


def refuse_endless_results(graph: StreamGraph, unbounded: Mapping[int, str]) -> None:
    """Raises InvalidProgramError naming a source of `unbounded`, by its id, and the edge that waits for its end."""
    for source, name in unbounded.items():
        edge = _first_blocking(graph, source)
        if edge is not None:
            key = execution_options.EXCHANGE_MODE.key
            raise InvalidProgramError(
                f"'{name}' is unbounded, and {key} is blocking: '{graph.nodes[edge.target].name}' would begin when"
                f" '{graph.nodes[edge.source].name}' has ended, which it never does. Bound the source, or set {key} to"
                " pipelined."
            )


def _first_blocking(graph: StreamGraph, source: int) -> StreamEdge | None:
    """The first blocking edge on the way of the source's records."""
    todo, seen = [source], set[int]()
    while todo:
        found = todo.pop()
        if found in seen or found not in graph.nodes:
            continue
        seen.add(found)
        for edge in graph.nodes[found].out_edges:
            if edge.result_type is ResultPartitionType.BLOCKING:
                return edge
            todo.append(edge.target)
    return None
