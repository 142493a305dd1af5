"""Arrow expressions as conditions: whether they fit the columns of a schema, and their truth for a record batch.

Owner: any thread: the client asks where the schema is known, operators ask when batches come. Arrow's Acero evaluates
the expressions, in the calling thread. pyarrow is imported when it is asked. Must not know operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from yarrow.common.values.conditions import ArrowExpression
from yarrow.runtime.columns.schema_text import why_not_there
from yarrow.runtime.common.errors import YarrowError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

#: What Arrow says of a column that is not there once, or of a field in it, with the column's name.
_NO_COLUMN: Final = re.compile(
    r"(?:No match|Multiple matches) for FieldRef\.(?:Nested\(FieldRef\.)?Name\((.+?)\) (?:in |FieldRef)",
    re.DOTALL,
)
#: Arrow refuses functions such as sum with these words: their result for a row depends on other rows.
_NOT_BY_ROW: Final = "non-scalar expression"


class ExpressionError(YarrowError):
    """An Arrow expression fails on a row; the message names expression, row and columns."""


def why_no_condition(expression: ArrowExpression, schema: pa.Schema) -> str:
    """Why an expression is no condition over columns of `schema`; "" = it is one."""
    import pyarrow as pa

    named = f"the Arrow expression {expression.text}"
    try:
        kind = _evaluated(expression, _readable(schema).empty_table()).type
    except pa.ArrowException as error:
        return _why_not_read(str(error), schema) or f"{named} does not fit the columns: {_first_line(error)}"
    if not pa.types.is_boolean(kind):
        return f"{named} is of type {kind}, and a condition is a boolean. Compare it with a value"
    if _depends_on_other_rows(expression, schema):
        return (
            f"{named} calls a function whose result for a row depends on other rows. Use functions that Arrow computes"
            " row by row, or filter_batches"
        )
    return ""


def truth_of_expression(expression: ArrowExpression, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The expression for each row, with null where it is unknown. Raises ExpressionError for a row on which it fails.

    The batch has columns that the expression fits.
    """
    import pyarrow as pa

    try:
        return _evaluated(expression, pa.Table.from_batches([batch]))
    except (pa.ArrowMemoryError, pa.ArrowCancelled):
        raise
    except pa.ArrowException as error:
        number = _first_failing_row(expression, batch)
        row = batch.slice(number, 1)
        read = ", ".join(f"{name} = {row.column(name)[0]}" for name in _columns_of(expression, batch.schema))
        raise ExpressionError(
            f"the Arrow expression {expression.text} fails on row {number} of a batch, with {read or 'no column'}:"
            f" {_first_line(error)}"
        ) from error


def _evaluated(expression: ArrowExpression, rows: pa.Table) -> pa.Array:
    import pyarrow.acero as acero

    source = acero.Declaration(
        "table_source", acero.TableSourceNodeOptions(rows.select(_places(rows.schema)))
    )
    project = acero.ProjectNodeOptions([_opened(expression.message)], ["truth"])
    plan = acero.Declaration("project", project, inputs=[source])
    return plan.to_table(use_threads=False).column(0).combine_chunks()


def _places(schema: pa.Schema) -> list[int]:
    """The positions of the columns that expressions may read: Arrow makes no empty column of unions to check one."""
    return [number for number, field in enumerate(schema) if not _has_unions(field.type)]


def _has_unions(kind: pa.DataType) -> bool:
    """True for a union, and for a type with a union at any depth."""
    import pyarrow as pa

    if pa.types.is_union(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_unions(kind.storage_type)
    if isinstance(kind, pa.DictionaryType):
        return _has_unions(kind.value_type)
    return any(_has_unions(kind.field(number).type) for number in range(kind.num_fields))


def _readable(schema: pa.Schema) -> pa.Schema:
    """The columns that expressions may read."""
    import pyarrow as pa

    return pa.schema([schema.field(number) for number in _places(schema)])


@lru_cache(maxsize=128)
def _opened(message: bytes) -> pc.Expression:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.Expression._deserialize(pa.py_buffer(message))


def _depends_on_other_rows(expression: ArrowExpression, schema: pa.Schema) -> bool:
    """True if Arrow refuses to compute the expression row by row, which it tells only where there is a row."""
    import pyarrow as pa

    readable = _readable(schema)
    try:
        _evaluated(expression, pa.table([pa.nulls(1, field.type) for field in readable], schema=readable))
    except pa.ArrowException as error:
        return _NOT_BY_ROW in str(error)
    return False


def _first_failing_row(expression: ArrowExpression, batch: pa.RecordBatch) -> int:
    """The number of the first row on which an expression fails that fails on the batch."""
    first, end = 0, len(batch)
    while end - first > 1:
        middle = (first + end) // 2
        if _fails(expression, batch.slice(first, middle - first)):
            end = middle
        else:
            first = middle
    return first


def _fails(expression: ArrowExpression, batch: pa.RecordBatch) -> bool:
    import pyarrow as pa

    try:
        _evaluated(expression, pa.Table.from_batches([batch]))
    except pa.ArrowException:
        return True
    return False


def _columns_of(expression: ArrowExpression, schema: pa.Schema) -> Iterator[str]:
    """The columns that an expression reads. Arrow does not list them, but misses each that is not there."""
    import pyarrow as pa

    for number, name in enumerate(schema.names):
        others = _readable(schema.remove(number)).empty_table()
        try:
            _evaluated(expression, others)
        except pa.ArrowException:
            yield name


def _why_not_read(message: str, schema: pa.Schema) -> str:
    """Why the column in Arrow's message cannot be read; "" if the message names no column, or one that can."""
    found = _NO_COLUMN.match(message)
    if not found:
        return ""
    name = found[1]
    why = why_not_there(name, schema)
    if why or not _has_unions(schema.field(name).type):
        return why
    return (
        f"Arrow cannot read columns of unions in expressions, and column {name!r} is of type"
        f" {schema.field(name).type}. Use filter_batches"
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
