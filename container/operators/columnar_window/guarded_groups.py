"""GuardedGroups: divides a failed call of an aggregate of users, and puts the rows aside of windows at which it fails.

Owner: the task thread. The function gives a row for each window, so a window is never divided: it would give results
for windows that never were. Must not know state.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.conversions import RowsPutAside
from yarrow.container.operators.columnar.declared_columns import ColumnValueError
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_window.batch_aggregation import BatchAggregation, WindowRows
from yarrow.datastream.connectors.dead_letters import ROW_OF_WINDOW
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.operator_spec import KeyColumns

if TYPE_CHECKING:
    # Most processes leave out no records.
    from yarrow.container.operators.failed_records import FailedRecords


class GuardedGroups:
    """Calls the function of one operator for the windows at which it does not fail."""

    def __init__(self, name: str, failed: FailedRecords, key_column: KeyColumns) -> None:
        """`name`: of the operator. `key_column`: where rows have their key."""
        failed.inputs = ()
        failed.never_fatal = (ColumnValueError,)
        failed.take_also(ROW_OF_WINDOW, failed.type_of(0))
        failed.keyed_by(itemgetter(*([key_column] if isinstance(key_column, str) else key_column)))
        self._failed = failed
        self._aside = RowsPutAside(name)

    def results(self, function: BatchAggregation, rows: WindowRows) -> tuple[list[pa.Array], Slots]:
        """The columns of the results of windows that have not failed, each of shape (windows,).

        Also returns the places of the others: int64, shape (failed windows,). Letters of their rows have been sent.
        Raises OperatorFailure for an error that is none of a record. Raises TooManyErrorsError.
        """
        failed = self._failed
        failed.seen[0] += len(rows.times)
        parts, failing = list[list[pa.Array]](), list[int]()
        for first, columns in self._divided(function, rows, 0):
            if columns is None:
                failing.append(first)
            else:
                parts.append(columns)
        if failing and failed.is_bounded:
            # Windows end without batches, too.
            failed.check()
        columns = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        return columns, np.array(failing, np.int64)

    def _divided(
        self, function: BatchAggregation, rows: WindowRows, first: int
    ) -> Iterator[tuple[int, list[pa.Array] | None]]:
        """Places of windows with the results of these and the next ones; None = the window there has failed.

        `first`: the place of the first window of `rows`.
        """
        try:
            columns = function.called(rows)
        except Exception as error:
            if self._failed.is_fatal(error):
                raise function.failure(rows, error) from error
            if len(rows.groups) == 1:
                told = f"all {rows.shown()} leave"
                batch = ArrowBatch(rows.records, pa.array(rows.times))
                self._aside.put_aside_together(self._failed, error, ROW_OF_WINDOW, batch, told)
                yield first, None
                return
        else:
            yield first, columns
            return
        # Behind the handler, so that errors of the halves do not name this one as their context.
        half = len(rows.groups) // 2
        yield from self._divided(function, rows.part(0, half), first)
        yield from self._divided(function, rows.part(half, len(rows.groups)), first + half)
