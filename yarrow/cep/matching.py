"""match: runs a pattern over a list without a cluster, and tells why it matched or not.

Owner: the caller's thread. It runs the matcher of the operator, key by key, over records in order of time. Nothing
is kept between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yarrow.cep.conditions import RichIterativeCondition
from yarrow.cep.partial_matches import PartialMatches, Run
from yarrow.cep.pattern import MalformedPatternError, Pattern
from yarrow.cep.pattern_functions import Match
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.cep.pattern_table import NOWHERE, Edge, PatternTable, compile_pattern
from yarrow.container.protocol.failure import short_record
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.data.elements import MAX_TIMESTAMP

__all__ = ["Matches", "match"]


class Matches(list[Match]):
    """The matches of a pattern in a list, each a dict from the name of a step to its records."""

    def __init__(self, results: Sequence[PatternResult], trace: list[str]) -> None:
        super().__init__(result.match for result in results if not result.timed_out)
        #: All matches and timed out partial matches with their times.
        self.results = list(results)
        #: The partial matches whose time has passed.
        self.timed_out: list[Match] = [result.match for result in results if result.timed_out]
        #: A line for each thing that a run did with a record; empty without `trace=True`.
        self.trace = trace


def match(
    pattern: Pattern,
    rows: Iterable[Any],
    *,
    timestamp: Callable[[Any], int] | None = None,
    key: Callable[[Any], Any] | None = None,
    trace: bool = False,
) -> Matches:
    """Return the matches of a pattern in rows, those of each key in their order.

    `timestamp`: the time of a row in milliseconds; rows are sorted by it, and all time limits pass at the end.
    None = the number of the row, for patterns without a time limit. `key`: None = all rows have one key.
    With `trace`, `trace` of the result tells row by row what each run did.
    Raises MalformedPatternError for a pattern that cannot match, or a time limit without `timestamp`.
    """
    table = compile_pattern(pattern)
    if timestamp is None and (
        table.within_ms is not None or any(state.gap_ms is not None for state in table.states)
    ):
        raise MalformedPatternError(
            "match: the pattern has a time limit. Say what the time of a row is: match(..., timestamp=lambda row: ...)"
        )
    for step in pattern.all_steps():
        if any(step.column_conditions()):
            raise TypeError(
                f"match: the step {step} has a condition over columns, and match takes rows. Give it a function of the"
                " row"
            )
    for condition in pattern.conditions():
        if isinstance(condition, RichIterativeCondition):
            raise TypeError(
                f"match: {type(condition).__name__} needs the runtime context of a job. Use an IterativeCondition"
            )
    by_key: dict[Any, list[tuple[int, Any]]] = {}
    for number, row in enumerate(rows):
        time = number if timestamp is None else timestamp(row)
        by_key.setdefault(None if key is None else key(row), []).append((time, row))
    observer = _Trace(table) if trace else None
    matcher = PatternMatcher(table, SystemClock().epoch_ms, None, observer)
    results: list[PatternResult] = []
    for each, timed in by_key.items():
        if observer is not None and key is not None:
            observer.lines.append(f"key {short_record(each)}")
        results += _of_key(matcher, sorted(timed, key=lambda entry: entry[0]), observer)
    return Matches(results, [] if observer is None else observer.lines)


def _of_key(
    matcher: PatternMatcher, rows: Sequence[tuple[int, Any]], observer: _Trace | None
) -> list[PatternResult]:
    matches = PartialMatches.none()
    results: list[PatternResult] = []
    for number, (time, row) in enumerate(rows):
        if observer is not None:
            observer.begin_row(matches, f"row {number} {short_record(row)} at {time}")
        results += matcher.advance(matches, time)
        found = matcher.take(matches, row, time)
        if observer is not None:
            observer.end_row(found)
        results += found
    if observer is not None:
        observer.begin_row(matches, "the end")
    results += matcher.advance(matches, MAX_TIMESTAMP)
    if observer is not None:
        observer.end(matches)
    return results


class _Trace:
    """Writes down what runs do."""

    def __init__(self, table: PatternTable) -> None:
        self._table = table
        self._matches = PartialMatches.none()
        self._row = ""
        self._did_nothing = True
        self.lines: list[str] = []

    def begin_row(self, matches: PartialMatches, row: str) -> None:
        """A further row comes."""
        self._matches, self._row, self._did_nothing = matches, row, True

    def end_row(self, found: Sequence[PatternResult]) -> None:
        """The row has been taken, and has given these results."""
        for result in found:
            self._say(f"MATCH {_shown(result.match)}")
        if self._did_nothing:
            self._say("no match begins with it, and none is under way")

    def end(self, matches: PartialMatches) -> None:
        """There are no more rows."""
        for run in matches.runs:
            self._say(f"{self._of(run)} is left: it {self._waits(run)}")

    # ------------------------------------------------------------------ Observer

    def took(self, before: Run | None, edge: Edge, after: Run) -> None:
        step = self._table.steps[edge.step]
        who = "a match begins" if before is None else f"{self._of(before)} goes on"
        behind = "" if after[0] == NOWHERE else f", then {self._waits(after)}"
        self._say(f"{who}: '{step}' takes it{behind}")

    def ignored(self, run: Run, edge: Edge) -> None:
        self._say(f"{self._of(run)} passes over it")

    def stopped(self, run: Run) -> None:
        self._say(f"{self._of(run)} ends: the pattern forbids this row")

    def broken(self, run: Run) -> None:
        self._say(
            f"{self._of(run)} ends: it {self._waits(run)}, which does not take this row and lets none come between"
        )

    def timed_out(self, run: Run, time: int) -> None:
        self._say(f"{self._of(run)} times out at {time}: it {self._waits(run)}")

    def pruned(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._say(f"{self._of(run)} ends: the skip strategy of a match drops it")

    # ------------------------------------------------------------------ text

    def _say(self, what: str) -> None:
        self._did_nothing = False
        self.lines.append(f"{self._row}: {what}")

    def _of(self, run: Run) -> str:
        return _shown(self._matches.match(run[1], self._table.steps))

    def _waits(self, run: Run) -> str:
        return self._table.states[run[0]].label


def _shown(found: Match) -> str:
    parts = (f"{step}={', '.join(map(short_record, records))}" for step, records in found.items())
    return f"[{'; '.join(parts)}]"
