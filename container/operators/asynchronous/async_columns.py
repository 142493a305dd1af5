"""AsyncColumnsOperator: begins calls for the rows of record batches, and emits their results as record batches.

Owner: the task thread; results are checked on the thread of the event loop. A record batch is cut into pieces of at
most one call. A call gets several pieces as one batch. Must not make a Python object of a row, unless the row has
failed and goes aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yarrow.common.typeinfo import Types
from yarrow.container.operators.asynchronous.called_function import ResultsOf, require_kind, require_rows
from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.container.operators.asynchronous.waiting_calls import FailedResults, WaitingCallsOperator
from yarrow.container.operators.base import Operator
from yarrow.container.operators.columnar.conversions import RowsPutAside
from yarrow.container.operators.columnar.declared_columns import ColumnValueError, DeclaredColumns
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.async_spec import AsyncColumnsOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor

if TYPE_CHECKING:
    # Most processes leave out no records.
    from yarrow.container.operators.failed_records import FailedRecords

#: Name of the column that has the timestamps of a stored piece.
_TIMESTAMPS = "timestamps of the rows"


class _DividedPiece:
    """A piece whose call has failed, and the results of its parts. In state it is whole until all parts have theirs."""

    def __init__(self, whole: PendingResult) -> None:
        self.whole = whole
        #: Rows without results.
        self.missing = whole.size
        #: First row of a part -> the part and its results.
        self.parts: dict[int, tuple[ArrowBatch, list[Any]]] = {}

    def half(self, begin: int, end: int) -> _Part:
        """Return the rows of the piece from `begin` to below `end`."""
        return _Part(self, begin, self.whole.row.sliced(begin, end))


class _Part(PendingResult):
    """Rows of a divided piece, which have a call of their own."""

    __slots__ = ("begin", "piece")

    def __init__(self, piece: _DividedPiece, begin: int, rows: ArrowBatch) -> None:
        super().__init__(rows, None, size=len(rows))
        self.piece = piece
        self.begin = begin


class _ResultsOfParts(list[Any]):
    """The parts of a divided piece with their results, in the order of the rows."""


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
        #: Takes the rows at which the function fails.
        self._aside = RowsPutAside(name)

    def leave_out_by(self, failed: FailedRecords) -> None:
        # No row comes alone: a piece is divided when its call has failed.
        failed.inputs = ()
        failed.never_fatal = (ColumnValueError,)
        Operator.leave_out_by(self, failed)

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

    # ------------------------------------------------------------------ rows that are left out

    def failed_alone(self, record: PendingResult, error: Exception) -> None:
        if record.size == 1:
            self.complete(record, FailedResults(error))
            return
        begin, piece = (
            (record.begin, record.piece) if isinstance(record, _Part) else (0, _DividedPiece(record))
        )
        middle, end = begin + record.size // 2, begin + record.size
        self.call_halves([piece.half(begin, middle)], [piece.half(middle, end)])

    @property
    def complete(self) -> Callable[[PendingResult, list[Any]], None]:
        return self._queue.complete if self.failed is None else self._completed

    def _completed(self, record: PendingResult, results: list[Any]) -> None:
        """Take the results of a piece, or of a part of one."""
        if not isinstance(record, _Part):
            self._queue.complete(record, results)
            return
        piece = record.piece
        piece.parts[record.begin] = record.row, results
        piece.missing -= record.size
        if not piece.missing:
            parts = _ResultsOfParts(piece.parts[begin] for begin in sorted(piece.parts))
            self._queue.complete(piece.whole, parts)

    def emitted_or_left_out(self, complete: PendingResult) -> Iterable[ArrowBatch]:
        """The results of the rows of a piece; letters of the others are sent."""
        failed, results = self.failed, complete.results
        assert failed is not None and results is not None, (
            "only complete pieces leave, and the program says on_error"
        )
        failed.seen[0] += complete.size
        parts = results if isinstance(results, _ResultsOfParts) else [(complete.row, results)]
        for rows, of_rows in parts:
            if isinstance(of_rows, FailedResults):
                self._aside.put_aside(failed, of_rows.error, rows)
            else:
                yield from (ArrowBatch(made, rows.timestamps, rows.kinds) for made in of_rows)

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
