"""GuardedMatchingOperator: what patterns of rows and of columns share that leave out rows and matches, by `on_error`.

Owner: the task thread. A match at which the function fails gives nothing, and other matches are as without an error.
Must not know where rows wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from yarrow.cep.pattern_matcher import PatternResult
from yarrow.cep.pattern_table import PatternTable
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.matching_operator import MatchingOperator
from yarrow.container.operators.guarded_pattern.guarded_matcher import FailedRow, GuardedMatcher
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.connectors.dead_letters import LAST_OF_MATCH
from yarrow.runtime.data.immutability import freeze_or_copy

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


class GuardedMatchingOperator(MatchingOperator):
    """Base of patterns that leave out rows and matches; stands before the class that it guards."""

    @property
    def _guard(self) -> FailedRecords:
        assert self.failed is not None, "the program says on_error"
        return self.failed

    def leave_out_by(self, failed: FailedRecords) -> None:
        # The chain lets rows wait, and the matcher fails at them.
        failed.inputs = ()
        failed.take_also(LAST_OF_MATCH, failed.type_of(0))
        super().leave_out_by(failed)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        #: Copies a result: a generator may change an object after it has emitted it.
        self._fix_result = None if context.environment.object_reuse else freeze_or_copy

    def _guarded_matcher(self, table: PatternTable, *, gives_timed_out: bool) -> GuardedMatcher:
        """A matcher that leaves out a row at which a condition fails."""
        return GuardedMatcher(
            table,
            self.context.environment.clock.epoch_ms,
            self._matching.max_partial_matches,
            self._guard.is_fatal,
            gives_timed_out=gives_timed_out,
        )

    def _emit_each(self, found: Iterable[tuple[Any, PatternResult]]) -> Iterator[tuple[Any, int | None]]:
        each: Any
        for key, each in found:
            if isinstance(each, FailedRow):
                yield from self._letters(each.error, 0, each.row, each.timestamp)
            else:
                yield from self._results_of(key, each)
        if self._guard.is_bounded:
            # Time passes without rows, too.
            self._guard.check()

    def _results_of(self, key: Any, ended: PatternResult) -> Iterable[tuple[Any, int | None]]:
        """The results of a match; of one that fails its letter, if somebody reads letters."""
        fix = self._fix_result
        try:
            made = super()._emit_each([(key, ended)])
            return [*made] if fix is None else [(fix(result), time) for result, time in made]
        except OperatorFailure as failure:
            cause = failure.cause
            if not isinstance(cause, Exception) or self._guard.is_fatal(cause):
                raise
            # A plain tuple where columns make it.
            match, time, _ = ended
            *_, rows = match.values()
            return self._letters(cause, LAST_OF_MATCH, rows[-1], time, f"match {short_record(match)}")

    def _letters(
        self, error: Exception, index: int, row: Any, time: int, told: str = ""
    ) -> list[tuple[Any, int | None]]:
        stamp = time if self.stamps_rows else None
        return [(letter, stamp) for letter in self._guard.tagged_letters(error, index, row, stamp, told)]
