"""GuardedPatternMatchingOperator: a pattern that leaves out rows and matches at which the program fails, by `on_error`.

Owner: the task thread. A row at which a condition fails changes no partial match, and its letter leaves in its turn.
Errors of a comparator fail the job: they are of two rows.
"""

from __future__ import annotations

from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import PatternTable
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.cep.pattern_operator import PatternMatchingOperator
from yarrow.container.operators.guarded_pattern.guarded_matches import GuardedMatchingOperator
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

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        if self._guard.is_bounded:
            # Rows that no partial match takes count, too.
            code.count_into(self._guard.seen)
        super().generate_at(code, value, timestamp, emit, is_head)
