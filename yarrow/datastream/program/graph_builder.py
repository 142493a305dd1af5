"""GraphBuilder: makes the transformations of one program for DataStream and the other streams.

Owner: the thread that builds the program. It pickles user functions at once, so that a function which cannot
be sent fails at the line that passed it. It puts conversions where rows meet columns. It decides nothing that
needs the whole graph: that is the generators' part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from yarrow.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from yarrow.datastream.program.arrow_schemas import schema_bytes, schema_of_type
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.column_spec import ArrowToRowsOperator, RowsToArrowOperator
from yarrow.runtime.graph.engine_specs import is_of_engine
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerSpec, StreamKind
from yarrow.runtime.graph.shipped_operators import shipped
from yarrow.runtime.graph.transformations import (
    OneInputTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    SpecTransformation,
    Transformation,
    TwoInputTransformation,
    UnionTransformation,
    operator_behind,
)
from yarrow.runtime.graph.user_code import UserCodePacker

ROWS_TO_ARROW = "Rows to Arrow"
ARROW_TO_ROWS = "Arrow to Rows"


def declared(output_type: TypeInformation | Sequence[TypeInformation] | None) -> TypeInformation | None:
    """Return the declared type; None for none and for PICKLED_BYTE_ARRAY, which says the same.

    A list declares Rows.
    """
    if output_type is None or isinstance(output_type, PickledBytesTypeInfo):
        return None
    if isinstance(output_type, TypeInformation):
        return output_type
    if isinstance(output_type, list | tuple):
        return RowTypeInfo(output_type)
    raise TypeError(f"output_type must be a TypeInformation such as Types.STRING(), not {output_type!r}")


class GraphBuilder:
    """Collects the transformations of one program.

    `parallelism` is asked at each operator, since the environment's may change.
    """

    def __init__(self, parallelism: Callable[[], int]) -> None:
        self._parallelism = parallelism
        self._ids = count(1)
        self._roots: list[SpecTransformation] = []
        self._conversions: dict[tuple[Transformation, bytes | None], OneInputTransformation] = {}
        self._side_output_types: dict[tuple[Transformation, str], TypeInformation | None] = {}
        self.packer = UserCodePacker()

    @property
    def roots(self) -> Sequence[Transformation]:
        """The operators that read something, in the order of the calls: the part of the program that must run."""
        return tuple(self._roots)

    def clear(self) -> None:
        """Forget the roots: the next job begins with the operators added from now on. Ids continue."""
        self._roots.clear()

    def remove(self, sink: SinkTransformation) -> None:
        """Forget a sink that nobody reads any more; no error if it is forgotten already."""
        if sink in self._roots:
            self._roots.remove(sink)

    def source(self, name: str, spec: OperatorSpec, **settings: Any) -> SourceTransformation:
        """A source; it becomes part of the job when something reads it."""
        settings.setdefault("parallelism", self._parallelism())
        return SourceTransformation(
            id=next(self._ids), name=name, spec=self._travelling(spec, name), **settings
        )

    def one_input(
        self, read: Transformation, name: str, spec: OperatorSpec, **settings: Any
    ) -> OneInputTransformation:
        """An operator behind `read`."""
        settings.setdefault("parallelism", self._parallelism())
        made = OneInputTransformation(
            id=next(self._ids), name=name, spec=self._travelling(spec, name), reads=(read,), **settings
        )
        self._follow(read, made)
        self._roots.append(made)
        return made

    def two_input(
        self, first: Transformation, second: Transformation, name: str, spec: OperatorSpec, **settings: Any
    ) -> TwoInputTransformation:
        """An operator behind two streams."""
        settings.setdefault("parallelism", self._parallelism())
        made = TwoInputTransformation(
            id=next(self._ids),
            name=name,
            spec=self._travelling(spec, name),
            reads=(first, second),
            **settings,
        )
        self._follow(first, made)
        self._follow(second, made)
        self._roots.append(made)
        return made

    def sink(
        self, read: Transformation, name: str, spec: OperatorSpec, **settings: Any
    ) -> SinkTransformation:
        """A sink behind `read`."""
        settings.setdefault("parallelism", self._parallelism())
        made = SinkTransformation(
            id=next(self._ids), name=name, spec=self._travelling(spec, name), reads=(read,), **settings
        )
        self._follow(read, made)
        self._roots.append(made)
        return made

    def _travelling(self, spec: OperatorSpec, operator: str) -> OperatorSpec:
        """Return the spec as the JobGraph holds it. Raises InvalidProgramError for a spec that cannot travel."""
        if is_of_engine(type(spec)):
            return spec
        self.packer.require(spec.__module__)
        return shipped(spec, operator)

    def partition(self, read: Transformation, partitioner: PartitionerSpec) -> PartitionTransformation:
        """`read`, distributed by `partitioner`."""
        return PartitionTransformation(
            id=next(self._ids),
            name="Partition",
            output_type=read.output_type,
            output_kind=read.output_kind,
            output_schema=read.output_schema,
            read=read,
            partitioner=partitioner,
        )

    def union(self, reads: Sequence[Transformation]) -> UnionTransformation:
        """The union of all `reads`.

        Its type is declared when theirs are. The StreamGraph refuses different types.
        """
        # Unions of unions are one, so that a program may add streams one by one.
        reads = [part for read in reads for part in _parts(read)]
        first = reads[0]
        same = all(read.output_type == first.output_type for read in reads)
        return UnionTransformation(
            id=next(self._ids),
            name="Union",
            output_type=first.output_type if same else None,
            output_kind=first.output_kind,
            output_schema=first.output_schema
            if all(r.output_schema == first.output_schema for r in reads)
            else None,
            reads=tuple(reads),
        )

    def side_output(
        self, read: SpecTransformation, tag_id: str, output_type: TypeInformation | None
    ) -> SideOutputTransformation:
        """Return the records that `read` emits under the tag.

        Raises InvalidProgramError for a second type of one tag.
        """
        known = self._side_output_types.setdefault((read, tag_id), output_type)
        if known != output_type:
            raise InvalidProgramError(
                f"The side output {tag_id!r} of operator {read.name!r} is asked for with two types,"
                f" {known} and {output_type}: use one OutputTag for both."
            )
        columnar = tag_id in read.spec.columnar_side_outputs
        return SideOutputTransformation(
            id=next(self._ids),
            name=f"Side output {tag_id}",
            output_type=None if columnar else output_type,
            output_kind=StreamKind.COLUMNAR if columnar else StreamKind.ROW,
            output_schema=read.reads[0].output_schema if columnar else None,
            read=read,
            tag_id=tag_id,
        )

    def as_rows(self, read: Transformation, as_tuple: bool = False) -> Transformation:
        """`read` itself, or the conversion of its record batches to rows, which the plan shows."""
        if read.output_kind is StreamKind.ROW:
            return read
        return self._conversion(read, ARROW_TO_ROWS, ArrowToRowsOperator(as_tuple=as_tuple), None)

    def as_columns(self, read: Transformation, consumer: str, schema: bytes | None = None) -> Transformation:
        """`read` itself, or the conversion of its rows to record batches, which the plan shows.

        Without a schema the declared type gives one; InvalidProgramError, naming `consumer` and the operator
        behind `read`, when none is declared.
        """
        if read.output_kind is StreamKind.COLUMNAR:
            return read
        if schema is None:
            if read.output_type is None:
                behind = operator_behind(read)
                raise InvalidProgramError(
                    f"{consumer} takes columns, but the rows of operator {(behind or read).name!r} have no"
                    " declared type to make them from. Give that operator an output_type"
                    " (Types.ROW_NAMED(...)), or convert with to_arrow(schema)."
                )
            schema = schema_bytes(schema_of_type(read.output_type, (operator_behind(read) or read).name))
        return self._conversion(read, ROWS_TO_ARROW, RowsToArrowOperator(schema=schema), schema)

    def _conversion(
        self, read: Transformation, name: str, spec: OperatorSpec, schema: bytes | None
    ) -> OneInputTransformation:
        # Behind a partition each consumer gets a conversion of its own, which has the consumer's parallelism.
        key = (read, schema if name == ROWS_TO_ARROW else str(spec).encode())
        known = self._conversions.get(key)
        if known is not None and not isinstance(read, PartitionTransformation):
            return known
        made = OneInputTransformation(
            id=next(self._ids),
            name=name,
            spec=spec,
            reads=(read,),
            output_kind=StreamKind.COLUMNAR if name == ROWS_TO_ARROW else StreamKind.ROW,
            output_schema=schema,
            parallelism=self._parallelism(),
            parallelism_like=None if isinstance(read, PartitionTransformation) else operator_behind(read),
        )
        self._conversions[key] = made
        return made

    def _follow(self, read: Transformation, consumer: SpecTransformation) -> None:
        """Give a conversion behind a partition the parallelism of the operator that it serves."""
        if (
            isinstance(read, OneInputTransformation)
            and read.spec.is_conversion
            and isinstance(read.reads[0], PartitionTransformation)
            and read.parallelism_like is None
        ):
            read.parallelism_like = consumer

    def pickle(self, value: Any, operator: str, role: str = "function") -> bytes:
        """The value for the workers. Raises UnpicklableFunctionError naming `operator`."""
        return self.packer.pickle(value, operator, role)


def _parts(transformation: Transformation) -> Sequence[Transformation]:
    return transformation.reads if isinstance(transformation, UnionTransformation) else (transformation,)
