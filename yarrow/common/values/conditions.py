"""Conditions over the columns of a row, as data.

Owner: none (frozen values). Whoever plans a job can read a condition: the engine's operators and Spark SQL compute it
alike. Must not evaluate anything, nor import pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NoReturn

import msgspec


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

    `&`, `|` and `~` combine conditions by the rules of SQL for null.
    """

    def __and__(self, other: Condition) -> AllOf:
        return AllOf((_condition(self), _condition(other)))

    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf((_condition(self), _condition(other)))

    def __invert__(self) -> Negation:
        return Negation(_condition(self))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a condition over columns has no truth before there are rows. Combine conditions by &, | and ~ in place of "
            "and, or and not, with parentheses around each"
        )


def _condition(other: object) -> AnyCondition:
    if not isinstance(other, Comparison | NullCheck | AllOf | AnyOf | Negation):
        raise TypeError(f"a condition can be combined with another condition only, not with {other!r}")
    return other


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


AnyCondition = Comparison | NullCheck | AllOf | AnyOf | Negation


def comparisons_of(condition: Condition) -> Iterator[Comparison | NullCheck]:
    """The parts of a condition that read a column."""
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from comparisons_of(part)
        case Negation(part):
            yield from comparisons_of(part)
        case Comparison() | NullCheck():
            yield condition
