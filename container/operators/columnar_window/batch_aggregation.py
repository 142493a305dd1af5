"""BatchAggregation: calls an aggregate of users with the rows of several windows, and checks what it returns.

Owner: the task thread. Rows come sorted by window and time, and each window gives one row. Errors name operator and
windows. Must not know state or watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.declared_columns import BatchFunctionError, DeclaredColumns
from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.functions import WindowGroups
from yarrow.runtime.data.column_rows import rows_of_column

_METHOD = "aggregate_batches"


class BatchAggregation:
    """The function of one operator."""

    def __init__(self, operator: str, function: bytes, schema: bytes) -> None:
        """`function` is pickled; `schema` is that of its results (IPC bytes)."""
        self._operator = operator
        self._blob = function
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(schema))
        self._columns = DeclaredColumns(operator, _METHOD, schema)
        self._function: Any = None
        self._call: Callable[[pa.RecordBatch, WindowGroups], Any]

    def setup(self) -> None:
        """Loads the function."""
        self._function = load_function(self._blob, self._operator)
        self._call = method_of(self._function, _METHOD, self._operator)

    def open(self, context: OperatorContext) -> None:
        """Opens the function."""
        open_function(self._function, OperatorRuntimeContext(context, False))

    def close(self) -> None:
        """Closes the function."""
        close_function(self._function)

    def results(
        self, kept: pa.LargeListArray, schema: pa.Schema, starts: Times, ends: Times
    ) -> list[pa.Array]:
        """The columns of the results of some windows, each of shape (windows,).

        `kept` has the rows of each window with their times; `schema` is that of the rows. Starts and ends are int64.
        Raises OperatorFailure with the windows.
        """
        rows = kept.flatten()
        offsets = np.concatenate([[0], np.cumsum(kept.value_lengths().to_numpy())])
        times = rows.field(0).to_numpy()
        order = _order(times, offsets)
        if order is not None:
            rows = rows_of_column(rows, pa.array(order))
        records = pa.RecordBatch.from_arrays(rows.flatten()[1:], schema=schema)
        try:
            made = self._records(self._call(records, WindowGroups(offsets, starts, ends)))
            if made.num_rows != len(starts):
                self._refuse(
                    f"returned {made.num_rows} rows for {len(starts)} groups; return one row for each group"
                )
            fitted: list[pa.Array] = self._columns.fitted(made).columns
        except Exception as error:
            raise OperatorFailure(self._operator, _shown(starts, ends, len(rows)), error) from error
        return fitted

    def _records(self, result: Any) -> pa.RecordBatch:
        if isinstance(result, pa.RecordBatch):
            return result
        if isinstance(result, pa.Table):
            batches = result.combine_chunks().to_batches()
            return batches[0] if batches else pa.RecordBatch.from_pylist([], result.schema)
        if not isinstance(result, Mapping):
            self._refuse(
                f"returned {type(result).__name__}; return a pyarrow RecordBatch or Table, or a dict of columns by name"
            )
        names = self.schema.names
        if {*result} != {*names}:
            self._refuse(
                f"expected the columns {names}, got {[*result]}; return these, or change the declared schema"
            )
        columns = [
            column if isinstance(column := result[name], pa.Array) else pa.array(column) for name in names
        ]
        if len({len(column) for column in columns}) > 1:
            lengths = dict(zip(names, map(len, columns), strict=True))
            self._refuse(f"returned columns of different lengths: {lengths}; return one value for each group")
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _refuse(self, why: str) -> NoReturn:
        raise BatchFunctionError(f"operator '{self._operator}': {_METHOD} {why}")


def _order(times: Times, offsets: Times) -> Times | None:
    """The positions of rows by group and time, int64, shape (rows,); None if they stand so."""
    behind = times[1:] < times[:-1]
    # The first row of a group may have any time.
    behind[offsets[1:-1] - 1] = False
    if not behind.any():
        return None
    groups = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.lexsort((times, groups))


def _shown(starts: Times, ends: Times, rows: int) -> str:
    """Windows in an error."""
    first, last = int(ends.min()), int(ends.max())
    if first == last and (starts == starts[0]).all():
        return f"{rows} rows of {len(starts)} keys in the window from {int(starts[0])} to {last} ms"
    return f"{rows} rows of {len(starts)} windows that end between {first} and {last} ms"
