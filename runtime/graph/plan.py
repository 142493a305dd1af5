"""Plans as JSON in Flink's two shapes: the execution plan of a StreamGraph, the plan of a JobGraph.

Owner: none; pure. Beyond Flink's fields an input says by `stream_kind` whether it carries rows or columns.
"""

from __future__ import annotations

import html
from typing import Any

from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, ResultPartitionType
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode


def execution_plan(graph: StreamGraph) -> dict[str, Any]:
    """Every operator before chaining: what `get_execution_plan` prints."""
    return {"nodes": [_stream_node(node) for node in sorted(graph.nodes.values(), key=lambda node: node.id)]}


def _stream_node(node: StreamNode) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": "Data Source" if node.is_source else "Data Sink" if node.is_sink else "Operator",
        "contents": node.description or node.name,
        "parallelism": node.parallelism,
    }
    if node.in_edges:
        described["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": edge.partitioner.kind.value,
                "side": "second" if position else "first",
                "stream_kind": edge.stream_kind.value,
            }
            for position, edge in enumerate(node.in_edges)
        ]
    return described


def job_plan(graph: JobGraph) -> dict[str, Any]:
    """Every vertex after chaining: what REST shows of a job."""
    nodes: list[dict[str, Any]] = []
    for vertex in graph.vertices:
        node: dict[str, Any] = {
            "id": vertex.id,
            "parallelism": vertex.parallelism,
            "operator": "",
            "operator_strategy": "",
            # Flink escapes it, because its dashboard puts it into a page as it is.
            "description": html.escape(vertex.name),
            "optimizer_properties": {},
        }
        inputs = graph.inputs_of(vertex.id)
        if inputs:
            node["inputs"] = [_input(number, edge) for number, edge in enumerate(inputs)]
        nodes.append(node)
    return {"jid": graph.job_id, "name": graph.name, "type": "STREAMING", "nodes": nodes}


def _input(number: int, edge: JobEdge) -> dict[str, Any]:
    pipelined = edge.result_type is ResultPartitionType.PIPELINED
    return {
        "num": number,
        "id": edge.source,
        "ship_strategy": edge.partitioner.kind.value,
        "exchange": "pipelined_bounded" if pipelined else "blocking",
        "stream_kind": edge.stream_kind.value,
    }
