"""GuardedPatternMatchingOperator: a pattern that leaves out rows and matches at which the program fails, by `on_error`.

Owner: the task thread. A row at which a condition fails changes no partial match, and its letter leaves in its turn.
Of two rows at which the comparator fails the later one leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import PatternTable
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.cep.pattern_operator import PatternMatchingOperator
from yarrow.container.operators.cep.pending_rows import RowOrder
from yarrow.container.operators.guarded_pattern.guarded_matches import GuardedMatchingOperator
from yarrow.container.operators.guarded_pattern.guarded_order import GuardedOrder
from yarrow.container.operators.registry import runs
from yarrow.runtime.graph.pattern_spec import GuardedAllPatternOperator, GuardedPatternOperator


@runs(GuardedPatternOperator, GuardedAllPatternOperator)
class GuardedPatternMatchingOperator(GuardedMatchingOperator, PatternMatchingOperator):
    """Runs a pattern over rows in the general way, one row after the other."""

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._guard.keyed_by(self._selector)

    def _make_matcher(self, table: PatternTable, *, gives_timed_out: bool) -> PatternMatcher:
        return self._guarded_matcher(table, gives_timed_out=gives_timed_out)

    def _order_by(self, comparator: Callable[[Any, Any], int]) -> RowOrder:
        return GuardedOrder(comparator, self._guard.is_fatal).ordered

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        if self._guard.is_bounded:
            # Rows that no partial match takes count, too.
            code.count_into(self._guard.seen)
        super().generate_at(code, value, timestamp, emit, is_head)
