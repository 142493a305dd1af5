"""Operator ids: the 128 bits by which a savepoint finds an operator of a changed program.

Owner: the thread that builds the program; pure. A stored format: the id of a uid never changes. Without a uid
the id depends only on the place in the graph: order of visit, operators chained behind it, ids of the inputs.
So names, functions and parallelism may change while the form of the graph stays.
"""

from __future__ import annotations

from hashlib import blake2b

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import OperatorID, is_hex_id
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode
from yarrow.runtime.graph.translation.chaining import chained_edges

_FROM_UID = b"yarrow.uid"
_FROM_PLACE = b"yarrow.place"


def operator_id_of_uid(uid: str) -> OperatorID:
    """The id of an operator with that uid."""
    return OperatorID(blake2b(uid.encode(), digest_size=16, person=_FROM_UID).hexdigest())


def operator_ids(graph: StreamGraph) -> dict[int, OperatorID]:
    """The id of every operator. Raises InvalidProgramError for a repeated uid or given hash."""
    ids: dict[int, OperatorID] = {}
    owners: dict[OperatorID, StreamNode] = {}
    for place, node in enumerate(_breadth_first(graph)):
        found = _id(node, place, graph, ids)
        if found in owners:
            raise _duplicate(node, owners[found])
        owners[found] = node
        ids[node.id] = found
    return ids


def _id(node: StreamNode, place: int, graph: StreamGraph, ids: dict[int, OperatorID]) -> OperatorID:
    if node.uid_hash is not None:
        if not is_hex_id(node.uid_hash):
            raise InvalidProgramError(
                f"Operator {node.name!r} was given the uid hash {node.uid_hash!r}:"
                " it must have 32 hexadecimal digits in lower case. Use uid(...) for any other text."
            )
        return OperatorID(node.uid_hash)
    if node.uid is not None:
        return operator_id_of_uid(node.uid)
    digest = blake2b(digest_size=16, person=_FROM_PLACE)
    digest.update(place.to_bytes(4, "little"))
    for _ in chained_edges(node, graph):
        digest.update(b"chained")
    for edge in node.in_edges:
        digest.update(edge.target_input.to_bytes(1, "little") + bytes.fromhex(ids[edge.source]))
    return OperatorID(digest.hexdigest())


def _breadth_first(graph: StreamGraph) -> list[StreamNode]:
    """Operators level by level from the sources, each after all its inputs, as Flink numbers them."""
    visited: dict[int, StreamNode] = {}
    waiting = list(graph.sources())
    while waiting:
        postponed: list[StreamNode] = []
        following: dict[int, StreamNode] = {}
        for node in waiting:
            if node.id in visited:
                continue
            if any(edge.source not in visited for edge in node.in_edges):
                postponed.append(node)
                continue
            visited[node.id] = node
            following.update({edge.target: graph.nodes[edge.target] for edge in node.out_edges})
        waiting = [*postponed, *following.values()]
    return list(visited.values())


def _duplicate(node: StreamNode, other: StreamNode) -> InvalidProgramError:
    if node.uid is not None and node.uid == other.uid:
        return InvalidProgramError(
            f"The uid {node.uid!r} is given to two operators, {other.name!r} and {node.name!r}. A uid must be"
            " unique in its program, or a savepoint could not tell them apart."
        )
    return InvalidProgramError(
        f"Operators {other.name!r} and {node.name!r} have the same id: give each a uid of its own."
    )
