"""Aggregations: sum, min and max of fields, several in one pass.

Owner: the thread that builds the program; the task's thread calls the function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from enum import Enum
from typing import Any, Generic, TypeVar

from yarrow.batch.dataset.data_set_ends import DataSetEnds
from yarrow.batch.dataset.fields import Field, place_of, type_of
from yarrow.batch.dataset.grouping import UnsortedGroups
from yarrow.common.typeinfo import BasicTypeInfo
from yarrow.common.types import Row
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import AggregateKind
from yarrow.runtime.graph.transformations import Transformation

#: Rows with an aggregate, as a program sees them.
A = TypeVar("A")


class Aggregations(Enum):
    """The built-in aggregates of a field."""

    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"


_KINDS = {
    Aggregations.SUM: AggregateKind.SUM,
    Aggregations.MIN: AggregateKind.MIN,
    Aggregations.MAX: AggregateKind.MAX,
}
#: Types of fields that have no sum.
_NO_NUMBERS = frozenset({"STRING", "CHAR", "BOOLEAN", "INSTANT"})


class AggregateCalls(ABC, Generic[A]):
    """The calls that give aggregates, of groups or of all rows; A is the class of what they return."""

    @abstractmethod
    def aggregate(self, agg: Aggregations, field: Field) -> A:
        """Return rows with the aggregate of a field in its place; `and_` adds further ones."""

    def sum(self, field: Field) -> A:
        """Return rows with the sum of a field."""
        return self.aggregate(Aggregations.SUM, field)

    def min(self, field: Field) -> A:
        """Return rows with the least value of a field."""
        return self.aggregate(Aggregations.MIN, field)

    def max(self, field: Field) -> A:
        """Return rows with the greatest value of a field."""
        return self.aggregate(Aggregations.MAX, field)


def aggregated(
    grouping: UnsortedGroups[Any], aggregates: Sequence[tuple[Aggregations, int]]
) -> Transformation:
    """A row for each group, with aggregates in the places of their fields."""
    if len(aggregates) == 1:
        ((agg, place),) = aggregates
        made: DataSetEnds = grouping.field_aggregate("Aggregate", _KINDS[agg], place)
    else:
        made = grouping._reduced("Aggregate", FieldAggregates(aggregates), None)
    return made.transformation


def place_of_aggregate(agg: Aggregations, field: Field, data: DataSetEnds) -> int:
    """The place of the field in a row. Raises InvalidProgramError for a field without such an aggregate."""
    if not isinstance(agg, Aggregations):
        raise TypeError(f"aggregate takes an Aggregations, such as Aggregations.SUM, not {agg!r}")
    declared = data.transformation.output_type
    place = place_of("aggregate", field, declared)
    if not isinstance(place, int):
        raise InvalidProgramError(
            f"aggregate({field!r}): aggregates take fields of tuples and Rows by position, or by name where a type "
            "with that name is declared. Declare it with output_type or returns(...)."
        )
    field_type = type_of(place, declared)
    if agg is Aggregations.SUM and isinstance(field_type, BasicTypeInfo) and field_type.tag in _NO_NUMBERS:
        raise InvalidProgramError(
            f"aggregate(SUM, {field!r}): the field is a {field_type}, which has no sum; sum a field of numbers"
        )
    return place


class FieldAggregates:
    """The function of two rows that gives a row with the aggregates of both."""

    def __init__(self, aggregates: Sequence[tuple[Aggregations, int]]) -> None:
        self._aggregates = tuple((agg.value, place) for agg, place in aggregates)

    def __call__(self, one: Any, other: Any) -> Any:
        """The first row with aggregates in their places."""
        made = copy(one) if isinstance(one, Row) else list(one)
        for kind, place in self._aggregates:
            value, further = one[place], other[place]
            if kind == "SUM":
                made[place] = value + further
            elif further < value if kind == "MIN" else further > value:
                made[place] = further
        if isinstance(one, tuple):
            return type(one)(*made) if hasattr(one, "_fields") else tuple(made)
        return made
