"""GuardedColumnarPatternMatchingOperator: a pattern of columns that leaves out rows and matches, by `on_error`.

Owner: the task thread. Conditions over columns are computed once a batch. A batch at which one fails is divided, and
the failing rows leave as letters before they wait. Functions of a row fail in the matcher, when the row has its turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import PatternTable
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.conversions import RowsPutAside
from yarrow.container.operators.columnar_pattern.column_conditions import Truths
from yarrow.container.operators.columnar_pattern.columnar_pattern_operator import (
    ColumnarPatternMatchingOperator,
)
from yarrow.container.operators.columnar_pattern.pending_batches import Numbers
from yarrow.container.operators.columnar_pattern.sequence_matching import SequenceMatching
from yarrow.container.operators.guarded_pattern.guarded_matches import GuardedMatchingOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.columns.arrow_expressions import ExpressionError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.pattern_spec import ColumnarPatternOperator, GuardedColumnarPatternOperator

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


class _RowsOfConditions(RowsPutAside):
    """Puts rows aside at which a condition fails; holds them until the operator has begun, since nobody takes them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.has_begun = False
        self._held: list[tuple[Exception, ArrowBatch]] = []

    def put_aside(self, failed: FailedRecords, error: Exception, batch: ArrowBatch) -> None:
        if self.has_begun:
            super().put_aside(failed, error, batch)
        else:
            self._held.append((error, batch))

    def begin(self, failed: FailedRecords) -> None:
        """Put rows aside that are held."""
        self.has_begun = True
        held, self._held = self._held, []
        for error, batch in held:
            failed.seen[0] += len(batch)
            self.put_aside(failed, error, batch)


@runs(GuardedColumnarPatternOperator)
class GuardedColumnarPatternMatchingOperator(GuardedMatchingOperator, ColumnarPatternMatchingOperator):
    """Runs a pattern over record batches by key columns."""

    def __init__(self, name: str, spec: ColumnarPatternOperator) -> None:
        super().__init__(name, spec)
        self._aside = _RowsOfConditions(name)

    def leave_out_by(self, failed: FailedRecords) -> None:
        failed.never_fatal = (ExpressionError,)
        super().leave_out_by(failed)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._guard.keyed_by(self._key_of_row)

    def _key_of_row(self, row: Any) -> Any:
        values = tuple(row[name] for name in self._key.names)
        return values if self._key.is_tuple else values[0]

    def _make_matcher(self, table: PatternTable, *, gives_timed_out: bool) -> PatternMatcher:
        conditions = self._pattern.conditions()
        if all(isinstance(condition, ColumnCondition) for condition in conditions):
            # Their results are known before the matcher asks: it cannot fail at a row.
            return super()._make_matcher(table, gives_timed_out=gives_timed_out)
        return self._guarded_matcher(table, gives_timed_out=gives_timed_out)

    def _sequence_matching(self) -> SequenceMatching | None:
        fix = self._fix
        made = super()._sequence_matching()
        # A letter holds the row of a match as the function got it.
        self._fix = fix
        return made

    # ------------------------------------------------------------------ rows

    def process_batch(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        self._begin()
        self._guard.seen[0] += len(batch)
        return super().process_batch(batch)

    def _with_results(
        self, times: Numbers, records: pa.RecordBatch
    ) -> tuple[Numbers, pa.RecordBatch, Truths]:
        batch = ArrowBatch(records, pa.array(times))
        parts = list(self._aside.parts_without_failing_rows(self._guard, batch, self._results_of_conditions))
        if len(parts) == 1 and len(parts[0][0]) == len(batch):
            return times, records, parts[0][1]
        if not parts:
            return times[:0], records.slice(0, 0), self._conditions.truths(records.slice(0, 0))
        return (
            np.concatenate([part.timestamps.to_numpy() for part, _ in parts if part.timestamps is not None]),
            pa.concat_batches([part.batch for part, _ in parts]),
            np.concatenate([truths for _, truths in parts]),
        )

    def _results_of_conditions(self, batch: ArrowBatch) -> Truths:
        return self._conditions.truths(batch.batch)

    # ------------------------------------------------------------------ rows that fail at a restore

    def _begin(self) -> None:
        """Sends the letters of restored rows at which a changed condition fails."""
        if not self._aside.has_begun:
            self._aside.begin(self._guard)

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        self._begin()
        return super().fire_event_timers(deadline)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._begin()
        super().prepare_snapshot(checkpoint_id)

    def finish(self) -> None:
        self._begin()
        super().finish()
