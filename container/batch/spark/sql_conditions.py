"""Conditions over columns as expressions of Spark SQL, with the truth that the engine's own filter gives them.

Owner: the thread of a run. Spark takes NaN for equal to itself and larger than any number, and Python does not: so the
rows with NaN are set apart. Must not decide what becomes SQL.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from yarrow.common.values.conditions import (
    AllOf,
    AnyOf,
    Comparison,
    ComparisonKind,
    Condition,
    Literal,
    LiteralKind,
    Negation,
    NullCheck,
)
from yarrow.runtime.columns.condition_checks import values_of

_COMPARISONS: Final[Mapping[ComparisonKind, Callable[[Any, Any], Any]]] = {
    ComparisonKind.EQUAL: operator.eq,
    ComparisonKind.NOT_EQUAL: operator.ne,
    ComparisonKind.LESS: operator.lt,
    ComparisonKind.LESS_OR_EQUAL: operator.le,
    ComparisonKind.GREATER: operator.gt,
    ComparisonKind.GREATER_OR_EQUAL: operator.ge,
}
_EPOCH: Final = dt.datetime(1970, 1, 1)


class Conditions:
    """Conditions over the columns of one scan."""

    def __init__(self, schema: pa.Schema, names: Mapping[str, str]) -> None:
        """`names`: those of Spark's columns, by the name of each column in `schema`."""
        self._schema = schema
        self._names = names

    def expression(self, condition: Condition) -> Column:
        """The condition as a boolean column."""
        match condition:
            case Comparison(name, kind, value):
                return self._comparison(name, kind, value)
            case NullCheck(name):
                return F.col(self._names[name]).isNull()
            case AllOf(parts):
                return reduce(operator.and_, map(self.expression, parts))
            case AnyOf(parts):
                return reduce(operator.or_, map(self.expression, parts))
            case Negation(part):
                return ~self.expression(part)
        raise TypeError(f"a {type(condition).__name__} is no condition")

    def _comparison(self, name: str, kind: ComparisonKind, value: Literal) -> Column:
        column, compare = F.col(self._names[name]), _COMPARISONS[kind]
        if not pa.types.is_floating(values_of(self._schema.field(name).type)):
            compared: Column = compare(column, _value(value))
            return compared
        real = compare(column.cast("double"), F.lit(float(value.value)))
        return F.when(F.isnan(column), F.lit(kind is ComparisonKind.NOT_EQUAL)).otherwise(real)


def _value(literal: Literal) -> Column:
    """The value as a column. Java's calendar before 1582 is another one, so no date of Java is made here."""
    value = literal.value
    match literal.kind:
        case LiteralKind.INTEGER:
            return F.lit(value).cast("bigint")
        case LiteralKind.DATE:
            return F.date_from_unix_date(F.lit(value).cast("int"))
        case LiteralKind.INSTANT:
            return F.timestamp_micros(F.lit(value).cast("bigint"))
        case LiteralKind.TIMESTAMP:
            moment = _EPOCH + dt.timedelta(microseconds=int(value))
            return F.lit(moment.isoformat(" ")).cast("timestamp_ntz")
        case _:
            return F.lit(value)
