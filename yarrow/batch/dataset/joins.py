"""Pairs: two data sets as the inputs of one operator, by equal keys or each row with each row.

Owner: the thread that builds the program. Must not know the class of data sets that a program sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from yarrow.batch.dataset.data_set_ends import DataSetEnds
from yarrow.batch.dataset.fields import Field, Key, key_of, place_of, type_of
from yarrow.batch.dataset.order import Order
from yarrow.batch.dataset.partitions import by_key, sort_field
from yarrow.batch.dataset.row_operations import FunctionOperation, function_of
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.functions import Partitioner
from yarrow.datastream.functions.two_data_sets_functions import CoGroupFunction
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import (
    CoGroupOperator,
    CrossOperator,
    JoinKind,
    JoinOperator,
    ProjectedField,
    SortField,
    TwoDataSetsOperator,
)
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation

#: What two data sets with keys are together.
R = TypeVar("R")
#: The class of data sets that a program sees.
D = TypeVar("D", bound=DataSetEnds)
_NAMES: Final = {
    JoinKind.INNER: "Join",
    JoinKind.LEFT_OUTER: "LeftOuterJoin",
    JoinKind.RIGHT_OUTER: "RightOuterJoin",
    JoinKind.FULL_OUTER: "FullOuterJoin",
}
#: Types of keys whose values may be equal to each other, and to none of another line.
_KINDS: Final = (
    (Types.STRING(), Types.CHAR()),
    (
        *(Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT()),
        *(Types.FLOAT(), Types.DOUBLE(), Types.BIG_DEC()),
    ),
    (Types.SQL_DATE(),),
    (Types.SQL_TIME(),),
)


class JoinCalls(ABC, Generic[D, R]):
    """The calls that begin a join of this data set, with another of the class D."""

    @abstractmethod
    def _join(self, kind: JoinKind, other: D) -> R:
        """Both data sets, of which the keys are to be given."""

    def join(self, other: D) -> R:
        """Begin a join: `where` and `equal_to` give the keys, and the result has the pairs with equal keys."""
        return self._join(JoinKind.INNER, other)

    def join_with_tiny(self, other: D) -> R:
        """Begin a join; the hint that the other data set is small changes nothing."""
        return self._join(JoinKind.INNER, other)

    def join_with_huge(self, other: D) -> R:
        """Begin a join; the hint that the other data set is large changes nothing."""
        return self._join(JoinKind.INNER, other)

    def left_outer_join(self, other: D) -> R:
        """Begin a join that keeps rows of this data set without a partner, paired with None."""
        return self._join(JoinKind.LEFT_OUTER, other)

    def right_outer_join(self, other: D) -> R:
        """Begin a join that keeps rows of the other data set without a partner, paired with None."""
        return self._join(JoinKind.RIGHT_OUTER, other)

    def full_outer_join(self, other: D) -> R:
        """Begin a join that keeps rows of both data sets without a partner, paired with None."""
        return self._join(JoinKind.FULL_OUTER, other)


class Pairs(Protocol):
    """Two data sets, about to become the inputs of one operator."""

    name: str
    first: DataSetEnds
    second: DataSetEnds

    def reads(self) -> tuple[Transformation, Transformation]:
        """The inputs as the operator reads them."""
        ...

    def spec(
        self, function: bytes | None, projection: tuple[ProjectedField, ...], *, is_flat: bool
    ) -> TwoDataSetsOperator:
        """The operator."""
        ...


class KeyedSets:
    """Two data sets by key."""

    def __init__(self, name: str, first: DataSetEnds, second: DataSetEnds, keys: tuple[Any, Any]) -> None:
        self.name = name
        self.first = first
        self.second = second
        self._partitioner: Any = None
        builder = first._builder
        self.selectors = (
            builder.pickle(keys[0], name, "key selector"), builder.pickle(keys[1], name, "key selector"),
        )  # fmt: skip

    def partitioned_by(self, partitioner: Any) -> Self:
        """The same, with a partitioner that names the task of each key."""
        require_function(partitioner, Partitioner, "with_partitioner")
        made = copy(self)
        made._partitioner = partitioner
        return made

    def reads(self) -> tuple[Transformation, Transformation]:
        builder = self.first._builder
        one, other = (
            builder.partition(data._rows(), by_key(builder, selector, self._partitioner, self.name))
            for data, selector in zip((self.first, self.second), self.selectors, strict=True)
        )
        return one, other


class JoinedSets(KeyedSets):
    """Two data sets that are joined."""

    def __init__(
        self, kind: JoinKind, first: DataSetEnds, second: DataSetEnds, keys: tuple[Any, Any]
    ) -> None:
        super().__init__(self.name_of(kind), first, second, keys)
        self.kind = kind

    @staticmethod
    def name_of(kind: JoinKind) -> str:
        """The name of the operator that joins."""
        return _NAMES[kind]

    def spec(
        self, function: bytes | None, projection: tuple[ProjectedField, ...], *, is_flat: bool
    ) -> TwoDataSetsOperator:
        return JoinOperator(
            kind=self.kind,
            key_selectors=self.selectors,
            function=function,
            projection=projection,
            is_flat=is_flat,
        )


class CrossedSets:
    """Two data sets of which each row meets each row."""

    name = "Cross"

    def __init__(self, first: DataSetEnds, second: DataSetEnds, broadcast_input: int) -> None:
        first._same_program(second, "cross")
        self.first = first
        self.second = second
        self._broadcast_input = broadcast_input

    def reads(self) -> tuple[Transformation, Transformation]:
        reads = [self.first._rows(), self.second._rows()]
        number = self._broadcast_input
        sent = PartitionerSpec(kind=PartitionerKind.BROADCAST)
        reads[number] = self.first._builder.partition(reads[number], sent)
        return reads[0], reads[1]

    def spec(
        self, function: bytes | None, projection: tuple[ProjectedField, ...], *, is_flat: bool
    ) -> TwoDataSetsOperator:
        return CrossOperator(
            broadcast_input=self._broadcast_input, function=function, projection=projection, is_flat=is_flat
        )


def paired(
    pairs: Pairs,
    output_type: TypeInformation | None,
    function: Any = None,
    projection: tuple[ProjectedField, ...] = (),
    *,
    is_flat: bool = False,
) -> SpecTransformation:
    """What a function or a projection gives for each pair of rows; without both, the pair."""
    builder = pairs.first._builder
    pickled = None if function is None else builder.pickle(function, pairs.name)
    return builder.two_input(
        *pairs.reads(),
        pairs.name,
        pairs.spec(pickled, projection, is_flat=is_flat),
        output_type=output_type,
        blocking=declares_blocking(function),
    )


def pair_type(pairs: Pairs) -> TypeInformation | None:
    """The type of pairs of rows; None if it is not known, or a row may be missing."""
    return _tuple_of([each.transformation.output_type for each in (pairs.first, pairs.second)], pairs)


def projected_type(pairs: Pairs, fields: Sequence[ProjectedField]) -> TypeInformation | None:
    """The type of tuples of these fields; None if it is not known, or a row may be missing."""
    return _tuple_of([_type_of(pairs, each) for each in fields], pairs)


def _tuple_of(types: Sequence[TypeInformation | None], pairs: Pairs) -> TypeInformation | None:
    known = [each for each in types if each is not None]
    # Outer joins give None for the fields of a row that is missing, which no typed field may be.
    return Types.TUPLE(known) if len(known) == len(types) and _is_whole(pairs) else None


class CoGroups(Generic[D]):
    """Two data sets by key, whose groups wait for a function."""

    def __init__(
        self, made: Callable[[Transformation, tuple[FunctionOperation, ...]], D], pairs: KeyedSets
    ) -> None:
        """`made`: the data set that a transformation puts out."""
        self._made = made
        self._pairs = pairs
        #: The order of the rows of a key, of each data set; () = as they come.
        self._orders: tuple[tuple[SortField, ...], tuple[SortField, ...]] = ((), ())

    def with_(
        self,
        function: Callable[[Any, Any], Iterable[Any] | None] | CoGroupFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that gets the rows of each key, as an iterator of each data set."""
        require_function(function, CoGroupFunction, "with_")
        pairs = self._pairs
        builder = pairs.first._builder
        spec = CoGroupOperator(
            key_selectors=pairs.selectors,
            function=builder.pickle(function, pairs.name),
            is_flat=True,
            orders=self._orders,
        )
        made = builder.two_input(
            *pairs.reads(),
            pairs.name,
            spec,
            output_type=declared(output_type),
            blocking=declares_blocking(function),
        )
        return self._made(made, (function_of(made),))

    def sort_first_group(self, field: Key, order: Order = Order.ASCENDING) -> Self:
        """Return the same with the rows of a key of the first data set in order of a field, behind those so far."""
        first, second = self._orders
        more = sort_field(self._pairs.first, "sort_first_group", field, order)
        return self._with(self._pairs, ((*first, more), second))

    def sort_second_group(self, field: Key, order: Order = Order.ASCENDING) -> Self:
        """Return the same with the rows of a key of the second data set in order of a field, behind those so far."""
        first, second = self._orders
        more = sort_field(self._pairs.second, "sort_second_group", field, order)
        return self._with(self._pairs, (first, (*second, more)))

    def with_partitioner(self, partitioner: Callable[[Any, int], int] | Partitioner[Any]) -> Self:
        """Return the same, with each key taken by the task that `partitioner(key, number of tasks)` names."""
        return self._with(self._pairs.partitioned_by(partitioner), self._orders)

    def _with(self, pairs: KeyedSets, orders: tuple[tuple[SortField, ...], tuple[SortField, ...]]) -> Self:
        made = copy(self)
        made._pairs, made._orders = pairs, orders
        return made


class OperatorSets(ABC, Generic[R]):
    """Two data sets whose keys are to be given: `where` those of the first one, `equal_to` those of the second one."""

    def __init__(self, name: str, first: DataSetEnds, second: DataSetEnds) -> None:
        first._same_program(second, name)
        self._name = name
        self._first = first
        self._second = second
        self._keys: tuple[Key, ...] = ()

    def where(self, *keys: Key) -> Self:
        """Give the key of the first data set: fields by position or name, or one key selector."""
        self._first_key = key_of("where", keys, self._first.transformation.output_type)
        self._keys = keys
        return self

    def equal_to(self, *keys: Key) -> R:
        """Give the key of the second data set; return what both are together."""
        if not self._keys:
            raise InvalidProgramError(
                "equal_to comes behind where, which gives the key of the first data set"
            )
        second_key = key_of("equal_to", keys, self._second.transformation.output_type)
        by_fields = [all(isinstance(key, int | str) for key in each) for each in (self._keys, keys)]
        if all(by_fields) and len(keys) != len(self._keys):
            raise InvalidProgramError(
                f"where has {len(self._keys)} fields and equal_to {len(keys)}: name as many fields of both data sets"
            )
        if all(by_fields):
            self._check_types(keys)
        return self._together((self._first_key, second_key))

    def _check_types(self, keys: tuple[Any, ...]) -> None:
        """No text equals a number: such a join would silently have no pair."""
        data_sets = self._first, self._second
        for fields in zip(self._keys, keys, strict=True):
            types = [
                type_of(
                    place_of("where", field, data.transformation.output_type), data.transformation.output_type
                )
                for field, data in zip(fields, data_sets, strict=True)
            ]
            kinds = [
                next((number for number, kind in enumerate(_KINDS) if each in kind), None) for each in types
            ]
            if None not in kinds and kinds[0] != kinds[1]:
                raise InvalidProgramError(
                    f"{self._name}: where({fields[0]!r}) is a {types[0]} and equal_to({fields[1]!r}) a {types[1]}. No"
                    " value of one equals a value of the other: name other fields, or map one of them"
                )

    @abstractmethod
    def _together(self, keys: tuple[Any, Any]) -> R:
        """Both data sets by these keys."""


def _is_whole(pairs: Pairs) -> bool:
    """Whether no row of a pair can be missing."""
    return not isinstance(pairs, JoinedSets) or pairs.kind is JoinKind.INNER


def projected_fields(pairs: Pairs, number: int, fields: Sequence[Field]) -> tuple[ProjectedField, ...]:
    """Fields of the rows of one data set; without fields, the row itself."""
    data = (pairs.first, pairs.second)[number]
    if not fields:
        return (ProjectedField(number, None),)
    call = ("project_first", "project_second")[number]
    places = [place_of(call, field, data.transformation.output_type) for field in fields]
    return tuple(ProjectedField(number, _position(call, place, data)) for place in places)


def _position(call: str, place: Field, data: DataSetEnds) -> int:
    if isinstance(place, int):
        return place
    raise InvalidProgramError(
        f"{call}({place!r}): the position of the field is not known. Give the position, or declare the type of"
        f" '{data.transformation.name}'"
    )


def _type_of(pairs: Pairs, projected: ProjectedField) -> TypeInformation | None:
    record_type = (pairs.first, pairs.second)[projected.input].transformation.output_type
    return record_type if projected.field is None else type_of(projected.field, record_type)
