"""MatchCallingOperator: what all operators share that call the function of a pattern with matches.

Owner: the task thread. Must not know where matches come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from yarrow.cep.pattern_functions import PatternProcessFunction, TimedOutPartialMatchHandler
from yarrow.cep.pattern_matcher import PatternResult
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.user_functions import close_function, load_function, open_function, results_of
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.cep_runtime_context import CepRuntimeContext
from yarrow.container.operators.checkpointed import CheckpointedFunctionOperator
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.keys import user_key


class MatchContext(PatternProcessFunction.Context):
    """The times of the match at hand."""

    time: int = MIN_TIMESTAMP

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def timestamp(self) -> int:
        return self.time

    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()


class MatchCallingOperator(CheckpointedFunctionOperator):
    """Base of operators that call a PatternProcessFunction."""

    emits_tagged = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._opened = False
        self.function = None

    def _set_up_function(
        self, context: OperatorContext, blob: bytes, row_type: TypeInformation | None
    ) -> None:
        """Loads the function; called by `setup`. `row_type`: of the records of matches; None = not declared."""
        environment = context.environment
        self.function = load_function(blob, self.name)
        self._fix = None if environment.object_reuse else copier_for(row_type)
        self._match_context = MatchContext(environment.clock)
        handles = isinstance(self.function, TimedOutPartialMatchHandler)
        self._on_timeout: Any = self.function.process_timed_out_match if handles else None

    def open(self) -> None:
        self._opened = True
        self._runtime_context = CepRuntimeContext(self.context, keyed=False)
        open_function(self.function, self._runtime_context)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            close_function(self.function)

    def _emit(self, found: Sequence[PatternResult], key: Any) -> Iterator[tuple[Any, int | None]]:
        """Calls the user's function with matches and partial matches of a key, and yields its results."""
        return self._emit_each([(key, each) for each in found])

    def _emit_each(self, found: Iterable[tuple[Any, PatternResult]]) -> Iterator[tuple[Any, int | None]]:
        """The same for pairs of key and match; keys are raw or canonical."""
        context, stamps, fix = self._match_context, self.stamps_rows, self._fix
        on_match = self.function.process_match
        for key, (match, time, timed_out) in found:
            call = self._on_timeout if timed_out else on_match
            if call is None:
                continue
            if fix is not None:
                # The records of a match may belong to others that are still to come.
                match = {name: [fix(record) for record in records] for name, records in match.items()}
            context.time = time
            try:
                for result in results_of(call(match, context)):
                    if timed_out and not is_tagged(result):
                        raise InvalidProgramError(
                            f"process_timed_out_match gave {short_record(result)}: it has no main output. Yield"
                            " (OutputTag, value)"
                        )
                    yield result, time if stamps else None
            except OperatorFailure:
                raise
            except Exception as error:
                raise self._failure(f"match {short_record(match)}", user_key(key), error) from error

    def _failure(self, what: str, key: Any, error: Exception) -> OperatorFailure:
        """The error of the function or of a condition at a record or match; `key` is raw."""
        return OperatorFailure(self.name, what, error)


def is_tagged(result: Any) -> bool:
    """True for a result for a side output."""
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], OutputTag)
