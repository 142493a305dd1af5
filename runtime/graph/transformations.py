"""Transformations: what the calls of a program built, one node a call, before anything is resolved.

Owner: the thread that builds the program; nodes change until the StreamGraph is made (name, uid, parallelism
...). They hold specs and declared types, never user functions. Partition, union and side output are no
operators: they say how the next operator is reached, and vanish in the StreamGraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerSpec, StreamKind


class ChainingStrategy(Enum):
    """Whether an operator may be fused with its neighbours."""

    #: With the one before it and those behind it.
    ALWAYS = "ALWAYS"
    #: Only with those behind it: it begins a chain.
    HEAD = "HEAD"
    #: With none.
    NEVER = "NEVER"


@dataclass(eq=False, kw_only=True)
class Transformation:
    """Base of all nodes. `id` is unique in its program and grows with the order of the calls."""

    id: int
    name: str
    #: None = undeclared.
    output_type: TypeInformation | None = None
    output_kind: StreamKind = StreamKind.ROW
    #: Arrow schema (IPC bytes) of a columnar stream where it is known.
    output_schema: bytes | None = None

    @property
    def inputs(self) -> Sequence[Transformation]:
        """The nodes that this one reads, in the order of its inputs."""
        raise TypeError(f"{type(self).__name__} does not say what its inputs are")


@dataclass(eq=False, kw_only=True)
class SpecTransformation(Transformation):
    """A node that becomes an operator."""

    spec: OperatorSpec
    reads: tuple[Transformation, ...] = ()
    parallelism: int
    #: None = that of the job.
    max_parallelism: int | None = None
    uid: str | None = None
    #: 32 hexadecimal digits that take the place of the operator id.
    uid_hash: str | None = None
    description: str | None = None
    #: None = that of the inputs.
    slot_sharing_group: str | None = None
    #: ms; None = that of the job.
    buffer_timeout_ms: int | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    #: The user's function, source or sink declares that it blocks.
    blocking: bool = False
    #: The parallelism can be 1 only: a source that cannot be divided.
    non_parallel: bool = False
    #: Of the keys of its keyed state; None = it has none, or they are of no declared type.
    state_key_type: TypeInformation | None = None
    #: Where set, this operator has the parallelism of that one, whatever it is when the graph is made.
    parallelism_like: SpecTransformation | None = None

    @property
    def inputs(self) -> Sequence[Transformation]:
        return self.reads

    @property
    def effective_parallelism(self) -> int:
        """Its own parallelism, or that of the operator it follows."""
        followed = self.parallelism_like
        return self.parallelism if followed is None else followed.effective_parallelism


@dataclass(eq=False, kw_only=True)
class SourceTransformation(SpecTransformation):
    """An operator that reads from outside."""


@dataclass(eq=False, kw_only=True)
class OneInputTransformation(SpecTransformation):
    """An operator with one input."""


@dataclass(eq=False, kw_only=True)
class TwoInputTransformation(SpecTransformation):
    """An operator with two inputs."""


@dataclass(eq=False, kw_only=True)
class SinkTransformation(SpecTransformation):
    """An operator that hands records to the outside."""


@dataclass(eq=False, kw_only=True)
class PartitionTransformation(Transformation):
    """How records of the input are distributed to the next operator."""

    read: Transformation
    partitioner: PartitionerSpec

    @property
    def inputs(self) -> Sequence[Transformation]:
        return (self.read,)


@dataclass(eq=False, kw_only=True)
class UnionTransformation(Transformation):
    """The records of several streams of one type."""

    reads: tuple[Transformation, ...]

    @property
    def inputs(self) -> Sequence[Transformation]:
        return self.reads


@dataclass(eq=False, kw_only=True)
class SideOutputTransformation(Transformation):
    """What an operator emitted under a tag."""

    read: Transformation
    tag_id: str

    @property
    def inputs(self) -> Sequence[Transformation]:
        return (self.read,)


@dataclass(eq=False, kw_only=True)
class FeedbackTransformation(Transformation):
    """The head of an iteration: reads its input and, once more, what `feedback` gives back."""

    read: Transformation
    feedback: list[Transformation] = field(default_factory=list)

    @property
    def inputs(self) -> Sequence[Transformation]:
        # Feedback is left out on purpose: the one kind of edge that may close a cycle.
        return (self.read,)


def operator_behind(transformation: Transformation) -> SpecTransformation | None:
    """The operator whose records a node passes on; None for a union, which has several."""
    node = transformation
    while not isinstance(node, SpecTransformation):
        if isinstance(node, UnionTransformation):
            return None
        node = node.inputs[0]
    return node
