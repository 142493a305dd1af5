"""Plans as JSON in Flink's two shapes: the execution plan of a StreamGraph, the plan of a JobGraph.

Owner: none; pure. Beyond Flink's fields, `stream_kind` of an input says whether it has rows or columns. `claim` says
what holds of the records of a source or sink after a failure. `on_error` says what an operator does with a record at
which it fails, and who reads its dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from yarrow.common.values.error_handling import DEAD_LETTERS, ErrorHandling, ErrorPolicy
from yarrow.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorDescriptor,
    ResultPartitionType,
)
from yarrow.runtime.graph.operator_spec import (
    OperatorSpec,
    PartitionerKind,
    StreamKind,
)
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode

#: As the library's `html.escape`, which would load the names of all characters of HTML (half a megabyte).
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def execution_plan(graph: StreamGraph) -> dict[str, Any]:
    """Every operator before chaining: the result of `get_execution_plan`."""
    return {
        "nodes": [
            _stream_node(node, graph) for node in sorted(graph.nodes.values(), key=lambda node: node.id)
        ]
    }


def _stream_node(node: StreamNode, graph: StreamGraph) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": _pact(node.spec),
        "contents": node.description or node.name,
        "parallelism": node.parallelism,
        **_claim(node.claim),
        **_on_error(node.errors, _readers_of_letters(node, graph)),
    }
    edges = node.in_edges
    return _with_predecessors(
        described,
        [(edge.source, edge.partitioner.kind.value, edge.stream_kind.value, "") for edge in edges],
    )


def execution_plan_of_job(graph: JobGraph) -> dict[str, Any]:
    """The execution plan of a JobGraph without its program; operators are numbered by vertex."""
    nodes: list[dict[str, Any]] = []
    for number, vertex, operator, reads in _operators(graph):
        node = {
            "id": number,
            "type": operator.name,
            "pact": _pact(operator.spec),
            "contents": operator.description or operator.name,
            "parallelism": vertex.parallelism,
            **_scan(operator.spec),
            **_claim(operator.claim),
            **_on_error(operator.errors, _targets_of_letters(graph, vertex, operator)),
        }
        nodes.append(_with_predecessors(node, reads))
    return {"nodes": nodes}


def stream_graph_of_job(graph: JobGraph) -> dict[str, Any]:
    """Every operator with its vertex, numbered as in `execution_plan_of_job`.

    REST shows it beside the plan.
    """
    nodes: list[dict[str, Any]] = []
    for number, vertex, operator, reads in _operators(graph):
        inputs = [
            {
                "num": position,
                "id": str(source),
                "ship_strategy": strategy,
                "exchange": exchange,
                "stream_kind": kind,
            }
            for position, (source, strategy, kind, exchange) in enumerate(reads)
        ]
        nodes.append(
            {
                "id": str(number),
                "parallelism": vertex.parallelism,
                "operator": escaped(operator.name),
                "description": escaped(operator.description or operator.name),
                "job_vertex_id": vertex.id,
                "inputs": inputs,
                **_claim(escaped(operator.claim)),
                **_escaped_on_error(graph, vertex, operator),
            }
        )
    return {"nodes": nodes}


def _scan(spec: OperatorSpec) -> dict[str, str]:
    return {"scan": f"the reader {spec.scan_note}"} if spec.scan_note else {}


def _claim(claim: str) -> dict[str, str]:
    return {"claim": claim} if claim else {}


def _on_error(errors: ErrorHandling, targets: Iterable[str]) -> dict[str, str]:
    """What an operator does with a record at which it fails, where that is not to fail the job."""
    if errors.policy is ErrorPolicy.FAIL:
        return {}
    parts = [errors.policy.value]
    if errors.policy is ErrorPolicy.DEAD_LETTER:
        parts[0] += f" to {', '.join(targets) or 'nobody'}"
    if errors.max_per_minute is not None:
        parts.append(f"at most {errors.max_per_minute} a minute in each subtask")
    if errors.max_share is not None:
        parts.append(f"at most a share of {errors.max_share:g}")
    return {"on_error": "; ".join(parts)}


def _readers_of_letters(node: StreamNode, graph: StreamGraph) -> list[str]:
    return [graph.nodes[edge.target].name for edge in node.out_edges if edge.side_output == DEAD_LETTERS]


def _targets_of_letters(graph: JobGraph, vertex: JobVertex, operator: OperatorDescriptor) -> list[str]:
    """The names of the operators that read the dead letters of one."""
    index = vertex.operators.index(operator)
    chained = [
        vertex.operators[call.target].name
        for call in vertex.chained_edges
        if call.source == index and call.side_output == DEAD_LETTERS
    ]
    heads = [
        graph.vertex(edge.target).head.name
        for edge in graph.edges
        if (edge.source, edge.source_operator, edge.side_output) == (vertex.id, index, DEAD_LETTERS)
    ]
    return chained + heads


def _escaped_on_error(graph: JobGraph, vertex: JobVertex, operator: OperatorDescriptor) -> dict[str, str]:
    """The same for pages, which show names as HTML."""
    return _on_error(operator.errors, map(escaped, _targets_of_letters(graph, vertex, operator)))


#: One input of an operator: number of the producer, ship strategy, rows or columns, and how the result is
#: passed.
_Read = tuple[int, str, str, str]


def _operators(graph: JobGraph) -> Iterator[tuple[int, JobVertex, OperatorDescriptor, list[_Read]]]:
    """Number, vertex, operator and inputs of each operator of the job, by vertex."""
    number: dict[tuple[str, int], int] = {}
    for vertex in graph.vertices:
        for index in range(len(vertex.operators)):
            number[vertex.id, index] = len(number) + 1
    for vertex in graph.vertices:
        reads: dict[int, list[_Read]] = {0: []}
        for exchange in graph.inputs_of(vertex.id):
            source = number[exchange.source, exchange.source_operator]
            kind = exchange.stream_kind.value
            reads[0].append((source, exchange.partitioner.kind.value, kind, _exchange(exchange)))
        for call in vertex.chained_edges:
            output = _output_kind(vertex.operators[call.source], call.side_output)
            source = number[vertex.id, call.source]
            reads[call.target] = [(source, PartitionerKind.FORWARD.value, output.value, PIPELINED)]
        for index, operator in enumerate(vertex.operators):
            yield number[vertex.id, index], vertex, operator, reads[index]


def _output_kind(operator: OperatorDescriptor, side_output: str | None) -> StreamKind:
    """What an operator emits, or sends to one of its side outputs."""
    if side_output is None:
        return operator.output_kind
    return StreamKind.COLUMNAR if side_output in operator.spec.columnar_side_outputs else StreamKind.ROW


def _pact(spec: OperatorSpec) -> str:
    if spec.is_source:
        return "Data Source"
    return "Data Sink" if spec.is_sink else "Operator"


def _with_predecessors(node: dict[str, Any], reads: Sequence[_Read]) -> dict[str, Any]:
    if reads:
        node["predecessors"] = [
            {
                "id": source,
                "ship_strategy": strategy,
                "side": "second" if position else "first",
                "stream_kind": kind,
            }
            for position, (source, strategy, kind, _) in enumerate(reads)
        ]
    return node


def job_plan(graph: JobGraph) -> dict[str, Any]:
    """Every vertex after chaining: the plan that REST shows."""
    nodes: list[dict[str, Any]] = []
    for vertex in graph.vertices:
        node: dict[str, Any] = {
            "id": vertex.id,
            "parallelism": vertex.parallelism,
            "operator": "",
            "operator_strategy": _scan(vertex.head.spec).get("scan", ""),
            # Flink escapes it, because its dashboard inserts it into a page unchanged.
            "description": escaped(vertex.name),
            "optimizer_properties": {},
        }
        inputs = graph.inputs_of(vertex.id)
        if inputs:
            node["inputs"] = [_input(number, edge) for number, edge in enumerate(inputs)]
        claims = [
            {"operator": escaped(operator.name), "claim": escaped(operator.claim)}
            for operator in vertex.operators
            if operator.claim
        ]
        if claims:
            node["claims"] = claims
        handlings = [
            {"operator": escaped(operator.name), **handling}
            for operator in vertex.operators
            if (handling := _escaped_on_error(graph, vertex, operator))
        ]
        if handlings:
            node["error_handling"] = handlings
        nodes.append(node)
    return {"jid": graph.job_id, "name": graph.name, "type": "STREAMING", "nodes": nodes}


def _input(number: int, edge: JobEdge) -> dict[str, Any]:
    return {
        "num": number,
        "id": edge.source,
        "ship_strategy": edge.partitioner.kind.value,
        "exchange": _exchange(edge),
        "stream_kind": edge.stream_kind.value,
    }


#: How an operator passes its result on, in Flink's words.
PIPELINED, BLOCKING = "pipelined_bounded", "blocking"


def _exchange(edge: JobEdge) -> str:
    return PIPELINED if edge.result_type is ResultPartitionType.PIPELINED else BLOCKING


def escaped(text: str) -> str:
    """The text with the signs that mean something in HTML written as references."""
    return text.translate(_ESCAPES)
