"""DeclaredColumns: checks the batches that a columnar function returns against the schema that the program declares.

Owner: the thread that called the function. Types are converted where no value changes. Must not make a Python object
of a row.
"""

from __future__ import annotations

import pyarrow as pa

from yarrow.container.operators.columnar.lossless_cast import LossyCastError, lossless_cast
from yarrow.runtime.common.errors import YarrowError


class BatchFunctionError(YarrowError):
    """The result of a columnar function cannot be used.

    The message names operator and column, the expected and the received value.
    """


class ColumnValueError(BatchFunctionError):
    """A value of the result does not fit its declared column: other rows may give one that does."""


class DeclaredColumns:
    """The declared schema of the results of one function."""

    def __init__(self, operator: str, method: str, schema: bytes | None) -> None:
        """`schema` is an Arrow schema (IPC bytes); None = any batch will do."""
        self._operator = operator
        self._method = method
        self._schema: pa.Schema | None = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))

    def fitted(self, made: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the declared schema. Raises BatchFunctionError if it has other columns or values."""
        schema = self._schema
        if schema is None or made.schema.equals(schema):
            return made
        if made.schema.names != schema.names:
            raise BatchFunctionError(
                f"operator '{self._operator}': {self._method} expected the columns {schema.names}, got "
                f"{made.schema.names}; return "
                "them in this order, or change the declared schema"
            )
        columns = [self._fitted(made.column(i), schema.field(i)) for i in range(len(schema))]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _fitted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            fitted = lossless_cast(column, field.type)
        except LossyCastError as error:
            raise ColumnValueError(
                f"operator '{self._operator}': column '{field.name}' of the result: expected {field.type}, "
                f"got {column.type}"
                f"{error}; cast it in the function, or change the declared schema"
            ) from None
        if fitted.null_count and not field.nullable:
            raise ColumnValueError(
                f"operator '{self._operator}': column '{field.name}' of the result: expected {field.type} "
                "without nulls, got "
                f"{fitted.null_count} nulls; fill them in the function, or declare the field nullable"
            )
        return fitted
