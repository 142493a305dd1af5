"""BatchAggregation: calls an aggregate of users with the rows of several windows, and checks what it returns.

Owner: the task thread. Rows are sorted by window and time, and each window gives one row. Errors name operator and
windows. Must not know state or watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.declared_columns import BatchFunctionError, DeclaredColumns
from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.rows_by_key import order_by_key_and_time
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.functions import WindowGroups
from yarrow.runtime.data.column_rows import rows_of_column

_METHOD = "aggregate_batches"


class WindowRows(NamedTuple):
    """The rows of some windows, sorted by window and time."""

    records: pa.RecordBatch
    #: The time of each row, int64, shape (rows,).
    times: Times
    groups: WindowGroups

    @classmethod
    def of(cls, kept: pa.LargeListArray, schema: pa.Schema, starts: Times, ends: Times) -> WindowRows:
        """Sort what windows keep: the rows of each one, with their times. Starts and ends: int64, shape (windows,).

        `schema` is that of the rows.
        """
        rows = kept.flatten()
        offsets = np.concatenate([[0], np.cumsum(kept.value_lengths().to_numpy())])
        order = _order(rows.field(0).to_numpy(), offsets)
        if order is not None:
            rows = rows_of_column(rows, pa.array(order))
        times, *columns = rows.flatten()
        records = pa.RecordBatch.from_arrays(columns, schema=schema)
        return cls(records, times.to_numpy(), WindowGroups(offsets, starts, ends))

    def part(self, first: int, end: int) -> WindowRows:
        """Return the windows from `first` to `end`, without `end`."""
        groups = self.groups
        low, high = int(groups.offsets[first]), int(groups.offsets[end])
        part = WindowGroups(
            groups.offsets[first : end + 1] - low,
            groups.window_starts[first:end],
            groups.window_ends[first:end],
        )
        return WindowRows(self.records.slice(low, high - low), self.times[low:high], part)

    def shown(self) -> str:
        """Return the windows for an error."""
        starts, ends, rows = self.groups.window_starts, self.groups.window_ends, len(self.times)
        first, last = int(ends.min()), int(ends.max())
        if first == last and (starts == starts[0]).all():
            return f"{rows} rows of {len(starts)} keys in the window from {int(starts[0])} to {last} ms"
        return f"{rows} rows of {len(starts)} windows that end between {first} and {last} ms"


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

    def results(self, rows: WindowRows) -> list[pa.Array]:
        """The columns of the results of some windows, each of shape (windows,). Raises OperatorFailure with these."""
        try:
            return self.called(rows)
        except Exception as error:
            raise self.failure(rows, error) from error

    def called(self, rows: WindowRows) -> list[pa.Array]:
        """As `results`; raises what the function raises, and BatchFunctionError for a result that is none."""
        made = self._records(self._call(rows.records, rows.groups))
        if made.num_rows != len(rows.groups):
            self._refuse(
                f"returned {made.num_rows} rows for {len(rows.groups)} groups; return one row for each group"
            )
        columns: list[pa.Array] = self._columns.fitted(made).columns
        return columns

    def failure(self, rows: WindowRows, error: Exception) -> OperatorFailure:
        """The error with the operator and these windows."""
        return OperatorFailure(self._operator, rows.shown(), error)

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
    return order_by_key_and_time(groups, times)
