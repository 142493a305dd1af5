"""What operators share that leave out matches at which the function of a pattern fails, by `on_error`.

Owner: the task thread. Such a match gives nothing, and other matches are as without an error. Must not know where rows
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from yarrow.cep.pattern_functions import Match
from yarrow.cep.pattern_matcher import PatternResult
from yarrow.cep.pattern_table import PatternTable
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.match_calls import MatchCallingOperator
from yarrow.container.operators.cep.matching_operator import MatchingOperator
from yarrow.container.operators.guarded_pattern.guarded_matcher import FailedRow, GuardedMatcher
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.connectors.dead_letters import LAST_OF_MATCH
from yarrow.runtime.data.immutability import freeze_or_copy

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


class GuardedMatchCallingOperator(MatchCallingOperator):
    """Base of operators that leave out matches; stands before the class that it guards."""

    @property
    def _guard(self) -> FailedRecords:
        assert self.failed is not None, "the program says on_error"
        return self.failed

    def leave_out_by(self, failed: FailedRecords) -> None:
        # No record fails when it comes: the compiler guards no call.
        failed.inputs = ()
        failed.take_also(LAST_OF_MATCH, self._type_in_letters(failed))
        super().leave_out_by(failed)

    def _type_in_letters(self, failed: FailedRecords) -> TypeInformation | None:
        """The declared type of the rows of matches."""
        return failed.type_of(0)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        #: Copies a result: a generator may change an object after it has emitted it.
        self._fix_result = None if context.environment.object_reuse else freeze_or_copy

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
            return self._letters_of_match(cause, *ended)

    def _letters_of_match(
        self, error: Exception, match: Match, time: int, timed_out: bool
    ) -> list[tuple[Any, int | None]]:
        guard = self._guard
        *_, last = match.values()
        told = f"match {short_record(match)}"
        stamp = time if self.stamps_rows else None
        found = guard.tagged_letters(error, LAST_OF_MATCH, last[-1], stamp, told)
        if not found:
            return []
        rows = guard.encoded_together(LAST_OF_MATCH, [row for rows in match.values() for row in rows])
        steps = () if rows is None else tuple(step for step, rows_of in match.items() for _ in rows_of)
        return [
            (
                (tag, letter._replace(steps=steps, rows=rows, match_time=time, timed_out=bool(timed_out))),
                stamp,
            )
            for tag, letter in found
        ]


class GuardedMatchingOperator(GuardedMatchCallingOperator, MatchingOperator):
    """Base of patterns that leave out rows and matches; stands before the class that it guards."""

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
                yield from self._letters_of_row(each)
            else:
                yield from self._results_of(key, each)
        if self._guard.is_bounded:
            # Time passes without rows, too.
            self._guard.check()

    def _letters_of_row(self, failed: FailedRow) -> Iterator[tuple[Any, int | None]]:
        stamp = failed.timestamp if self.stamps_rows else None
        for letter in self._guard.tagged_letters(failed.error, 0, failed.row, stamp):
            yield letter, stamp
