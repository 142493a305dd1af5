"""Rules of loops: which programs with iterate() are refused when they are built, by operator and remedy. Pure.

Owner: the thread that builds the program. Must not change the graph.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.job_graph import ResultPartitionType
from yarrow.runtime.graph.loops.loop_paths import reached
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode


def check_loops(graph: StreamGraph) -> None:
    """Raises InvalidProgramError for the first loop that cannot run, with its operator."""
    heads = {node.spec.opens_loop: node for node in graph.nodes.values() if node.spec.opens_loop is not None}
    if not heads:
        return
    tails = {
        node.spec.closes_loop: node for node in graph.nodes.values() if node.spec.closes_loop is not None
    }
    for loop, head in heads.items():
        tail = tails.get(loop)
        if tail is None:
            raise InvalidProgramError(
                f"The iteration {head.name!r} is not closed: call close_with on what iterate() returned, with the"
                " stream of the records that go round again. Leave iterate() out if none does."
            )
        _check_parallelism(graph, head, tail)
        _check_body(graph, head, tail)


def _check_parallelism(graph: StreamGraph, head: StreamNode, tail: StreamNode) -> None:
    for edge in tail.in_edges:
        source = graph.nodes[edge.source]
        if source.parallelism != head.parallelism:
            raise InvalidProgramError(
                f"The feedback of the iteration {head.name!r} comes from {source.name!r} with parallelism"
                f" {source.parallelism}, but the iteration has {head.parallelism}. Feedback stays in its subtask: make"
                " both equal with set_parallelism."
            )


def _check_body(graph: StreamGraph, head: StreamNode, tail: StreamNode) -> None:
    behind = {node.id: [edge.target for edge in node.out_edges] for node in graph.nodes.values()}
    before = {node.id: [edge.source for edge in node.in_edges] for node in graph.nodes.values()}
    body = reached({head.id}, behind) & reached({tail.id}, before)
    if not body:
        raise InvalidProgramError(
            f"The feedback of the iteration {head.name!r} does not come from it. Give close_with a stream that is made"
            " of the stream that iterate() returned, or use union."
        )
    for node in graph.nodes.values():
        if node.id not in body:
            continue
        if node.spec.opens_loop not in (None, head.spec.opens_loop):
            raise UnsupportedFeatureError(
                f"The iteration {node.name!r} is a part of the iteration {head.name!r}, and loops cannot be nested."
                " Close the inner one before the outer one begins, or send both ways round one loop."
            )
        for edge in node.in_edges:
            if edge.source in body and edge.result_type is ResultPartitionType.BLOCKING:
                raise UnsupportedFeatureError(
                    f"The iteration {head.name!r} has a blocking exchange before {node.name!r}, which hands nothing on"
                    " before the loop ends. Set execution.exchange-mode to pipelined."
                )
