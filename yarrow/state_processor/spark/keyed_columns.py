"""KeyedRows: what a task has to know of the rows of a DataFrame that become keyed state; KeyedColumns of one state.

Owner: none (frozen values), which travel to the tasks. Knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.vectorized_keys import key_hashes
from yarrow.runtime.snapshot.key_columns import key_groups_of
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import ACCESS_TIME, KEY, VALUE
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.shapes import declared_shape
from yarrow.state_processor.spark.key_buckets import KeyBuckets, Numbers
from yarrow.state_processor.table_cells import access_times_of, contents_of, decoding, keys_of

#: Column of key groups that the tasks add.
GROUP: Final = "key_group"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Rows with a column of keys."""

    operator: str
    #: The column of keys.
    key: str = KEY
    key_type: TypeInformation | None = None
    #: As the tasks see the rows.
    schema: pa.Schema
    buckets: KeyBuckets
    #: Of the process that writes.
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What is made of the rows, for errors."""
        return f"operator '{self.operator}'"

    @property
    def grouped_schema(self) -> pa.Schema:
        """The schema of rows with their key groups."""
        return self.schema.append(pa.field(GROUP, pa.uint16(), nullable=False))

    def key_groups(self, column: pa.Array) -> Numbers:
        """The key group of each key: uint16, shape (rows,). Raises StateProcessorError for keys that are null."""
        if column.null_count:
            raise StateProcessorError(
                f"{self.what}: {column.null_count} of {len(column)} rows have no key (null); filter them out before"
            )
        most = self.buckets.max_parallelism
        if pa.types.is_struct(column.type):
            # Structs are tuples or Rows, by the names of their fields.
            return key_groups_of(self.keys(column), most)
        if _is_plain(column.type) and not pa.types.is_integer(column.type):
            # Faster than by distinct values: keys are expected to come once.
            return key_groups_of(self.keys(column), most)
        return (key_hashes(column) % np.uint64(most)).astype(np.uint16)

    def keys(self, column: pa.Array | pa.ChunkedArray) -> list[Any]:
        """The canonical keys."""
        if _is_plain(column.type):
            with decoding(self.what):
                plain: list[Any] = column.to_pylist()
            return plain
        return [canonicalize(key) for key in keys_of(column, self.what)]

    def in_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the schema says: some settings of Spark change the types that it sends."""
        if batch.schema == self.schema:
            return batch
        columns = [batch.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedColumns(KeyedRows):
    """Rows of the columns `key`, `value` and perhaps `access_time`, and the state that they become."""

    target: KeyedTarget
    #: RocksDB's own form instead of the canonical one.
    native: bool = False

    @property
    def what(self) -> str:
        """The state, for errors."""
        return f"operator '{self.operator}', state '{self.target.name}'"

    def contents(self, table: pa.Table) -> list[Any]:
        """What the state holds for each row; None: nothing."""
        return contents_of(table.column(VALUE), self.target, self.what)

    def access_times(self, table: pa.Table) -> Sequence[Any] | None:
        """Times of the last access (ms), formed as the contents are; None without such a column."""
        if not self.target.ttl or ACCESS_TIME not in table.column_names:
            return None
        map_key = None if self.target.map_key_type is None else declared_shape(self.target.map_key_type)
        return access_times_of(table.column(ACCESS_TIME), self.target.kind, map_key)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether cells are canonical keys as they are."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))
