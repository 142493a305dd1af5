"""Transformations: the result of a program's calls, one node a call, before anything is resolved.

Owner: the thread that builds the program; nodes change until the StreamGraph is made (name, uid, parallelism
...). They hold specs and declared types, never user functions. Partition, union and side output are no
operators: they say how records reach the next operator, and vanish in the StreamGraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import FAILING, ErrorHandling
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
    """Base of all nodes. `id` is unique in its program and rises with the order of the calls."""

    id: int
    name: str
    #: None = undeclared.
    output_type: TypeInformation | None = None
    output_kind: StreamKind = StreamKind.ROW
    #: Arrow schema (IPC bytes) of a columnar stream, if it is known.
    output_schema: bytes | None = None
    #: Nodes that belong to each job that has this one, though it does not read them.
    companions: tuple[Transformation, ...] = ()
    #: Another node was made that reads this one.
    is_read: bool = False

    def __post_init__(self) -> None:
        """Tell the input nodes that this one reads them."""
        for read in self.inputs:
            read.is_read = True

    @property
    def inputs(self) -> Sequence[Transformation]:
        """The input nodes, in the order of the inputs."""
        raise TypeError(f"{type(self).__name__} does not say what its inputs are")


@dataclass(eq=False, kw_only=True)
class SpecTransformation(Transformation):
    """A node that becomes an operator."""

    spec: OperatorSpec
    reads: tuple[Transformation, ...] = ()
    parallelism: int
    #: None = the job's.
    max_parallelism: int | None = None
    uid: str | None = None
    #: 32 hexadecimal digits that replace the operator id.
    uid_hash: str | None = None
    description: str | None = None
    #: None = the inputs'.
    slot_sharing_group: str | None = None
    #: ms; None = the job's.
    buffer_timeout_ms: int | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    #: The user's function, source or sink declares that it blocks.
    blocking: bool = False
    #: ms of event time by which one input stream may be ahead of another; None = no bound.
    max_input_drift_ms: int | None = None
    #: The parallelism can only be 1: an indivisible source.
    non_parallel: bool = False
    #: Type of the keys of its keyed state; None = it has none, or they have no declared type.
    state_key_type: TypeInformation | None = None
    #: The columns whose values are these keys as tuples, in their order; empty = the keys are made otherwise.
    state_key_columns: tuple[str, ...] = ()
    #: What the operator does with a record at which it fails.
    errors: ErrorHandling = FAILING
    #: If set, this operator has the parallelism of that one when the graph is made.
    parallelism_like: SpecTransformation | None = None
    #: If set, this operator is the program's part of that one, whose uid and handling of errors it follows.
    prepares: SpecTransformation | None = None
    #: If set, this operator runs in the slots of that one, whatever its inputs' group.
    slots_like: SpecTransformation | None = None
    #: The operator makes watermarks, and rows keep the times with which they come.
    assigns_no_time: bool = False
    #: The tail of the loop that this operator begins; None = it begins none, or the loop is open.
    closed_by: SpecTransformation | None = None

    @property
    def inputs(self) -> Sequence[Transformation]:
        return self.reads

    @property
    def effective_uid(self) -> str | None:
        """Its own uid, or one made of that of the operator that it prepares."""
        prepared = None if self.prepares is None else self.prepares.uid
        return self.uid if prepared is None else f"{prepared}: {self.name}"

    @property
    def effective_errors(self) -> ErrorHandling:
        """Its own handling of errors, or that of the operator that it prepares."""
        return self.errors if self.prepares is None else self.prepares.errors

    @property
    def prepared_by(self) -> SpecTransformation | None:
        """The operator before it that is the program's part of this one; None = there is none."""
        before = operator_behind(self.reads[0]) if self.reads else None
        return before if before is not None and before.prepares is self else None

    @property
    def effective_parallelism(self) -> int:
        """Its own parallelism, or that of the operator that it follows."""
        followed = self.parallelism_like
        return self.parallelism if followed is None else followed.effective_parallelism


@dataclass(eq=False, kw_only=True)
class SourceTransformation(SpecTransformation):
    """An operator that reads from outside."""

    #: The engine knows that its records bear no time.
    without_time: bool = False
    #: Records may have fields that the schema of the program lacks.
    adds_columns: bool = False


@dataclass(eq=False, kw_only=True)
class OneInputTransformation(SpecTransformation):
    """An operator with one input."""


@dataclass(eq=False, kw_only=True)
class TwoInputTransformation(SpecTransformation):
    """An operator with two inputs."""


@dataclass(eq=False, kw_only=True)
class SinkTransformation(SpecTransformation):
    """An operator that sends records outside."""


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
    """The records that an operator emitted under a tag."""

    read: Transformation
    tag_id: str

    @property
    def inputs(self) -> Sequence[Transformation]:
        return (self.read,)


def operator_behind(transformation: Transformation) -> SpecTransformation | None:
    """The operator whose records a node passes on; None for a union, which has several."""
    node = transformation
    while not isinstance(node, SpecTransformation):
        if isinstance(node, UnionTransformation):
            return None
        node = node.inputs[0]
    return node


def origins_of(transformation: Transformation) -> Iterator[SpecTransformation]:
    """The operators whose records a node passes on; a union has several."""
    if isinstance(transformation, SpecTransformation):
        yield transformation
    else:
        for read in transformation.inputs:
            yield from origins_of(read)


def sources_of(transformation: Transformation) -> set[SourceTransformation]:
    """The sources from which records may reach a node."""
    found: set[SourceTransformation] = set()
    waiting, seen = [transformation], {transformation}
    while waiting:
        node = waiting.pop()
        if isinstance(node, SourceTransformation):
            found.add(node)
        following = [read for read in node.inputs if read not in seen]
        seen.update(following)
        waiting += following
    return found


def has_no_time(transformation: Transformation) -> bool:
    """Whether all records of a stream come without times, as far as the engine knows its operators."""
    if isinstance(transformation, SourceTransformation):
        return transformation.without_time
    if isinstance(transformation, SpecTransformation) and not (
        transformation.spec.keeps_time or transformation.assigns_no_time
    ):
        return False
    return all(map(has_no_time, transformation.inputs))
