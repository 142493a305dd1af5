"""GuardedPreAggregatingOperator: leaves out rows at which `reduce` or `add` fails before the exchange, by `on_error`.

Owner: the task thread. A row is tried on a copy of the partial value, which stays as it was if the row fails. Partial
values that fail when they are merged are those of the windows: see GuardedWindowingOperator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import OperatorContext, declared_type, input_type_of
from yarrow.container.operators.pre_aggregation.held_values import Miss
from yarrow.container.operators.pre_aggregation.pre_aggregating import PreAggregatingOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.keyed_aggregation import TableVariables
from yarrow.container.operators.window.window_contents import copier_of
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.graph.window_spec import GuardedPreAggregationOperator, WindowKind

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


@runs(GuardedPreAggregationOperator)
class GuardedPreAggregatingOperator(PreAggregatingOperator):
    """Folds rows by slice and key, each on a copy of what there is."""

    def leave_out_by(self, failed: FailedRecords) -> None:
        # The operator has no keyed state.
        failed.keyed_by(method_of(load_function(self._spec.key_selector, self.name), "get_key", self.name))
        super().leave_out_by(failed)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        kept = declared_type(self._spec.kept_type)
        self._is_reduced = self._spec.kind is WindowKind.REDUCED
        self._combine = method_of(self.function, "reduce" if self._is_reduced else "add", self.name)
        # A function may change its accumulator even if the program says that it changes no record.
        self._copy_kept = copier_of(context, kept) if self._is_reduced else copier_for(kept)
        self._fix = copier_of(context, declared_type(input_type_of(context.descriptor)))

    def _generate_fold(self, code: CodeWriter, table: TableVariables, row: tuple[str, str, str]) -> None:
        key, value, start = row
        code.line(f"{code.bind('fold', self._fold)}({table.miss}, {key}, {value}, {start})")

    def _fold(self, miss: Miss, key: Any, row: Any, start: int) -> None:
        """Folds a row into the value of its key. Raises what the user's function raises; nothing has changed then."""
        # `miss` counts a key without a value.
        canonical, entries, kept = miss(key)
        try:
            folded = self._folded(kept, row)
        except Exception:
            if kept is MISSING:
                self.forget(key, start)
            raise
        if folded is None:
            self.forget(key, start)
        else:
            entries[canonical] = folded

    def _folded(self, kept: Any, row: Any) -> Any:
        row = row if self._fix is None else self._fix(row)
        if kept is not MISSING and self._copy_kept is not None:
            kept = self._copy_kept(kept)
        if not self._is_reduced:
            return self._combine(row, self.function.create_accumulator() if kept is MISSING else kept)
        return row if kept is MISSING else self._combine(kept, row)
