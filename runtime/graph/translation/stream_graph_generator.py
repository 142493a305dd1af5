"""Makes a StreamGraph of transformations: partitions, unions and side outputs become edges.

Owner: the thread that builds the program. Pure: reads transformations, makes a new graph, does no I/O.
Flink's rules hold. Of two partitioners in a row, the one nearest to the consumer counts. Without one, an edge
is FORWARD between equal parallelisms and REBALANCE otherwise. A slot sharing group is inherited if all inputs
agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.job_graph import ResultPartitionType
from yarrow.runtime.graph.operator_spec import (
    PartitionerKind,
    PartitionerSpec,
    StreamKind,
    TypeSpec,
)
from yarrow.runtime.graph.stream_graph import (
    DEFAULT_SLOT_SHARING_GROUP,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from yarrow.runtime.graph.transformations import (
    PartitionTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    SpecTransformation,
    Transformation,
    UnionTransformation,
)


@dataclass(frozen=True, kw_only=True)
class GraphSettings:
    """The environment's defaults for operators."""

    #: None = derived from the parallelism.
    max_parallelism: int | None = None
    #: ms; -1 = only full batches are sent.
    buffer_timeout_ms: int = 100
    chaining_enabled: bool = True
    chain_different_max_parallelism: bool = True
    exchange: ResultPartitionType = ResultPartitionType.PIPELINED
    #: False: an operator without uid is refused.
    auto_generate_uids: bool = True
    #: False: a stream without declared type is refused.
    generic_types: bool = True


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """One operator whose records an input takes, with partitioner and tag."""

    node: SpecTransformation
    partitioner: PartitionerSpec | None = None
    side_output: str | None = None
    type: TypeInformation | None = None
    kind: StreamKind = StreamKind.ROW


def generate_stream_graph(roots: Iterable[Transformation], settings: GraphSettings) -> StreamGraph:
    """The graph of everything that the roots read. Raises InvalidProgramError with the operators at fault."""
    graph = StreamGraph(
        chaining_enabled=settings.chaining_enabled,
        chain_different_max_parallelism=settings.chain_different_max_parallelism,
    )
    for transformation in _in_order_of_inputs(roots):
        if isinstance(transformation, SpecTransformation):
            _add_operator(graph, transformation, settings)
    return graph


def _in_order_of_inputs(roots: Iterable[Transformation]) -> list[Transformation]:
    """Every transformation once, with its companions: inputs before their consumers, else in the order of the calls."""
    done: dict[Transformation, None] = {}
    waiting = deque(sorted(roots, key=lambda transformation: transformation.id))
    while waiting:
        root = waiting.popleft()
        path: dict[Transformation, Iterator[Transformation]] = {}
        if root not in done:
            path[root] = iter(root.inputs)
        while path:
            current = next(reversed(path))
            following = next((node for node in path[current] if node not in done), None)
            if following is None:
                del path[current]
                done[current] = None
                waiting.extend(current.companions)
            elif following in path:
                raise _cycle(path, following)
            else:
                path[following] = iter(following.inputs)
    return list(done)


def _cycle(path: Iterable[Transformation], closing: Transformation) -> InvalidProgramError:
    nodes = list(path)
    names = [node.name for node in nodes[nodes.index(closing) :]][::-1]
    return InvalidProgramError(
        f"The program has a cycle that no iteration made: {' -> '.join([*names, names[0]])}. A stream"
        " cannot be an input of the operators that produce it."
    )


def _add_operator(graph: StreamGraph, transformation: SpecTransformation, settings: GraphSettings) -> None:
    origins = [list(_origins(read)) for read in transformation.inputs]
    node = _node(graph, transformation, origins, settings)
    _check_parallelism(transformation, node)
    if not settings.auto_generate_uids and node.uid is None and node.uid_hash is None:
        raise InvalidProgramError(
            f"Operator {node.name!r} has no uid, and pipeline.auto-generate-uids is false:"
            " give it one with uid(...), or switch generated ids on."
        )
    graph.nodes[node.id] = node
    for position, sources in enumerate(origins):
        for origin in sources:
            _check_generic(origin, node, settings)
            graph.add_edge(_edge(graph, origin, node, position, settings))


def _node(
    graph: StreamGraph,
    transformation: SpecTransformation,
    origins: Sequence[Sequence[_Origin]],
    settings: GraphSettings,
) -> StreamNode:
    followed = transformation.slots_like
    deciding = [origin.node for sources in origins for origin in sources] if followed is None else [followed]
    groups = [graph.nodes[node.id].slot_sharing_group for node in deciding]
    timeout = transformation.buffer_timeout_ms
    return StreamNode(
        id=transformation.id,
        name=_displayed_name(transformation),
        spec=transformation.spec,
        parallelism=transformation.effective_parallelism,
        max_parallelism=transformation.max_parallelism or settings.max_parallelism,
        slot_sharing_group=transformation.slot_sharing_group or inherited_group(groups),
        buffer_timeout_ms=settings.buffer_timeout_ms if timeout is None else timeout,
        chaining=transformation.chaining,
        uid=transformation.effective_uid,
        uid_hash=transformation.uid_hash,
        description=transformation.description,
        blocking=transformation.blocking,
        max_input_drift_ms=transformation.max_input_drift_ms,
        output_type=_spec_of(transformation.output_type),
        output_kind=transformation.output_kind,
        state_key_type=_spec_of(transformation.state_key_type),
        state_key_columns=transformation.state_key_columns,
        errors=transformation.effective_errors,
    )


def _displayed_name(transformation: SpecTransformation) -> str:
    match transformation:
        case SourceTransformation():
            return f"Source: {transformation.name}"
        case SinkTransformation() if not transformation.spec.writes_for_sink:
            return f"Sink: {transformation.name}"
    return transformation.name


def inherited_group(groups: Sequence[str]) -> str:
    """The group of an operator without one: that of its inputs if they agree, else the default."""
    return groups[0] if len(set(groups)) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _origins(transformation: Transformation) -> Iterator[_Origin]:
    """The operators behind an input; partitioner and tag are those nearest to the consumer."""
    match transformation:
        case SpecTransformation():
            yield _Origin(
                node=transformation, type=transformation.output_type, kind=transformation.output_kind
            )
        case PartitionTransformation():
            for origin in _origins(transformation.read):
                # Seen from the producer, so a partitioner nearer to the consumer replaces the one before it.
                yield replace(origin, partitioner=transformation.partitioner)
        case SideOutputTransformation():
            for origin in _origins(transformation.read):
                yield replace(
                    origin,
                    side_output=transformation.tag_id,
                    type=transformation.output_type,
                    kind=transformation.output_kind,
                )
        case UnionTransformation():
            _check_union(transformation)
            for read in transformation.reads:
                yield from _origins(read)
        case _:
            raise UnsupportedFeatureError(f"{type(transformation).__name__} cannot be read by an operator")


def _check_union(union: UnionTransformation) -> None:
    declared = [read for read in union.reads if read.output_type is not None]
    for other in declared[1:]:
        if other.output_type != declared[0].output_type:
            raise InvalidProgramError(
                f"A union of streams of different types is refused: {declared[0].name!r} has"
                f" {declared[0].output_type}, {other.name!r} has {other.output_type}."
                " Map them to one type first."
            )
    for other in union.reads[1:]:
        if other.output_kind is not union.reads[0].output_kind:
            raise InvalidProgramError(
                f"A union of rows and columns is refused: {union.reads[0].name!r} is"
                f" {union.reads[0].output_kind.value}, {other.name!r} is {other.output_kind.value}."
                " Convert one of them with to_arrow() or to_rows()."
            )


def _check_parallelism(transformation: SpecTransformation, node: StreamNode) -> None:
    if transformation.non_parallel and node.parallelism != 1:
        raise InvalidProgramError(
            f"Operator {node.name!r} can only run with parallelism 1, not {node.parallelism}."
            " Remove its set_parallelism, and rebalance() behind it."
        )
    if node.max_parallelism is not None and node.parallelism > node.max_parallelism:
        raise InvalidProgramError(
            f"Operator {node.name!r} has parallelism {node.parallelism}, which is above its max parallelism"
            f" {node.max_parallelism}. Lower the parallelism or raise the max parallelism"
            " (set_max_parallelism, pipeline.max-parallelism)."
        )


def _check_generic(origin: _Origin, node: StreamNode, settings: GraphSettings) -> None:
    if settings.generic_types or origin.type is not None or origin.kind is StreamKind.COLUMNAR:
        return
    raise InvalidProgramError(
        f"The stream from {origin.node.name!r} to {node.name!r} has no declared type, and"
        " pipeline.generic-types is"
        " false: give the operator an output_type, or allow pickled values."
    )


def _edge(
    graph: StreamGraph, origin: _Origin, node: StreamNode, position: int, settings: GraphSettings
) -> StreamEdge:
    source = graph.nodes[origin.node.id]
    same = source.parallelism == node.parallelism
    partitioner = origin.partitioner
    if partitioner is None:
        partitioner = PartitionerSpec(kind=PartitionerKind.FORWARD if same else PartitionerKind.REBALANCE)
    elif partitioner.kind is PartitionerKind.FORWARD and not same:
        raise InvalidProgramError(
            f"forward() does not allow a change of parallelism: {source.name!r} has {source.parallelism},"
            f" {node.name!r} has {node.parallelism}. Make them equal, or use rescale() or rebalance()."
        )
    pipelined = settings.exchange is ResultPartitionType.PIPELINED
    return StreamEdge(
        source=source.id,
        target=node.id,
        target_input=position,
        partitioner=partitioner,
        result_type=(
            ResultPartitionType.PIPELINED
            if pipelined or partitioner.kind is PartitionerKind.FORWARD
            else ResultPartitionType.BLOCKING
        ),
        stream_kind=origin.kind,
        type_spec=_spec_of(origin.type),
        side_output=origin.side_output,
    )


def _spec_of(declared: TypeInformation | None) -> TypeSpec:
    return None if declared is None else declared.to_spec()
