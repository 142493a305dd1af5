"""map_batches and filter_batches: user functions over whole batches, in pyarrow, polars or pandas.

Owner: the task thread. polars and pandas are imported only if a function needs them. A result is checked
against the declared schema; null stays None in every container and never becomes NaN. Must not make a Python
object of a row, unless the row has failed and goes aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.checkpointed import CheckpointedFunctionOperator, initialize_function
from yarrow.container.operators.columnar.batch_containers import (
    BatchAdapter,
    UnknownContainerError,
    adapter_for,
)
from yarrow.container.operators.columnar.conversions import RowsPutAside
from yarrow.container.operators.columnar.declared_columns import (
    BatchFunctionError,
    ColumnValueError,
    DeclaredColumns,
)
from yarrow.container.operators.columnar.kept_rows import kept_rows
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.datastream.functions import CheckpointedFunction
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import BatchFunctionOperator, BatchShape

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


@runs(BatchFunctionOperator)
class BatchFunctionCaller(CheckpointedFunctionOperator, ColumnarOperator):
    """Calls a columnar function once for each batch.

    filter_batches keeps timestamps and row kinds with their rows; a null in the mask drops the row, as in
    SQL. map_batches keeps them row by row if the number of rows is unchanged. Otherwise it is unknown which
    row made which result: the results have no timestamps, and a batch with updates or deletions is refused.
    """

    def __init__(self, name: str, spec: BatchFunctionOperator) -> None:
        super().__init__(name)
        self._spec = spec
        self._columns = DeclaredColumns(name, spec.shape.value, spec.schema)
        self._call: Callable[[Any], Any]
        self._adapter: BatchAdapter
        #: Takes the rows at which the function fails.
        self._aside = RowsPutAside(name)
        self._opened = False
        self.function = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self.function = load_function(self._spec.function, self.name)
        self._call = method_of(self.function, self._spec.shape.value, self.name)
        self._adapter = adapter_for(self._spec.container)

    def open(self) -> None:
        self._opened = True
        initialize_function(self.function, self.context, None)
        open_function(self.function, OperatorRuntimeContext(self.context, False))

    def close(self) -> None:
        if self._opened:
            self._opened = False
            close_function(self.function)

    def leave_out_by(self, failed: FailedRecords) -> None:
        # No row comes alone: the batch is divided here.
        failed.inputs = ()
        failed.never_fatal = (ColumnValueError,)
        super().leave_out_by(failed)

    def process_batch(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        if not len(batch):
            return ()
        if self.failed is None:
            return self._results(batch)
        self.failed.seen[0] += len(batch)
        return self._without_failing_rows(self.failed, batch)

    def _without_failing_rows(self, failed: FailedRecords, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """The results of the rows at which the function does not fail; those of a failing part never leave."""
        parts = self._aside.parts_without_failing_rows(
            failed, batch, lambda part: list(self._results(part)), stays_whole=self._keeps_state
        )
        for _, results in parts:
            yield from results

    @property
    def _keeps_state(self) -> bool:
        """The function would count the rows of a batch twice that it is given again in parts."""
        return isinstance(self.function, CheckpointedFunction)

    def _results(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        result = self._call(self._adapter.from_arrow(batch.batch))
        if self._spec.shape is BatchShape.FILTER_BATCHES:
            return self._filtered(batch, result)
        return self._mapped(batch, result)

    # ------------------------------------------------------------------ map_batches

    def _mapped(self, batch: ArrowBatch, result: Any) -> Iterable[ArrowBatch]:
        made_of = self._made_of(result, batch.batch.schema)
        if batch.timestamps is None and batch.kinds is None:
            # Nothing of the batch stays with its rows, so that nobody counts them.
            return (ArrowBatch(made) for made in made_of if made.num_rows)
        batches = list(made_of)
        if sum(made.num_rows for made in batches) == len(batch):
            return _with_side_columns(batches, batch)
        if batch.kinds is not None and any(batch.kinds):
            raise BatchFunctionError(
                f"operator '{self.name}': map_batches returned {sum(made.num_rows for made in batches)} rows"
                f" for a batch of {len(batch)} rows with updates or deletions. Return one row for each row of"
                " such a batch"
            )
        return [ArrowBatch(made) for made in batches if made.num_rows]

    def _made_of(self, result: Any, given: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The batches of what the function has returned, one by one if that is a generator."""
        try:
            for made in self._adapter.to_arrow(result, given):
                yield self._columns.fitted(made)
        except UnknownContainerError as error:
            raise BatchFunctionError(
                f"operator '{self.name}': map_batches expected {error.expected}, got {error.got}; "
                "return a batch of "
                "columns, or an empty list for no rows"
            ) from error

    # ------------------------------------------------------------------ filter_batches

    def _filtered(self, batch: ArrowBatch, result: Any) -> Sequence[ArrowBatch]:
        try:
            mask = self._adapter.to_mask(result, batch.batch)
        except UnknownContainerError as error:
            raise BatchFunctionError(
                f"operator '{self.name}': filter_batches expected {error.expected}, got {error.got}; "
                "return one true or "
                "false for each row"
            ) from error
        if not pa.types.is_boolean(mask.type):
            raise BatchFunctionError(
                f"operator '{self.name}': filter_batches expected a boolean column, got {mask.type}; "
                "return a comparison, "
                "such as batch['x'] > 0"
            )
        if len(mask) != len(batch):
            raise BatchFunctionError(
                f"operator '{self.name}': filter_batches expected {len(batch)} values, one a row, got "
                f"{len(mask)}; return "
                "a mask of the batch's length, not the filtered batch"
            )
        return kept_rows(batch, mask)


def _with_side_columns(batches: Sequence[pa.RecordBatch], origin: ArrowBatch) -> list[ArrowBatch]:
    """Timestamps and kinds of the batch, cut as the results are."""
    made, start = [], 0
    stamps, kinds = origin.timestamps, origin.kinds
    for records in batches:
        rows = records.num_rows
        if rows:
            made.append(
                ArrowBatch(
                    records,
                    None if stamps is None else stamps.slice(start, rows),
                    None if kinds is None else kinds[start : start + rows],
                )
            )
        start += rows
    return made
