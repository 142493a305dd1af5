"""GuardedMatcher: a matcher that leaves out a row at which a condition fails.

Owner: the task thread. The partial matches of the key are then as before the row. Must not know letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from yarrow.cep.partial_matches import Complete, PartialMatches, Run
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.cep.pattern_table import PatternTable


class FailedRow(NamedTuple):
    """A row at which a condition has failed; it stands among the matches, in the row's place."""

    row: Any
    timestamp: int
    error: Exception


class GuardedMatcher(PatternMatcher):
    """Runs one pattern; a row with an error gives a FailedRow."""

    def __init__(
        self,
        table: PatternTable,
        processing_time: Callable[[], int],
        max_partial_matches: int | None,
        is_fatal: Callable[[Exception], bool],
        *,
        gives_timed_out: bool,
    ) -> None:
        """`is_fatal`: whether an error is none of a row."""
        super().__init__(table, processing_time, max_partial_matches, gives_timed_out=gives_timed_out)
        self._is_fatal = is_fatal
        #: The runs of the key have changed by the record at hand.
        self._has_moved = False

    @property
    def moves_by_one_test(self) -> None:
        """Nobody else may test rows: an error would be no FailedRow."""
        return None

    def take(self, matches: PartialMatches, record: Any, timestamp: int) -> Sequence[PatternResult]:
        """As the base class; a FailedRow stands in place of matches. Raises errors that are none of a row.

        A record that is a FailedRow has failed already, and changes nothing.
        """
        failed: Any
        if isinstance(record, FailedRow):
            failed = record
            return (failed,)
        records, cells = len(matches.records), len(matches.cells)
        self._has_moved = False
        try:
            return super().take(matches, record, timestamp)
        except Exception as error:
            # Behind the conditions the skip strategy fails: at a whole match, and not at its last row.
            if self._has_moved or self._is_fatal(error):
                raise
            # Conditions are asked before runs change; until then records and cells only grow.
            del matches.records[records:]
            del matches.cells[cells:]
            failed = FailedRow(record, timestamp, error)
            return (failed,)

    def _behind(
        self, matches: PartialMatches, runs: list[Run], found: list[Complete], timestamp: int
    ) -> Sequence[PatternResult]:
        self._has_moved = True
        return super()._behind(matches, runs, found, timestamp)
