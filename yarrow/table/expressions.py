"""Expressions of columns: `col` begins a condition for `DataStream.filter`.

Owner: the thread that builds the program. Names are those of PyFlink's Table API, as far as they exist here. Must not
look at rows.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from yarrow.common.values.conditions import (
    AnyCondition,
    AnyOf,
    Comparison,
    ComparisonKind,
    Condition,
    Literal,
    LiteralKind,
    NullCheck,
)
from yarrow.runtime.common.errors import InvalidProgramError

__all__ = ["ColumnReference", "Condition", "col"]

_MICROSECOND: Final = dt.timedelta(microseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_INT64: Final = range(-(2**63), 2**63)


def col(name: str) -> ColumnReference:
    """Return a column, of which comparisons make conditions: `(col("delay") > 15) & col("carrier").is_not_null`."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"col takes the name of a column, not {name!r}")
    return ColumnReference(name)


class ColumnReference:
    """A column in an expression.

    It is compared with a bool, int, float, str, date or datetime. A comparison with a row without a value is null, and
    NaN is unequal to every number.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, value: object) -> Comparison:  # type: ignore[override]
        return self._compared(ComparisonKind.EQUAL, value)

    def __ne__(self, value: object) -> Comparison:  # type: ignore[override]
        return self._compared(ComparisonKind.NOT_EQUAL, value)

    def __lt__(self, value: object) -> Comparison:
        return self._compared(ComparisonKind.LESS, value)

    def __le__(self, value: object) -> Comparison:
        return self._compared(ComparisonKind.LESS_OR_EQUAL, value)

    def __gt__(self, value: object) -> Comparison:
        return self._compared(ComparisonKind.GREATER, value)

    def __ge__(self, value: object) -> Comparison:
        return self._compared(ComparisonKind.GREATER_OR_EQUAL, value)

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_null(self) -> NullCheck:
        """Whether a row has no value; NaN is one."""
        return NullCheck(self._name)

    @property
    def is_not_null(self) -> Condition:
        """Whether a row has a value."""
        return ~self.is_null

    def in_(self, *values: Any) -> Condition:
        """Whether the value of a row equals one of these. Raises InvalidProgramError without values."""
        if not values:
            raise InvalidProgramError(f"col({self._name!r}).in_() needs a value")
        parts: list[AnyCondition] = [self == value for value in values]
        return AnyOf(tuple(parts))

    def between(self, lower_bound: Any, upper_bound: Any) -> Condition:
        """Whether the value of a row lies between these, both included."""
        return self._compared(ComparisonKind.GREATER_OR_EQUAL, lower_bound) & self._compared(
            ComparisonKind.LESS_OR_EQUAL, upper_bound
        )

    def _compared(self, kind: ComparisonKind, value: Any) -> Comparison:
        return Comparison(self._name, kind, _literal(self._name, value))


def _literal(column: str, value: Any) -> Literal:
    """The value as a condition holds it. Raises InvalidProgramError for what no column is compared with."""
    match value:
        case bool():
            return Literal(LiteralKind.BOOLEAN, value)
        case int() if value in _INT64:
            return Literal(LiteralKind.INTEGER, int(value))
        case float() if value == value:
            return Literal(LiteralKind.FLOAT, float(value))
        case str() if _is_text(value):
            return Literal(LiteralKind.TEXT, str(value))
        case dt.datetime() if value.utcoffset() is not None:
            moment = value.astimezone(dt.UTC).replace(tzinfo=None)
            return Literal(LiteralKind.INSTANT, (moment - _EPOCH) // _MICROSECOND)
        case dt.datetime():
            return Literal(LiteralKind.TIMESTAMP, (value - _EPOCH) // _MICROSECOND)
        case dt.date():
            return Literal(LiteralKind.DATE, (value - _EPOCH.date()).days)
    if value is None:
        raise InvalidProgramError(
            f"col({column!r}) compared with None is never true: use is_null or is_not_null"
        )
    raise InvalidProgramError(
        f"col({column!r}) cannot be compared with {value!r}. Use a bool, an int of 64 bits, a float other than NaN, a "
        "str, a date or a datetime"
    )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
