"""The StreamGraph: the operators of a program and the edges between them, before chaining.

Owner: the thread that builds the program. stream_graph_generator makes it; chaining, job_graph_generator and
plan read it, and nothing changes it. Only here are uid, group and parallelism of every single operator
settled. So graphs of a bad form are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from yarrow.common.values.error_handling import FAILING, ErrorHandling
from yarrow.runtime.graph.job_graph import ResultPartitionType
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerSpec, StreamKind, TypeSpec
from yarrow.runtime.graph.transformations import ChainingStrategy

#: The slot sharing group of operators without one.
DEFAULT_SLOT_SHARING_GROUP = "default"


class StreamEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge between two operators; `side_output` is the tag of its records."""

    source: int
    target: int
    #: 0, or 1 for the second input of a two-input operator.
    target_input: int
    partitioner: PartitionerSpec
    result_type: ResultPartitionType
    stream_kind: StreamKind
    type_spec: TypeSpec = None
    side_output: str | None = None


class StreamNode(msgspec.Struct, eq=False, kw_only=True):
    """An operator. `name` has the prefix of its role ("Source: ", "Sink: ")."""

    id: int
    name: str
    spec: OperatorSpec
    parallelism: int
    #: None = derived from the parallelism of its vertex.
    max_parallelism: int | None
    slot_sharing_group: str
    #: ms; -1 = only full batches are sent.
    buffer_timeout_ms: int
    chaining: ChainingStrategy
    uid: str | None = None
    uid_hash: str | None = None
    description: str | None = None
    #: What a source gives again after a failure, or a sink claims of its rows; empty = the operator is neither.
    claim: str = ""
    blocking: bool = False
    #: Bytes that a source reads, where a command has put it into the graph; None = ask the program's source.
    input_bytes: int | None = None
    #: See JobVertex.
    max_input_drift_ms: int | None = None
    output_type: TypeSpec = None
    output_kind: StreamKind = StreamKind.ROW
    #: Type of the keys of its keyed state; None = not declared.
    state_key_type: TypeSpec = None
    #: Names of the columns whose tuples are these keys; empty = they are made otherwise.
    state_key_columns: tuple[str, ...] = ()
    #: What the operator does with a record at which it fails.
    errors: ErrorHandling = FAILING
    in_edges: list[StreamEdge] = msgspec.field(default_factory=list)
    out_edges: list[StreamEdge] = msgspec.field(default_factory=list)


@dataclass(kw_only=True)
class StreamGraph:
    """All operators by id, in the order in which the sources reach them."""

    nodes: dict[int, StreamNode] = field(default_factory=dict)
    chaining_enabled: bool = True
    chain_different_max_parallelism: bool = True

    def sources(self) -> Iterator[StreamNode]:
        """Operators without inputs, in the order of the calls that made them."""
        return (node for node in self.nodes.values() if not node.in_edges)

    def add_edge(self, edge: StreamEdge) -> None:
        """Adds the edge at both of its ends."""
        self.nodes[edge.source].out_edges.append(edge)
        self.nodes[edge.target].in_edges.append(edge)
