"""Whether a row of a row group of Parquet can meet a condition, by the group's statistics alone. Pure.

Owner: any thread. The answer may be yes where no row meets it, and never no where one does: statistics are bounds, lack
NaN, and may be cut. The truth of a condition is that of the operator `column_selection`. Must not read rows.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

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
from yarrow.runtime.columns.condition_checks import values_of, why_not_compared

#: Microseconds in the unit of a column of timestamps. Nanoseconds are compared as cut ones, so they stay out.
_MICROSECONDS: Final = {"us": 1, "ms": 1000}
_MOST: Final = 2**63 - 1
_UNITS: Final = {"microseconds": "us", "milliseconds": "ms"}


class Possible(NamedTuple):
    """Whether a condition can be true, and whether it can be false, for a row of a group."""

    true: bool
    false: bool


_ANY: Final = Possible(true=True, false=True)


class GroupStatistics:
    """The statistics of the row groups of one file."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._metadata = file.metadata
        self._schema: pa.Schema = file.schema_arrow
        self._logical = {
            file.schema.column(at).path: (at, file.schema.column(at)) for at in range(len(file.schema))
        }
        #: The last condition, and whether its columns can be compared; None = nobody has asked yet.
        self._fitting: tuple[Condition, bool] | None = None

    def may_have(self, group: int, condition: Condition) -> bool:
        """False if no row of the row group meets the condition."""
        # An operator has to see the rows of a condition that does not fit: it names what is wrong.
        return not self._fits(condition) or self._possible(group, condition).true

    def _fits(self, condition: Condition) -> bool:
        if self._fitting is None or self._fitting[0] is not condition:
            self._fitting = condition, not why_not_compared(condition, self._schema)
        return self._fitting[1]

    def _possible(self, group: int, condition: Condition) -> Possible:
        match condition:
            case Comparison(name, kind, value):
                return self._comparison(group, name, kind, value)
            case NullCheck(name):
                return self._null_check(group, name)
            case AllOf(parts):
                found = [self._possible(group, part) for part in parts]
                return Possible(all(each.true for each in found), any(each.false for each in found))
            case AnyOf(parts):
                found = [self._possible(group, part) for part in parts]
                return Possible(any(each.true for each in found), all(each.false for each in found))
            case Negation(part):
                inner = self._possible(group, part)
                return Possible(inner.false, inner.true)
        return _ANY

    def _chunk(self, group: int, name: str) -> Any:
        """The column chunk of a flat column; None = the column is nested."""
        found = self._logical.get(name)
        if found is None or "." in name or found[1].max_repetition_level:
            return None
        return self._metadata.row_group(group).column(found[0])

    def _null_check(self, group: int, name: str) -> Possible:
        chunk = self._chunk(group, name)
        statistics = None if chunk is None else chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return _ANY
        return Possible(statistics.null_count > 0, statistics.null_count < chunk.num_values)

    def _comparison(self, group: int, name: str, kind: ComparisonKind, literal: Literal) -> Possible:
        chunk = self._chunk(group, name)
        statistics = None if chunk is None else chunk.statistics
        if statistics is None:
            return _ANY
        if statistics.has_null_count and statistics.null_count == chunk.num_values:
            # Compared with null, everything is null.
            return Possible(true=False, false=False)
        column = values_of(self._schema.field(name).type)
        if not statistics.has_min_max or not self._is_stored_as_typed(name, column):
            return _ANY
        value = _value(literal)
        least, most = (_number(raw, column) for raw in (statistics.min_raw, statistics.max_raw))
        # Bounds that are NaN say nothing. Operators compare microseconds, which some milliseconds exceed.
        if not least <= most or (pa.types.is_timestamp(column) and max(-least, most) > _MOST):
            return _ANY
        found = _compared(least, most, kind, value, is_exact=not isinstance(least, bytes))
        if pa.types.is_floating(column):
            # NaN is unequal to each number, in no order to any, and not among the bounds.
            unequal = kind is ComparisonKind.NOT_EQUAL
            return Possible(found.true or unequal, found.false or not unequal)
        return found

    def _is_stored_as_typed(self, name: str, column: pa.DataType) -> bool:
        """Whether the numbers of the statistics are in the unit of the column."""
        if not pa.types.is_timestamp(column):
            return True
        told = json.loads(self._logical[name][1].logical_type.to_json())
        return column.unit in _MICROSECONDS and _UNITS.get(told.get("timeUnit", "")) == column.unit


def _compared(least: Any, most: Any, kind: ComparisonKind, value: Any, *, is_exact: bool) -> Possible:
    """Whether a comparison can be true, and false, for values from `least` to `most`.

    `is_exact`: both are values of the column. Bounds of texts may be cut.
    """
    match kind:
        case ComparisonKind.EQUAL:
            return Possible(least <= value <= most, not (is_exact and least == value == most))
        case ComparisonKind.NOT_EQUAL:
            return Possible(not (is_exact and least == value == most), least <= value <= most)
        case ComparisonKind.LESS:
            return Possible(least < value, most >= value)
        case ComparisonKind.LESS_OR_EQUAL:
            return Possible(least <= value, most > value)
        case ComparisonKind.GREATER:
            return Possible(most > value, least <= value)
        case ComparisonKind.GREATER_OR_EQUAL:
            return Possible(most >= value, least < value)


def _value(literal: Literal) -> Any:
    value = literal.value
    return value.encode() if literal.kind is LiteralKind.TEXT and isinstance(value, str) else value


def _number(raw: Any, column: pa.DataType) -> Any:
    """A bound as the value that it is: Parquet stores unsigned numbers as signed ones."""
    if pa.types.is_unsigned_integer(column) and raw < 0:
        return raw + (1 << (64 if pa.types.is_uint64(column) else 32))
    return raw * _MICROSECONDS[column.unit] if pa.types.is_timestamp(column) else raw
