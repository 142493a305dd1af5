"""BatchKey: the keys of record batches, in one column or as tuples in several.

Owner: the calling thread; no state. The exchange of batches and operators with keyed state ask it, so that both
find the same keys. Errors name the columns. It must not know edges, operators or state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.vectorized_keys import Codes, Hashes, distinct_keys, distinct_tuples, key_hashes
from yarrow.runtime.data.vectorized_tuples import key_hashes_of_columns


class BatchKey:
    """The key of each row of a record batch: a column's value or, of several columns, the tuple of their values."""

    def __init__(self, columns: str | tuple[str, ...]) -> None:
        """`columns` is the name of a column, whose values are the keys, or a tuple of names."""
        #: Keys are tuples.
        self.is_tuple = not isinstance(columns, str)
        #: Names of the columns, in the order of the tuple.
        self.names: tuple[str, ...] = (columns,) if isinstance(columns, str) else columns

    def __str__(self) -> str:
        listed = ", ".join(f"'{name}'" for name in self.names)
        return f"key columns {listed}" if self.is_tuple else f"key column {listed}"

    def columns_of(self, records: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a batch. Raises ColumnKeyError unless each name is that of one column."""
        found = []
        for name in self.names:
            indexes = records.schema.get_all_field_indices(name)
            if len(indexes) != 1:
                raise ColumnKeyError(
                    f"the batch has {len(indexes)} columns named '{name}', by which the stream is keyed; its columns"
                    f" are {records.schema.names}"
                )
            found.append(records.column(indexes[0]))
        return found

    def hashes(self, records: pa.RecordBatch) -> Hashes:
        """The hash of each row's key: uint64, shape (rows,). Raises ColumnKeyError naming the column."""
        columns = self.columns_of(records)
        try:
            return key_hashes_of_columns(columns) if self.is_tuple else key_hashes(columns[0])
        except ColumnKeyError as error:
            raise ColumnKeyError(self.explain(columns, error)) from error

    def distinct(self, records: pa.RecordBatch) -> tuple[Codes, list[Any]]:
        """A code for each row, int64, shape (rows,), and the canonical key of each code. Codes may repeat a key.

        Raises ColumnKeyError naming the column.
        """
        columns = self.columns_of(records)
        try:
            return distinct_tuples(columns) if self.is_tuple else distinct_keys(columns[0])
        except ColumnKeyError as error:
            raise ColumnKeyError(self.explain(columns, error)) from error

    def explain(self, columns: Sequence[pa.Array], error: ColumnKeyError) -> str:
        """The message for key columns that `error` refused; it names the column at fault where one alone is refused."""
        for name, column in zip(self.names, columns, strict=True):
            try:
                key_hashes(column)
            except ColumnKeyError as its_own:
                return f"key column '{name}': {its_own}"
        return f"{self}: {error}"
