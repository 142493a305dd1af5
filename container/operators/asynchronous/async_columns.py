"""AsyncColumnsOperator: begins calls for the rows of record batches, and emits their results as record batches.

Owner: the task thread; results are checked on the thread of the event loop. A record batch is cut into pieces of at
most one call. A call gets several pieces as one batch. Must not make a Python object of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from yarrow.common.typeinfo import Types
from yarrow.container.operators.asynchronous.called_function import ResultsOf, require_kind, require_rows
from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.container.operators.asynchronous.waiting_calls import WaitingCallsOperator
from yarrow.container.operators.columnar.declared_columns import DeclaredColumns
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.async_spec import AsyncColumnsOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor

#: Name of the column that has the timestamps of a stored piece.
_TIMESTAMPS = "timestamps of the rows"


@runs(AsyncColumnsOperator)
class AsyncWaitingColumns(WaitingCallsOperator, ColumnarOperator):
    """Runs an AsyncBatchFunction on record batches."""

    emits_batches = True
    #: True if the last column has timestamps, an Arrow stream of the piece, its row kinds or none.
    stored_type = Types.TUPLE(
        [Types.BOOLEAN(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.PRIMITIVE_ARRAY(Types.BYTE())]
    )

    def __init__(self, name: str, spec: AsyncColumnsOperator, descriptor: OperatorDescriptor) -> None:
        super().__init__(name, spec, descriptor)
        assert spec.batch is not None, "a record batch has several rows"
        self._most = spec.batch.max_rows
        self._columns = DeclaredColumns(name, "async_invoke", spec.schema)

    def process_batch(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        rows = len(batch)
        size = self._most if self._batches is None else self._batches.size.rows
        self.begin(_pending(batch.sliced(start, min(start + size, rows))) for start in range(0, rows, size))
        return ()

    # ------------------------------------------------------------------ calls and results

    def argument_of(self, records: Sequence[PendingResult]) -> pa.RecordBatch:
        return pa.concat_batches([record.row.batch for record in records])

    @property
    def results_of(self) -> ResultsOf:
        return self._results

    def _results(self, argument: pa.RecordBatch, returned: Any, method: str) -> list[Any]:
        """The record batch of a call's results.

        Raises TypeError for anything but a RecordBatch, ValueError for another number of rows, and BatchFunctionError
        for columns that are not the declared ones.
        """
        require_kind(
            returned, pa.RecordBatch, method, "expected a pyarrow RecordBatch with a row for each row"
        )
        require_rows(argument.num_rows, returned.num_rows, method)
        return [self._columns.fitted(returned)]

    def shares_of(self, records: Sequence[PendingResult], results: list[Any]) -> Iterable[list[Any]]:
        start = 0
        for record in records:
            yield [results[0].slice(start, record.size)]
            start += record.size

    def emitted(self, complete: PendingResult) -> Iterable[ArrowBatch]:
        assert complete.results is not None, "only complete pieces leave"
        piece: ArrowBatch = complete.row
        return [ArrowBatch(made, piece.timestamps, piece.kinds) for made in complete.results]

    def described(self, records: Sequence[PendingResult]) -> str:
        rows = sum(record.size for record in records)
        return f"({rows} rows with the columns {', '.join(records[0].row.batch.schema.names)})"

    # ------------------------------------------------------------------ state

    def stored(self, pending: PendingResult) -> tuple[bool, bytes, bytes]:
        piece: ArrowBatch = pending.row
        batch, stamps = piece.batch, piece.timestamps
        if stamps is not None:
            batch = batch.append_column(_TIMESTAMPS, stamps)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return stamps is not None, sink.getvalue().to_pybytes(), piece.kinds or b""

    def restored(self, elements: Sequence[tuple[bool, bytes, bytes]]) -> Iterable[PendingResult]:
        for timed, data, kinds in elements:
            with pa.ipc.open_stream(data) as stream:
                batch = stream.read_next_batch()
            stamps = None
            if timed:
                last = batch.num_columns - 1
                stamps, batch = batch.column(last), batch.select(range(last))
            yield _pending(ArrowBatch(batch, stamps, kinds or None))


def _pending(piece: ArrowBatch) -> PendingResult:
    return PendingResult(piece, None, size=len(piece))
