"""MatchReplayingOperator: gives matches of dead letters to the function of a pattern, when letters are replayed.

Owner: the task thread. The rows of such a match have done their part in the pattern, which never sees them again. A
match at which the function fails again leaves as the letter that it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from yarrow.cep.pattern_matcher import PatternResult
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, RowOperator, declared_type
from yarrow.container.operators.cep.match_calls import is_tagged
from yarrow.container.operators.guarded_pattern.guarded_matches import GuardedMatchCallingOperator
from yarrow.container.operators.registry import runs
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, LeftOutMatch
from yarrow.runtime.graph.pattern_spec import ReplayedMatchesOperator

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


@runs(ReplayedMatchesOperator)
class MatchReplayingOperator(GuardedMatchCallingOperator, RowOperator):
    """Calls the function of a pattern with one match after the other."""

    def __init__(self, name: str, spec: ReplayedMatchesOperator) -> None:
        super().__init__(name)
        self._spec = spec
        self.stamps_rows = spec.event_time

    def _type_in_letters(self, failed: FailedRecords) -> TypeInformation | None:
        return declared_type(self._spec.row_type)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._set_up_function(context, self._spec.function, declared_type(self._spec.row_type))

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        result, stamp = code.fresh("v"), code.fresh("t")
        with code.block(f"for {result}, {stamp} in {code.bind('on_match', self.on_match)}({value}):"):
            emit(result, stamp)

    def on_match(self, found: LeftOutMatch) -> Iterable[tuple[Any, int | None]]:
        """The results of a match that was left out, or its letter."""
        ended = PatternResult(found.match, found.time, found.timed_out)
        if self.failed is None:
            return self._emit_each([(None, ended)])
        self.failed.seen[0] += 1
        return [
            ((result[0], result[1]._replace(key=found.key)) if _is_letter(result) else result, stamp)
            for result, stamp in self._results_of(None, ended)
        ]


def _is_letter(result: Any) -> bool:
    return is_tagged(result) and result[0].tag_id == DEAD_LETTERS
