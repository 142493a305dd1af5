"""The JobGraph: chained vertices and the edges between them, as sent from client to Dispatcher and workers.

Owner: none (frozen values, msgspec-encoded). Must not contain live objects; user code is cloudpickle bytes. A
vertex's operators form a tree with its head at index 0. `chained_edges` lead from an operator to those fused
behind it. A `JobEdge` may leave any operator.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from yarrow.common.values.error_handling import FAILING, ErrorHandling
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.graph.engine_specs import any_engine_spec
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerSpec, StreamKind, TypeSpec
from yarrow.runtime.graph.states import BatchRunner, JobType

if TYPE_CHECKING:
    _AnySpec = OperatorSpec
else:
    #: The specs among which msgspec finds a class by its tag.
    _AnySpec = any_engine_spec()

#: Version of the encoded form; a Dispatcher refuses all others.
JOB_GRAPH_VERSION = 1


class ResultPartitionType(StrEnum):
    """Whether consumers read while the producer writes, or after it has finished."""

    PIPELINED = "PIPELINED"
    BLOCKING = "BLOCKING"


class OperatorDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a chain."""

    id: OperatorID
    name: str
    spec: _AnySpec
    uid: str | None = None
    description: str | None = None
    #: What a source gives again after a failure, or a sink claims of its rows; empty = the operator is neither.
    claim: str = ""
    input_types: tuple[TypeSpec, ...] = ()
    output_type: TypeSpec = None
    output_kind: StreamKind = StreamKind.ROW
    #: Declared type of the keys of its keyed state; None = not declared.
    state_key_type: TypeSpec = None
    #: Names of the columns whose tuples are these keys, in their order; empty = they are made otherwise.
    state_key_columns: tuple[str, ...] = ()
    #: What the operator does with a record at which it fails; a source carries its own handling.
    errors: ErrorHandling = FAILING


class ChainedEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A forward edge inside a vertex: a call, no exchange. `side_output` is the id of its tag."""

    source: int
    target: int
    side_output: str | None = None
    #: Declared type of a side output; the emitting operator has the type of other rows.
    side_type: TypeSpec = None


class JobVertex(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of operators that runs as one task for each subtask."""

    id: JobVertexID
    name: str
    operators: tuple[OperatorDescriptor, ...]
    chained_edges: tuple[ChainedEdge, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    #: Buffer timeout of the outputs in ms; -1 = only full batches are sent, 0 = after every slice.
    buffer_timeout_ms: int
    #: A source or function that blocks has its own thread.
    blocking: bool = False
    #: The program has set `max_parallelism`: a savepoint with another one is refused instead of followed.
    max_parallelism_explicit: bool = False
    #: An input stream that is so many ms of event time ahead of the slowest one is not read; None = no bound.
    max_input_drift_ms: int | None = None

    @property
    def head(self) -> OperatorDescriptor:
        """The operator that reads the inputs, or is the source."""
        return self.operators[0]

    @property
    def is_source(self) -> bool:
        """True when the head reads from outside instead of from an edge."""
        return self.head.spec.is_source

    @property
    def has_enumerator(self) -> bool:
        """True if a split enumerator lives beside subtask 0 of the head."""
        return self.head.spec.has_enumerator

    @property
    def collect_ids(self) -> tuple[str, ...]:
        """Ids of the client's iterators that get rows of the vertex."""
        return tuple(found for each in self.operators if (found := each.spec.collects_for) is not None)


class JobEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange between two vertices."""

    #: Position in JobGraph.edges; names the edge on the wire.
    index: int
    source: JobVertexID
    #: Index of the emitting operator in the source vertex.
    source_operator: int
    target: JobVertexID
    #: 0, or 1 for the second input of a two-input operator.
    target_input: int
    partitioner: PartitionerSpec
    result_type: ResultPartitionType
    stream_kind: StreamKind
    type_spec: TypeSpec = None
    side_output: str | None = None


class ShippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A user file that workers need: python_file, archive, requirements or cached file, by blob key."""

    name: str
    kind: str
    blob_key: str
    target: str | None = None
    #: The payload is the zip of a folder.
    is_folder: bool = False
    executable: bool = False
    #: Where the worker finds a cached file; "" outside of workers.
    local_path: str = ""


class UserCode(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a worker before it loads a function of the job."""

    #: cloudpickle of {name: class} for the classes in the client's `__main__`.
    main_definitions: bytes = b""
    #: Folders of the client that are added to sys.path if they exist (same host only).
    python_path: tuple[str, ...] = ()
    files: tuple[ShippedFile, ...] = ()
    #: (major, minor) of the client's Python: workers with another are refused.
    python_version: tuple[int, int] = (3, 11)
    #: Top-level modules that functions import and that are neither ours nor standard: checked at deployment.
    required_modules: tuple[str, ...] = ()


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The whole job; vertices in topological order, sources first."""

    version: int = JOB_GRAPH_VERSION
    job_id: JobID
    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    user_code: UserCode
    job_type: JobType = JobType.STREAMING
    #: Who runs the tasks of a job in BATCH, and why, for people; without meaning for a stream.
    batch_runner: BatchRunner = BatchRunner.SPARK
    batch_runner_reason: str = ""
    #: The job's own configuration (Flink keys), as strings.
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    #: Seconds of silence after which the job is cancelled without its client; 0 = it needs no client.
    client_heartbeat_timeout: float = 0.0
    #: From which level a client that reads along wants records of each logger, "" = of the root logger.
    client_log_levels: dict[str, int] = msgspec.field(default_factory=dict)
    #: The plan in Flink's JSON form, made by the client.
    plan: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def collect_ids(self) -> tuple[str, ...]:
        """Ids of the client's iterators that get rows of the job."""
        return tuple(collect_id for vertex in self.vertices for collect_id in vertex.collect_ids)

    def vertex(self, vertex_id: JobVertexID) -> JobVertex:
        """The vertex with that id; KeyError if there is none."""
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def inputs_of(self, vertex_id: JobVertexID) -> tuple[JobEdge, ...]:
        """Edges that lead into the vertex, in edge order."""
        return tuple(edge for edge in self.edges if edge.target == vertex_id)

    def outputs_of(self, vertex_id: JobVertexID) -> tuple[JobEdge, ...]:
        """Edges that leave the vertex, in edge order."""
        return tuple(edge for edge in self.edges if edge.source == vertex_id)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(JobGraph)


def encode_job_graph(graph: JobGraph) -> bytes:
    """The graph as msgpack."""
    return _ENCODER.encode(graph)


def decode_job_graph(data: bytes) -> JobGraph:
    """Decodes a graph. Raises msgspec.ValidationError with the invalid part."""
    return _DECODER.decode(data)
