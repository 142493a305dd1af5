"""RowColumns: the columns of rows that an aggregate of users keeps: all columns of a batch, and the time of each row.

Owner: the task thread, through its operator. The first batch fixes the types. Must not know slots or windows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_columns import AggregateColumns
from yarrow.container.operators.columnar.aggregate_state import AggregateState
from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar_window.row_lists import RowLists
from yarrow.runtime.graph.operator_spec import KeyColumns

#: The time of a row, in front of its columns. A row may have a column of the same name.
_TIME: Final = pa.field("time", pa.int64())
#: pyarrow takes no rows of views.
_PLAIN: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


class RowColumns(AggregateColumns):
    """The columns of whole rows, as those of the only aggregate of an operator."""

    def __init__(self, operator: str, key_column: KeyColumns) -> None:
        super().__init__(operator, key_column, (), what="windows")

    def check(self, schema: pa.Schema) -> None:
        """Raises AggregationError unless a batch has the columns of the first one, each once and of the same type."""
        if not self.types and {*self.names} <= {*schema.names}:
            self.names = tuple(dict.fromkeys(schema.names))
        super().check(schema)

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of the rows that a function gets: the columns of the first batch, without dictionaries."""
        return pa.schema([pa.field(name, _plain(self.types[name])) for name in self.names])

    def row_column(self, records: pa.RecordBatch, times: Times) -> pa.StructArray:
        """The rows of a checked batch with their times (int64, shape (rows,))."""
        columns = [records.column(name) for name in self.names]
        plain = [
            column if column.type == (kind := _plain(column.type)) else column.cast(kind)
            for column in columns
        ]
        return pa.StructArray.from_arrays([pa.array(times), *plain], fields=list(self._stored))

    @property
    def _stored(self) -> pa.Schema:
        return pa.schema([_TIME, *self.rows_schema])

    def new_states(self) -> list[AggregateState]:
        return [RowLists(self._stored)]

    @property
    def state_names(self) -> list[str]:
        return ["rows"]


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which values are kept."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _PLAIN.get(kind, kind)
