"""Makes the JobGraph of a StreamGraph: chains become vertices, the edges between chains become exchanges.

Owner: the thread that builds the program. Pure: the job id and the user code are passed in. Vertices are in
topological order with sources first; the id of a vertex is the operator id of its head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.config.options.pipeline import MAX_MAX_PARALLELISM
from yarrow.runtime.graph.job_graph import (
    ChainedEdge,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorDescriptor,
    UserCode,
)
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode
from yarrow.runtime.graph.translation.chaining import chain_name, chain_of, chained_edges, heads
from yarrow.runtime.graph.translation.operator_ids import operator_ids
from yarrow.runtime.graph.translation.plan import job_plan
from yarrow.runtime.graph.translation.wanted_columns import with_wanted_columns

#: The smallest derived number of key groups.
MIN_DERIVED_MAX_PARALLELISM = 128


def derived_max_parallelism(parallelism: int) -> int:
    """The derived number of key groups: 1.5 x parallelism as a power of two, 128 to 32768."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, MIN_DERIVED_MAX_PARALLELISM), MAX_MAX_PARALLELISM)


def generate_job_graph(
    graph: StreamGraph,
    *,
    job_id: JobID,
    name: str,
    user_code: UserCode,
    configuration: Mapping[str, str],
) -> JobGraph:
    """The JobGraph, with its plan. Raises InvalidProgramError for missing operators or equal ids."""
    if not graph.nodes:
        raise InvalidProgramError(
            "The program defines no operators, so there is nothing to execute: read a source and add a sink."
        )
    ids = operator_ids(graph)
    chains = _in_topological_order([chain_of(head, graph) for head in heads(graph)])
    vertices = tuple(_vertex(chain, graph, ids) for chain in chains)
    edges = _edges(chains, ids)
    job_graph = JobGraph(
        job_id=job_id,
        name=name,
        vertices=tuple(with_wanted_columns(vertex, edges) for vertex in vertices),
        edges=edges,
        user_code=user_code,
        configuration=dict(configuration),
    )
    return msgspec.structs.replace(job_graph, plan=job_plan(job_graph))


def _in_topological_order(chains: Sequence[list[StreamNode]]) -> list[list[StreamNode]]:
    """Sources first, then each chain after all its inputs; ties in the order of the program."""
    chain_of_node = {node.id: index for index, chain in enumerate(chains) for node in chain}
    waiting = sorted(range(len(chains)), key=lambda index: (bool(chains[index][0].in_edges), index))
    placed: dict[int, None] = {}
    while waiting:
        ready = next(
            index
            for index in waiting
            if all(chain_of_node[edge.source] in placed for edge in chains[index][0].in_edges)
        )
        waiting.remove(ready)
        placed[ready] = None
    return [chains[index] for index in placed]


def _vertex(chain: Sequence[StreamNode], graph: StreamGraph, ids: Mapping[int, OperatorID]) -> JobVertex:
    head = chain[0]
    position = {node.id: index for index, node in enumerate(chain)}
    return JobVertex(
        id=JobVertexID(ids[head.id]),
        name=chain_name(head, graph),
        operators=tuple(_descriptor(node, ids) for node in chain),
        chained_edges=tuple(
            ChainedEdge(
                source=position[edge.source],
                target=position[edge.target],
                side_output=edge.side_output,
                side_type=None if edge.side_output is None else edge.type_spec,
            )
            for node in chain
            for edge in chained_edges(node, graph)
        ),
        parallelism=head.parallelism,
        max_parallelism=_max_parallelism(chain),
        max_parallelism_explicit=any(node.max_parallelism is not None for node in chain),
        slot_sharing_group=head.slot_sharing_group,
        buffer_timeout_ms=_buffer_timeout(chain, position),
        blocking=any(node.blocking for node in chain),
        max_input_drift_ms=head.max_input_drift_ms,
    )


def _descriptor(node: StreamNode, ids: Mapping[int, OperatorID]) -> OperatorDescriptor:
    types = {edge.target_input: edge.type_spec for edge in node.in_edges}
    return OperatorDescriptor(
        id=ids[node.id],
        name=node.name,
        spec=node.spec,
        uid=node.uid,
        description=node.description,
        claim=node.claim,
        input_types=tuple(types[index] for index in sorted(types)),
        output_type=node.output_type,
        output_kind=node.output_kind,
        state_key_type=node.state_key_type,
        state_key_columns=node.state_key_columns,
        errors=node.errors,
    )


def _max_parallelism(chain: Sequence[StreamNode]) -> int:
    """The smallest max parallelism of the chain's operators: it bounds them all, because they run together."""
    given = [node.max_parallelism for node in chain if node.max_parallelism is not None]
    return min(given) if given else derived_max_parallelism(chain[0].parallelism)


def _buffer_timeout(chain: Sequence[StreamNode], position: Mapping[int, int]) -> int:
    """The shortest timeout of the operators whose records leave the vertex; -1 = none has one."""
    emitting = [node for node in chain if any(edge.target not in position for edge in node.out_edges)]
    timeouts = [node.buffer_timeout_ms for node in emitting or chain if node.buffer_timeout_ms >= 0]
    return min(timeouts, default=-1)


def _edges(chains: Sequence[Sequence[StreamNode]], ids: Mapping[int, OperatorID]) -> tuple[JobEdge, ...]:
    place = {node.id: (chain[0], index) for chain in chains for index, node in enumerate(chain)}
    edges: list[JobEdge] = []
    for chain in chains:
        for edge in sorted(chain[0].in_edges, key=lambda edge: edge.target_input):
            source_head, source_operator = place[edge.source]
            edges.append(
                JobEdge(
                    index=len(edges),
                    source=JobVertexID(ids[source_head.id]),
                    source_operator=source_operator,
                    target=JobVertexID(ids[chain[0].id]),
                    target_input=edge.target_input,
                    partitioner=edge.partitioner,
                    result_type=edge.result_type,
                    stream_kind=edge.stream_kind,
                    type_spec=edge.type_spec,
                    side_output=edge.side_output,
                )
            )
    return tuple(edges)
