"""Whether the columns of a schema are there, and can be compared as a condition says. Pure.

Owner: any thread: the client asks where the schema is known, operators ask when batches come. pyarrow is imported when
it is asked. Must not evaluate conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarrow.common.values.conditions import (
    Comparison,
    Condition,
    LiteralKind,
    comparisons_of,
    expressions_of,
)
from yarrow.runtime.columns.arrow_expressions import why_no_condition
from yarrow.runtime.columns.schema_text import why_not_there

if TYPE_CHECKING:
    import pyarrow as pa


def why_not_compared(condition: Condition, schema: pa.Schema) -> str:
    """What is wrong with a condition over columns of `schema`; "" = nothing."""
    for part in comparisons_of(condition):
        if why := why_not_there(part.column, schema):
            return why
        if isinstance(part, Comparison) and (why := _why_no_value(part, schema.field(part.column).type)):
            return why
    return next((why for each in expressions_of(condition) if (why := why_no_condition(each, schema))), "")


def values_of(kind: pa.DataType) -> Any:
    """The type of a column's values, also if they are in a dictionary."""
    import pyarrow.types as arrow

    return kind.value_type if arrow.is_dictionary(kind) else kind


def _why_no_value(comparison: Comparison, kind: pa.DataType) -> str:
    found, value = values_of(kind), comparison.value
    accepted = _kinds_for(found)
    if not accepted:
        return f"column {comparison.column!r} is of type {kind}, which has no built-in comparison: use filter_batches"
    if value.kind not in accepted:
        wanted = " or a ".join(each.value for each in accepted)
        return (
            f"column {comparison.column!r} is of type {kind}: compare it with a {wanted}, not with the "
            f"{value.kind.value} {value.value!r}"
        )
    return _why_out_of_range(comparison, found)


def _why_out_of_range(comparison: Comparison, kind: pa.DataType) -> str:
    import pyarrow.types as arrow

    value = comparison.value.value
    if comparison.value.kind is not LiteralKind.INTEGER:
        return ""
    if arrow.is_uint64(kind) and value < 0:  # type: ignore[operator]
        return (
            f"column {comparison.column!r} is of type {kind}, whose values are never below 0, and {value} is"
        )
    if arrow.is_floating(kind) and int(float(value)) != value:
        return (
            f"column {comparison.column!r} is of type {kind}, and no float is exactly {value}: write a float"
        )
    return ""


def _kinds_for(kind: pa.DataType) -> tuple[LiteralKind, ...]:
    """The values with which a column of that type can be compared."""
    import pyarrow.types as arrow

    if arrow.is_boolean(kind):
        return (LiteralKind.BOOLEAN,)
    if arrow.is_integer(kind):
        return (LiteralKind.INTEGER,)
    if arrow.is_float32(kind) or arrow.is_float64(kind):
        return (LiteralKind.FLOAT, LiteralKind.INTEGER)
    if arrow.is_string(kind) or arrow.is_large_string(kind):
        return (LiteralKind.TEXT,)
    if arrow.is_date32(kind):
        return (LiteralKind.DATE,)
    if arrow.is_timestamp(kind):
        return (LiteralKind.TIMESTAMP if kind.tz is None else LiteralKind.INSTANT,)
    return ()
