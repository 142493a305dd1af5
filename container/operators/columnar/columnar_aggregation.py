"""VectorizedAggregation: running aggregates of a keyed columnar stream.

Each batch gives the updated row of its keys.

Owner: the task thread. State is one numpy array for each aggregate, indexed by the slots of the key index. No
Python object is made of a row or, for keys of one machine word, of a key. Nulls in value columns are skipped,
as in SQL: an aggregate of nulls alone is null. Must not know channels or other operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Self

import numpy as np
import pyarrow as pa

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.aggregate_columns import AggregateColumns, AggregationError
from yarrow.container.operators.columnar.aggregate_state import AggregateState, SumOverflowError
from yarrow.container.operators.columnar.last_rows import KeptRows, LastRows, order_of_times
from yarrow.container.operators.columnar.tuple_index import index_of_keys
from yarrow.container.operators.columnar.vectorized_index import KeyIndex, Slots, grown
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.column_rows import rows_of_column
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator
from yarrow.runtime.graph.operator_spec import KeyedAggregates

#: Name of the state of columnar aggregates in snapshots.
STATE_NAME = "_aggregation"
#: Key of a schema's metadata: the types of the columns behind partial results.
_ORIGINAL = b"yarrow.partial"
#: Keys that become Python objects at once while a snapshot is written.
_PIECE = 10_000


@runs(ArrowAggregateOperator)
class VectorizedAggregation(ColumnarOperator):
    """SUM, MIN, MAX, COUNT and MEAN by key.

    The result has the key columns and one column an aggregate. Its rows stand in the order of the last row of
    each key in the batch, with that row's timestamp. Of bounded input there is one result for all batches, and
    the last row is that by event time. A key of floats is shown as in that row (NaN and -0.0 included).
    """

    #: `end_keys` gives batches.
    emits_batches = True
    mixes_keys = True

    def __init__(self, name: str, spec: ArrowAggregateOperator) -> None:
        super().__init__(name)
        self._columns = AggregateColumns(name, spec.key_column, spec.aggregates, what="running aggregates")
        self._index: KeyIndex
        self._states: list[AggregateState] = []
        self._schema: pa.Schema
        self._last_row = np.zeros(1024, np.int32)
        #: Rows of bounded input whose results wait for the end of their keys.
        self._held = LastRows()
        self._last_only = spec.last_only
        self._once = self._ends_with_input = False
        #: Restored canonical keys and their values, until the first batch tells the types of the columns.
        self._restored: tuple[list[Any], list[Any]] = ([], [])

    @classmethod
    def of_partials(cls, name: str, aggregates: KeyedAggregates) -> Self:
        """An aggregation without a task whose results are partial ones: `take_partials` instead of `end_keys`."""
        spec = ArrowAggregateOperator(key_column=aggregates.key_column, aggregates=aggregates.aggregates)
        made = cls(name, spec)
        made._once = True
        return made

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        bounded = context.environment.bounded
        self._once = bounded or self._last_only
        self._ends_with_input = self._last_only and not bounded
        context.state.register_section(STATE_NAME, self)

    @property
    def keys(self) -> int:
        """Number of keys with state."""
        return self._index.size if self._states else 0

    def process_batch(self, batch: ArrowBatch) -> Sequence[ArrowBatch]:
        if not len(batch):
            return ()
        self._columns.refuse_changes(batch)
        records = batch.batch
        original = original_schema(records.schema)
        self._check(records.schema if original is None else original)
        keys = self._columns.key_columns(records)
        try:
            slots = self._index.slots_of(keys)
        except ColumnKeyError as error:
            explained = self._columns.key.explain(keys, error)
            raise AggregationError(f"operator '{self.name}': {explained}") from error
        rows = self._last_rows(slots, batch.timestamps)
        touched = slots[rows]
        size = self._index.size
        results = [rows_of_column(key, pa.array(rows)) for key in keys]
        partials = iter(records.columns[len(keys) :])
        for number, (aggregate, state) in enumerate(zip(self._columns.aggregates, self._states, strict=True)):
            try:
                if original is None:
                    state.update(slots, self._columns.value_column(records, aggregate), size)
                else:
                    state.merge(slots, list(islice(partials, state.partial_columns)), size)
            except SumOverflowError as error:
                error.aggregate = number
                at = int(np.flatnonzero(slots == error.slot)[0])
                raise self._columns.overflow(error, keys, at) from None
        stamps = None if batch.timestamps is None else batch.timestamps.take(pa.array(rows))
        touched_rows = KeptRows(touched, results, stamps)
        if self._once:
            self._held.add(touched_rows)
            return ()
        return (self._result(touched_rows),)

    def has_room_for(self, batch: ArrowBatch) -> bool:
        """Whether `process_batch` takes a batch for certain.

        Raises AggregationError where the columns are not those that the aggregation needs.
        """
        records = batch.batch
        if (batch.kinds is not None and any(batch.kinds)) or original_schema(records.schema) is not None:
            return False
        self._check(records.schema)
        return all(
            state.has_room_for(self._columns.value_column(records, aggregate))
            for aggregate, state in zip(self._columns.aggregates, self._states, strict=True)
        )

    def take_partials(self) -> ArrowBatch | None:
        """Partial results of the keys that have come, which another aggregation takes; None if there is none.

        The columns are those of the key, then those of each state. Metadata of the schema hold the types of the
        columns that were read.
        """
        rows = self._held.take()
        if rows is None:
            return None
        columns = [*rows.keys]
        for state in self._states:
            columns += state.partials(rows.slots)
        fields = [self._schema.field(index) for index in range(len(rows.keys))]
        fields += [
            pa.field(f"partial {number}", column.type)
            for number, column in enumerate(columns[len(rows.keys) :])
        ]
        read = pa.schema([pa.field(name, kind) for name, kind in self._columns.types.items()])
        schema = pa.schema(fields, {_ORIGINAL: read.serialize().to_pybytes()})
        self._states.clear()
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=schema), rows.timestamps)

    def _result(self, rows: KeptRows) -> ArrowBatch:
        """The present aggregates of these keys."""
        columns = [*rows.keys, *(state.values(rows.slots) for state in self._states)]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._schema), rows.timestamps)

    def on_watermark(self, timestamp: int) -> Iterator[ArrowBatch]:
        if self._ends_with_input and timestamp == MAX_TIMESTAMP:
            yield from self.end_keys()

    def forwarded_watermark(self, timestamp: int) -> int | None:
        # The rows that wait are not late behind the operator.
        return None if self._ends_with_input and timestamp < MAX_TIMESTAMP else timestamp

    def end_keys(self) -> Iterator[ArrowBatch]:
        rows = self._held.take()
        if rows is not None:
            yield self._result(rows)
            # The next batch begins with new states, of the same types.
            self._states.clear()

    def _last_rows(self, slots: Slots, stamps: pa.Array | None) -> Slots:
        """The position of the last row of each occurring slot, ascending (1-d integer array).

        Of bounded input that is the last row by event time: producers and batches change nothing about it.
        """
        self._last_row = grown(self._last_row, self._index.size)
        positions = np.arange(len(slots), dtype=np.int32)
        if self._once and stamps is not None:
            order = order_of_times(stamps)
            self._last_row[slots[order]] = positions[order]
        else:
            self._last_row[slots] = positions
        return np.flatnonzero(self._last_row.take(slots) == positions)

    def _check(self, schema: pa.Schema) -> None:
        self._columns.check(schema)
        if not self._states:
            self._start(schema)

    def _start(self, schema: pa.Schema) -> None:
        key, aggregates = self._columns.key, self._columns.aggregates
        fields = [schema.field(name) for name in key.names]
        self._states = self._columns.new_states()
        self._index = index_of_keys([field.type for field in fields], tuples=key.is_tuple)
        fields += [pa.field(a.name, state.type) for a, state in zip(aggregates, self._states, strict=True)]
        self._schema = pa.schema(fields)
        self._begin_with_restored()

    # ------------------------------------------------------------------ snapshots (KeyedSection)

    #: A dict from `_state_name` to the state of that aggregate.
    value_type = None

    @property
    def entry_count(self) -> int:
        """Number of keys with state."""
        return self.keys or len(self._restored[0])

    def freeze_entries(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """The present keys and values."""
        if not self._states:
            keys, values = self._restored
            return ((keys[at : at + _PIECE], values[at : at + _PIECE]) for at in range(0, len(keys), _PIECE))
        size = self._index.size
        names = self._columns.state_names
        keys_of, states = self._index.frozen_keys(), [state.frozen(size) for state in self._states]

        def pieces() -> Iterator[tuple[list[Any], list[Any]]]:
            for start in range(0, size, _PIECE):
                end = min(start + _PIECE, size)
                parts = zip(*(state.entries(start, end) for state in states), strict=True)
                yield keys_of(start, end), [dict(zip(names, part, strict=True)) for part in parts]

        return pieces()

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Keeps entries for the first batch."""
        keys, values = self._restored
        for key, value in entries:
            keys.append(key)
            values.append(value)

    def _begin_with_restored(self) -> None:
        keys, values = self._restored
        if not keys:
            return
        try:
            slots = self._index.restore(keys)
        except ValueError as error:
            raise self._columns.misfit(error) from None
        self._columns.restore(self._states, [values[at] for at in np.argsort(slots).tolist()])
        self._restored = ([], [])


def original_schema(schema: pa.Schema) -> pa.Schema | None:
    """The columns behind a batch of partial results; None for any other batch."""
    found = (schema.metadata or {}).get(_ORIGINAL)
    return None if found is None else _read_schema(found)


@lru_cache(maxsize=64)
def _read_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
