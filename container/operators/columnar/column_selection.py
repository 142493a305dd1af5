"""filter by a condition over columns, and select: built-in operators of whole batches.

Owner: the task thread. A condition is checked against the schema of the batches whenever that changes. Spark SQL
computes the same in bounded jobs, except for Arrow expressions, so each rule here has its counterpart there. Must not
call user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common.values.conditions import (
    AllOf,
    AnyOf,
    ArrowExpression,
    Comparison,
    ComparisonKind,
    Condition,
    Literal,
    LiteralKind,
    Negation,
    NullCheck,
)
from yarrow.container.operators.columnar.kept_rows import kept_rows
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.columns.arrow_expressions import truth_of_expression
from yarrow.runtime.columns.condition_checks import values_of, why_not_compared
from yarrow.runtime.columns.schema_text import why_not_there
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import ColumnFilterOperator, ColumnSelectionOperator

_COMPARISONS: Final[dict[ComparisonKind, Callable[[Any, Any], Any]]] = {
    ComparisonKind.EQUAL: pc.equal,
    ComparisonKind.NOT_EQUAL: pc.not_equal,
    ComparisonKind.LESS: pc.less,
    ComparisonKind.LESS_OR_EQUAL: pc.less_equal,
    ComparisonKind.GREATER: pc.greater,
    ComparisonKind.GREATER_OR_EQUAL: pc.greater_equal,
}
#: The types of values, which hold each of them exactly.
_WIDE: Final[dict[LiteralKind, pa.DataType]] = {
    LiteralKind.BOOLEAN: pa.bool_(),
    LiteralKind.INTEGER: pa.int64(),
    LiteralKind.FLOAT: pa.float64(),
    LiteralKind.TEXT: pa.string(),
    LiteralKind.DATE: pa.date32(),
    LiteralKind.TIMESTAMP: pa.timestamp("us"),
    LiteralKind.INSTANT: pa.timestamp("us", "UTC"),
}


class ColumnSelectionError(YarrowError):
    """A batch does not have the columns of a condition or of a selection; the message names operator and column."""


class _CheckedOperator(ColumnarOperator):
    """Base of operators that need some columns."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        #: The schema of the last batch.
        self._schema: pa.Schema | None = None

    def _check(self, schema: pa.Schema) -> None:
        if self._schema is None or not schema.equals(self._schema):
            if why := self._why_not(schema):
                raise ColumnSelectionError(f"operator '{self.name}': {why}")
            self._schema = schema

    def _why_not(self, schema: pa.Schema) -> str:
        raise NotImplementedError


@runs(ColumnFilterOperator)
class ColumnFilter(_CheckedOperator):
    """Keeps the rows for which a condition is true, with their timestamps and kinds."""

    def __init__(self, name: str, spec: ColumnFilterOperator) -> None:
        super().__init__(name)
        self._condition: Condition = spec.row_condition

    def _why_not(self, schema: pa.Schema) -> str:
        return why_not_compared(self._condition, schema)

    def process_batch(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        self._check(batch.batch.schema)
        return kept_rows(batch, truth_of(self._condition, batch.batch)) if len(batch) else ()


@runs(ColumnSelectionOperator)
class ColumnSelection(_CheckedOperator):
    """Keeps some columns."""

    def __init__(self, name: str, spec: ColumnSelectionOperator) -> None:
        super().__init__(name)
        self._columns = list(spec.columns)

    def _why_not(self, schema: pa.Schema) -> str:
        return next((why for column in self._columns if (why := why_not_there(column, schema))), "")

    def process_batch(self, batch: ArrowBatch) -> Sequence[ArrowBatch]:
        self._check(batch.batch.schema)
        return (ArrowBatch(batch.batch.select(self._columns), batch.timestamps, batch.kinds),)


def truth_of(condition: Condition, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The condition for each row, a boolean array with null where it is unknown.

    Raises ExpressionError for a row on which an Arrow expression fails.
    """
    match condition:
        case Comparison(column, kind, value):
            return _COMPARISONS[kind](*_comparable(batch.column(column), value))
        case NullCheck(column):
            return pc.is_null(batch.column(column))
        case AllOf(parts):
            return reduce(pc.and_kleene, [truth_of(part, batch) for part in parts])
        case AnyOf(parts):
            return reduce(pc.or_kleene, [truth_of(part, batch) for part in parts])
        case Negation(part):
            return pc.invert(truth_of(part, batch))
        case ArrowExpression():
            return truth_of_expression(condition, batch)
    raise TypeError(f"a {type(condition).__name__} is no condition")


def _comparable(column: pa.Array, literal: Literal) -> tuple[pa.Array, pa.Scalar]:
    """Column and value in a type that holds the value, and the column's values as far as they can equal it."""
    kind = values_of(column.type)
    if kind != column.type:
        column = column.dictionary_decode()
    if pa.types.is_floating(kind):
        # A float of 32 bits is compared as the number that it is, not with the value rounded.
        return column.cast(pa.float64()), pa.scalar(literal.value, pa.float64())
    wide = _WIDE[literal.kind]
    scalar = pa.scalar(literal.value, wide)
    try:
        return column, scalar.cast(kind)
    except pa.ArrowInvalid:
        # The value lies beyond the column's type, or between two of its values.
        return column.cast(wide, safe=False), scalar
