"""Conditions over the columns of a row, and what of the rows of a source is wanted, as data.

Owner: none (frozen values). Whoever plans a job can read a condition: the engine's operators and Spark SQL compute it
alike. An Arrow expression is the exception: only Arrow can read it. Must not evaluate anything, nor import pyarrow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: Characters of an expression that people get to see.
_SHOWN: Final = 200


class LiteralKind(StrEnum):
    """What a value in a condition is; it says which columns can be compared with it."""

    BOOLEAN = "boolean"
    INTEGER = "whole number"
    FLOAT = "float"
    TEXT = "text"
    #: Days since 1970-01-01.
    DATE = "date"
    #: Microseconds since 1970-01-01 of a clock without a zone.
    TIMESTAMP = "timestamp without a zone"
    #: Microseconds since 1970-01-01 in UTC.
    INSTANT = "timestamp with a zone"


class Literal(msgspec.Struct, frozen=True):
    """A value that the program names."""

    kind: LiteralKind
    value: bool | int | float | str


class ComparisonKind(StrEnum):
    """How a column is compared with a value. Flink's and SQL's rule for null holds: the result is null."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class Condition(msgspec.Struct, frozen=True):
    """Base of conditions over the columns of a row: true, false or null. Rows for which it is true are kept.

    `&`, `|` and `~` combine conditions by the rules of SQL for null. An Arrow expression may stand on the right.
    """

    def __and__(self, other: Condition | pc.Expression) -> AllOf:
        return AllOf((_condition(self), _condition(other)))

    def __or__(self, other: Condition | pc.Expression) -> AnyOf:
        return AnyOf((_condition(self), _condition(other)))

    def __invert__(self) -> Negation:
        return Negation(_condition(self))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a condition over columns has no truth before there are rows. Combine conditions by &, | and ~ in place of "
            "and, or and not, with parentheses around each"
        )


def _condition(other: object) -> AnyCondition:
    condition = condition_of(other)
    if condition is None:
        raise TypeError(f"a condition can be combined with another condition only, not with {other!r}")
    return condition


class Comparison(Condition, frozen=True, tag="comparison"):
    """A column compared with a value. Floats compare as in Python: NaN is unequal to every number."""

    column: str
    kind: ComparisonKind
    value: Literal


class NullCheck(Condition, frozen=True, tag="null"):
    """Whether a column has no value; never null itself."""

    column: str


class AllOf(Condition, frozen=True, tag="and"):
    """True if all conditions are; false if one is; null otherwise."""

    parts: tuple[AnyCondition, ...]


class AnyOf(Condition, frozen=True, tag="or"):
    """True if one condition is; false if none can be; null otherwise."""

    parts: tuple[AnyCondition, ...]


class Negation(Condition, frozen=True, tag="not"):
    """True for false, false for true, null for null."""

    part: AnyCondition


class ArrowExpression(Condition, frozen=True, tag="arrow"):
    """A `pyarrow.compute.Expression`, true, false or null for each row."""

    #: The expression in Arrow's own form, a file of Arrow IPC: data that can be opened without running code.
    message: bytes
    #: The expression for people.
    text: str


AnyCondition = Comparison | NullCheck | AllOf | AnyOf | Negation | ArrowExpression


class WantedColumns(msgspec.Struct, frozen=True):
    """What the operators behind a source of columns need of its rows. A reader may give more of both."""

    #: The names of these columns; None = all.
    columns: tuple[str, ...] | None = None
    #: Rows for which it is false or null are dropped by operators behind the source; None = all rows are kept.
    condition: AnyCondition | None = None

    def __bool__(self) -> bool:
        """Whether a reader may leave something out."""
        return self.columns is not None or self.condition is not None

    def __str__(self) -> str:
        """The text for plans: what is left out; "" = nothing."""
        parts = []
        if self.columns is not None:
            parts.append(f"decodes the columns {', '.join(self.columns)} alone")
        if self.condition is not None:
            parts.append("leaves out row groups in which no row can meet the filters, by their statistics")
        return "; ".join(parts)


def condition_of(value: object) -> AnyCondition | None:
    """The condition that a value is, also as an Arrow expression; None = it is none.

    Raises ValueError for an Arrow expression that cannot leave the process.
    """
    if isinstance(value, Comparison | NullCheck | AllOf | AnyOf | Negation | ArrowExpression):
        return value
    # A program with an expression has imported the module, and the others do not need it.
    # While another thread imports it, the module is there and has no such class yet.
    kind = getattr(sys.modules.get("pyarrow.compute"), "Expression", None)
    return _arrow_expression(value) if kind is not None and isinstance(value, kind) else None


def _arrow_expression(expression: pc.Expression) -> ArrowExpression:
    text = " ".join(str(expression).split())[:_SHOWN]
    try:
        # The only public way to Arrow's form of an expression for which no schema is known. Nothing is pickled.
        _, (message,) = expression.__reduce__()
    except NotImplementedError as error:
        raise ValueError(
            f"the Arrow expression {text} cannot leave this process: {error}. Name each column, as in"
            " pc.field('price'), not by its position"
        ) from None
    return ArrowExpression(bytes(message), text)


def comparisons_of(condition: Condition) -> Iterator[Comparison | NullCheck]:
    """The parts of a condition that read one column. Arrow expressions are not among them."""
    return (part for part in _leaves(condition) if not isinstance(part, ArrowExpression))


def expressions_of(condition: Condition) -> Iterator[ArrowExpression]:
    """The Arrow expressions in a condition."""
    return (part for part in _leaves(condition) if isinstance(part, ArrowExpression))


def _leaves(condition: Condition) -> Iterator[Comparison | NullCheck | ArrowExpression]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _leaves(part)
        case Negation(part):
            yield from _leaves(part)
        case Comparison() | NullCheck() | ArrowExpression():
            yield condition
