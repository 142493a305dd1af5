"""The operator of SortBatches.

Owner: the task thread. What has not been emitted is in one list state as Arrow IPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, ArrowBatch

from . import SortBatches


@runs(SortBatches)
class SortingOperator(ColumnarOperator):
    """Holds rows until their time has come, then emits them a batch at a time."""

    emits_batches = True

    def __init__(self, name: str, spec: SortBatches) -> None:
        super().__init__(name)
        self._spec = spec
        self._gathered: list[pa.RecordBatch] = []
        #: Rows whose time has come, in order.
        self._due: pa.RecordBatch | None = None
        #: Epoch ms at which what is gathered is due.
        self._timer: int | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        descriptor = ListStateDescriptor[bytes]("rows", Types.PRIMITIVE_ARRAY(Types.BYTE()))
        self._state = context.operator_state.list_state(descriptor)

    def open(self) -> None:
        for data in self._state:
            for batch in pa.ipc.open_stream(data):
                self._gather(batch)

    def process_batch(self, batch: ArrowBatch) -> Sequence[ArrowBatch]:
        self._gather(batch.batch)
        return ()

    def _gather(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        if self._spec.wait_ms is not None and self._timer is None:
            self._timer = self.context.environment.clock.epoch_ms() + self._spec.wait_ms

    def snapshot_state(self, checkpoint_id: int) -> None:
        held = [batch for batch in (self._due, *self._gathered) if batch is not None and batch.num_rows]
        sink = pa.BufferOutputStream()
        if held:
            with pa.ipc.new_stream(sink, held[0].schema) as writer:
                for batch in held:
                    writer.write_batch(batch)
        self._state.update([sink.getvalue().to_pybytes()] if held else [])

    # ------------------------------------------------------------------ BatchEmitter

    def on_watermark(self, timestamp: int) -> Sequence[ArrowBatch]:
        if self._spec.wait_ms is None or timestamp == MAX_TIMESTAMP:
            self._choose_due(timestamp)
        return ()

    @property
    def event_timers_due(self) -> bool:
        return self._timer is None and self._due is not None

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        return self._emit(deadline)

    def next_timer(self) -> int | None:
        return self._timer

    def fire_timers(self, now: int, deadline: float) -> Iterator[ArrowBatch]:
        if self._timer is None or now < self._timer:
            return
        if self._due is None:
            self._choose_due(None)
            self._timer = now
        yield from self._emit(deadline)
        if self._due is None:
            self._timer = None
            if self._gathered:
                self._timer = now + (self._spec.wait_ms or 0)

    def _choose_due(self, limit: int | None) -> None:
        """Sorts what is gathered; due is what is not above `limit`, or all."""
        if not self._gathered:
            return
        rows = pa.concat_batches(self._gathered)
        ordered = rows.take(pc.sort_indices(rows, sort_keys=[(self._spec.column, "ascending")]))
        column = ordered.column(ordered.schema.get_field_index(self._spec.column)).to_numpy()
        count = len(column) if limit is None else int(np.searchsorted(column, limit, side="right"))
        self._gathered = [ordered.slice(count)] if count < len(column) else []
        if count:
            self._due, self._timer = ordered.slice(0, count), None

    def _emit(self, deadline: float) -> Iterator[ArrowBatch]:
        most = self._spec.most_rows
        while self._due is not None:
            result = self._due.slice(0, most)
            self._due = self._due.slice(most) if self._due.num_rows > most else None
            times = result.column(result.schema.get_field_index(self._spec.column))
            yield ArrowBatch(result, times if self._spec.wait_ms is None else None)
            if perf_counter() >= deadline:
                return
