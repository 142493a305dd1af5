"""The StreamGraph of a replay: letters enter in front of their operators, and the program's own sources may be silent.

Owner: the main thread. Ids of operators stay those of the program, so that its savepoints fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cloudpickle

from yarrow.cli.letter_replay.letter_input import LetterInput
from yarrow.cli.letter_replay.target_checks import FoundTarget
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.common.values.rate_limit import RateLimit
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, PAIR_OF_INPUTS
from yarrow.datastream.connectors.letter_replay.letter_counts import LetterCounts
from yarrow.datastream.connectors.letter_replay.letter_pairs import KeyOfPair
from yarrow.datastream.connectors.letter_replay.letters_source import REPLAYED_LETTERS, LettersSource
from yarrow.datastream.connectors.letter_replay.silent_source import SilentSource
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.graph.column_spec import RowsToArrowOperator
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import ResultPartitionType
from yarrow.runtime.graph.operator_spec import (
    OperatorSpec,
    PartitionerKind,
    PartitionerSpec,
    RowFunctionOperator,
    RowShape,
    StreamKind,
    TypeSpec,
)
from yarrow.runtime.graph.stream_graph import DEFAULT_SLOT_SHARING_GROUP, StreamEdge, StreamGraph, StreamNode
from yarrow.runtime.graph.transformations import ChainingStrategy
from yarrow.runtime.graph.translation.operator_ids import operator_id_of_uid, operator_ids

_COUNTS_UID = "counts of replayed dead letters"


def operators_by_uid(graph: StreamGraph) -> Mapping[str, StreamNode]:
    """Return the operators, as letters name them: by uid, or by id where the program gives no uid.

    From then on each operator keeps its id, whatever is added to the graph.
    """
    ids = operator_ids(graph)
    for node in graph.nodes.values():
        if node.uid is None:
            node.uid_hash = ids[node.id]
    return {node.uid or ids[node.id]: node for node in graph.nodes.values()}


def silent_ids(graph: StreamGraph) -> Mapping[int, OperatorID]:
    """Return the id of the silent source that may stand for each source of the program."""
    ids = operator_ids(graph)
    return {node.id: operator_id_of_uid(f"silent source {ids[node.id]}") for node in graph.sources()}


def silence(graph: StreamGraph, ids: Mapping[int, OperatorID]) -> None:
    """Let the program's sources read nothing, and its operators leave out any number of records.

    Each record of such a run is one that has failed before. So bounds on their number would say nothing.
    """
    for node in graph.nodes.values():
        if node.id in ids:
            # AUTOMATIC runs the program in the mode that its own sources have.
            bounded = node.spec.is_bounded
            node.spec = SourceOperator(source=cloudpickle.dumps(SilentSource()), bounded=bounded)
            node.input_bytes = 0
            node.uid, node.uid_hash = None, ids[node.id]
        node.errors = ErrorHandling(node.errors.policy)


def feed(graph: StreamGraph, targets: Iterable[FoundTarget], letters: LetterInput, limit: RateLimit) -> None:
    """Add a source of letters for each target, and what counts letters. `limit`: of each of these sources."""
    lines, size = letters.source(), letters.size_bytes()
    sources = [_add_source(graph, target, lines, limit) for target in targets]
    for node in sources:
        node.input_bytes = size
    operators = list(graph.nodes.values())
    counts = _counts(_next_id(graph))
    graph.nodes[counts.id] = counts
    for node in sources:
        graph.add_edge(_edge(node, counts, None, REPLAYED_LETTERS))
    for node in operators:
        if node.spec.is_source:
            # Its readers treat errors; the source of its letters counts them.
            continue
        if node.errors.policy is ErrorPolicy.SKIP:
            node.errors = node.errors._replace(policy=ErrorPolicy.DEAD_LETTER)
        if node.errors.policy is ErrorPolicy.DEAD_LETTER:
            graph.add_edge(_edge(node, counts, None, DEAD_LETTERS))


def _next_id(graph: StreamGraph) -> int:
    return max(graph.nodes) + 1


def _add_source(
    graph: StreamGraph, found: FoundTarget, lines: Source[Any, Any], limit: RateLimit
) -> StreamNode:
    node, target = found.node, found.target
    input_name = f", input {target.input}" if target.input else ""
    name = f"dead letters of {target.uid}{input_name}"
    reading = node.spec.reads_by
    made = StreamNode(
        id=_next_id(graph),
        name=f"Source: {name}",
        spec=SourceOperator(
            source=cloudpickle.dumps(LettersSource(lines, target)),
            watermark_strategy=None if reading is None else reading[1],
            bounded=True,
            declared_replay=lines.replay,
            limit=limit,
        ),
        parallelism=1,
        max_parallelism=None,
        slot_sharing_group=node.slot_sharing_group,
        buffer_timeout_ms=node.buffer_timeout_ms,
        chaining=ChainingStrategy.ALWAYS,
        uid=name,
        blocking=lines.blocking,
        output_type=_type_of_rows(found),
        output_kind=node.output_kind if found.is_source else StreamKind.ROW,
    )
    graph.nodes[made.id] = made
    if found.schema is not None:
        columns = _columns(_next_id(graph), made, found.schema)
        graph.nodes[columns.id] = columns
        graph.add_edge(_edge(made, columns, None))
        graph.add_edge(_edge(columns, node, found.in_edges))
    elif found.for_matches is not None:
        _add_matches(graph, made, found, found.for_matches)
    elif target.holds_pairs:
        graph.add_edge(_edge_of_pairs(made, node))
    elif not found.is_source:
        graph.add_edge(_edge(made, node, found.in_edges))
    else:
        for edge in list(node.out_edges):
            graph.add_edge(_edge(made, graph.nodes[edge.target], [edge], edge.side_output))
    return made


def _type_of_rows(found: FoundTarget) -> TypeSpec:
    """The type of what the source of letters emits; None = pairs or matches, or undeclared rows."""
    if found.target.holds_pairs or found.target.holds_matches:
        return None
    return found.node.output_type if found.is_source else found.target.type_spec


def _add_matches(graph: StreamGraph, letters: StreamNode, found: FoundTarget, spec: OperatorSpec) -> None:
    """Add what calls the function of a pattern beside the pattern: its results go where those of the pattern go."""
    pattern = found.node
    matches = StreamNode(
        id=_next_id(graph),
        name=pattern.name,
        spec=spec,
        parallelism=letters.parallelism,
        max_parallelism=None,
        slot_sharing_group=letters.slot_sharing_group,
        buffer_timeout_ms=letters.buffer_timeout_ms,
        chaining=ChainingStrategy.ALWAYS,
        uid=f"matches of {letters.uid}",
        blocking=pattern.blocking,
        output_type=pattern.output_type,
        errors=pattern.errors,
    )
    graph.nodes[matches.id] = matches
    graph.add_edge(_edge(letters, matches, None))
    for edge in list(pattern.out_edges):
        # Late rows of columns leave as batches, and no match is late.
        if edge.stream_kind is StreamKind.ROW:
            graph.add_edge(_edge(matches, graph.nodes[edge.target], [edge], edge.side_output))


def _columns(node_id: int, letters: StreamNode, schema: bytes) -> StreamNode:
    """The conversion of rows of letters to columns."""
    return StreamNode(
        id=node_id,
        name=f"columns of {letters.uid}",
        spec=RowsToArrowOperator(schema=schema),
        parallelism=1,
        max_parallelism=None,
        slot_sharing_group=letters.slot_sharing_group,
        buffer_timeout_ms=letters.buffer_timeout_ms,
        chaining=ChainingStrategy.ALWAYS,
        uid=f"columns of {letters.uid}",
        output_kind=StreamKind.COLUMNAR,
    )


def _counts(node_id: int) -> StreamNode:
    return StreamNode(
        id=node_id,
        name=_COUNTS_UID,
        spec=RowFunctionOperator(shape=RowShape.FILTER, function=cloudpickle.dumps(LetterCounts())),
        parallelism=1,
        max_parallelism=None,
        slot_sharing_group=DEFAULT_SLOT_SHARING_GROUP,
        buffer_timeout_ms=100,
        chaining=ChainingStrategy.NEVER,
        uid=_COUNTS_UID,
    )


def _edge_of_pairs(letters: StreamNode, join: StreamNode) -> StreamEdge:
    """An edge by which each pair comes to the subtask of its key."""
    left, right = (_key_of(cloudpickle.loads(each)) for each in join.spec.selector_of_each_input if each)
    selector = cloudpickle.dumps(KeyOfPair(left, right))
    return StreamEdge(
        source=letters.id,
        target=join.id,
        target_input=PAIR_OF_INPUTS,
        partitioner=PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=selector),
        result_type=ResultPartitionType.PIPELINED,
        stream_kind=StreamKind.ROW,
        # The tasks of one job pickle pairs for each other; whether the letters may hold pickles is checked before.
        type_spec=None,
        side_output=None,
    )


def _key_of(selector: Any) -> Callable[[Any], Any]:
    """What gives the key of a row, of a KeySelector or of a function."""
    key_of: Callable[[Any], Any] = getattr(selector, "get_key", selector)
    return key_of


def _edge(
    source: StreamNode,
    target: StreamNode,
    like: Iterable[StreamEdge] | None,
    side_output: str | None = None,
) -> StreamEdge:
    """An edge that distributes rows as the edges `like` do; a forwarding one may have to change the parallelism."""
    edges = list(like or ())
    chosen = next((each for each in edges if each.partitioner.kind is not PartitionerKind.FORWARD), None)
    if chosen is None:
        same = source.parallelism == target.parallelism
        partitioner = PartitionerSpec(kind=PartitionerKind.FORWARD if same else PartitionerKind.REBALANCE)
    else:
        partitioner = chosen.partitioner
    return StreamEdge(
        source=source.id,
        target=target.id,
        target_input=edges[0].target_input if edges else 0,
        partitioner=partitioner,
        result_type=ResultPartitionType.PIPELINED,
        stream_kind=edges[0].stream_kind if edges else StreamKind.ROW,
        type_spec=edges[0].type_spec if edges else None,
        side_output=side_output,
    )
