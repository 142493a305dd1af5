"""The operator of LookupJoin.

Owner: the task thread. The row of each key and the facts that wait for it are keyed state, read once a key and batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from yarrow.common.types import Row
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.datastream.program.arrow_schemas import read_schema
from yarrow.datastream.state import ListStateDescriptor, ValueStateDescriptor
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.keys import user_key

from . import LookupJoin, row_type


@runs(LookupJoin)
class LookupOperator(ColumnarOperator):
    """Input 0 brings facts, input 1 the table."""

    def __init__(self, name: str, spec: LookupJoin) -> None:
        super().__init__(name)
        self._keys = (BatchKey(spec.fact_keys), BatchKey(spec.table_keys))
        self._facts, self._added = read_schema(spec.facts), read_schema(spec.added)
        self._schema = read_schema(spec.schema)

    def open(self) -> None:
        state = self.context.state
        self._row = state.value_state(ValueStateDescriptor("row", row_type(self._added)))
        self._waiting = state.list_state(ListStateDescriptor("waiting", row_type(self._facts)))

    def process_input(self, index: int, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        codes, keys = self._keys[index].distinct(batch.batch)
        state = self.context.state
        if state.wants_keys:
            state.prefetch([user_key(key) for key in keys])
        return self._of_table(batch.batch, codes, keys) if index else self._of_facts(batch.batch, codes, keys)

    def _of_facts(self, facts: pa.RecordBatch, codes: Any, keys: Sequence[Any]) -> Iterator[ArrowBatch]:
        found = [self._at(key).value() for key in keys]
        known = np.array([row is not None for row in found], np.bool_)[codes]
        for at in np.flatnonzero(~known).tolist():
            self._at(keys[codes[at]])
            self._waiting.add(Row(*(column[at].as_py() for column in facts.columns)))
        if known.any():
            rows = pa.array(codes[known])
            added = [column.take(rows) for column in self._columns(found, self._added)]
            columns = [*facts.filter(pa.array(known)).columns, *added]
            yield ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _of_table(self, table: pa.RecordBatch, codes: Any, keys: Sequence[Any]) -> Iterator[ArrowBatch]:
        values = table.select(self._added.names).to_pylist()
        for code, value in zip(codes.tolist(), values, strict=True):
            row = Row(*value.values())
            self._at(keys[code]).update(row)
            waiting = list(self._waiting.get())
            if waiting:
                self._waiting.clear()
                columns = self._columns(waiting, self._facts) + self._columns(
                    [row] * len(waiting), self._added
                )
                yield ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _at(self, key: Any) -> Any:
        """The state of the row, with the key made the current one."""
        self.context.state.current_key = user_key(key)
        return self._row

    def _columns(self, rows: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
        return [
            pa.array([None if row is None else row[place] for row in rows], field.type)
            for place, field in enumerate(schema)
        ]
