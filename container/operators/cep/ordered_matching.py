"""OrderedMatching: runs the rows of all keys through a pattern in order of time, whatever their keys.

Owner: the task thread. The generated loop (`matching_code.py`) takes the common ways of a row itself, and comes here
for the others. A key with partial matches has a timer, at the end of the first one or earlier. A timer that has become
too early only looks at its key. Must not know user functions of matches. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.operators.cep.matching_code import MatchingLoop, generate_matching
from yarrow.container.operators.cep.matching_state import KeptMatches, MatchingState
from yarrow.container.operators.cep.time_ordered_rows import RowTimers, TimeOrderedRows
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP

#: A result with the canonical key to which it belongs.
KeyedResult = tuple[Any, PatternResult]
#: Makes the error of a condition: canonical key, row and the condition's error.
Failure = Callable[[Any, Any, Exception], Exception]
#: Rows that run together, at least and at most. Between two pieces the task looks at its deadline.
_LEAST_PIECE: Final = 16
_MOST_PIECE: Final = 512
#: Seconds below which the next piece takes twice as many rows, and above which it takes half as many.
_SHORT: Final = 0.001
_LONG: Final = 0.003


class OrderedMatching:
    """The matcher of one operator with its rows, partial matches and timers."""

    def __init__(
        self,
        matcher: PatternMatcher,
        matches: MatchingState,
        rows: TimeOrderedRows,
        timers: RowTimers,
        failure: Failure,
    ) -> None:
        """Sets a timer for each restored key; those of the snapshot may be of rows."""
        self.rows = rows
        self._matcher = matcher
        self._matches = matches
        self._timers = timers
        self._failure = failure
        #: The time of the timer of each key with partial matches.
        self._armed: dict[Any, int] = {}
        self._code: CompiledCode | None = None
        self._piece = _LEAST_PIECE
        timers.clear()
        for key in matches.all_keys():
            _, found = matches.at(key)
            if found is not None:
                self._arm(key, matcher.deadline(found))

    def compile(self, *, inlines: bool) -> None:
        """Makes the loop; conditions are open. `inlines`: small conditions are written into it."""
        loop = MatchingLoop(
            self._matches.table, self.take, self._begin, self._end, self._failure, self._matcher.within_ms
        )
        code = CodeWriter(inlines=inlines)
        self._code = generate_matching(code, loop, self._matcher.table, self._matcher.moves_by_one_test)

    def close(self) -> None:
        """Forgets the loop."""
        if self._code is not None:
            self._code.dispose()

    def clear(self) -> None:
        """Forgets timers: the caller empties the state."""
        self._armed.clear()
        self._timers.clear()

    # ------------------------------------------------------------------ rows

    def run_until(self, time: int, deadline: float) -> Iterator[list[KeyedResult]]:
        """Runs the rows up to `time` in their order, a piece at a time; stops behind `deadline` (perf_counter)."""
        assert self._code is not None
        run: Callable[[Any], list[KeyedResult]] = self._code.function  # type: ignore[assignment]
        rows = self.rows
        now = perf_counter()
        while pieces := rows.take_with_keys(time, self._piece):
            found = run(pieces)
            if found:
                yield found
            began, now = now, perf_counter()
            if now - began < _SHORT:
                self._piece = min(2 * self._piece, _MOST_PIECE)
            elif now - began > _LONG:
                self._piece = max(self._piece // 2, _LEAST_PIECE)
            if now >= deadline:
                return

    def has_rows_until(self, time: int) -> bool:
        """True while rows up to a time wait."""
        first = self.rows.first_time
        return first is not None and first <= time

    def take(self, key: Any, row: Any, time: int) -> Sequence[KeyedResult]:
        """Runs one row of a canonical key; `run_until` comes here where the loop has no shorter way."""
        matcher = self._matcher
        place, matches = self._matches.at(key)
        if matches is None:
            matches = PartialMatches.none()
        found = [*matcher.advance(matches, time), *matcher.take(matches, row, time)]
        self._keep(place, matches)
        return [(key, result) for result in found]

    def _keep(self, place: KeptMatches, matches: PartialMatches) -> None:
        self._matches.keep(place, matches)
        if matches.is_empty:
            self._disarm(place[0])
        else:
            self._arm(place[0], self._matcher.deadline(matches))

    # ------------------------------------------------------------------ time

    def pass_time(self, key: Any, time: int) -> Sequence[PatternResult]:
        """Ends the partial matches of a canonical key whose timer was due, up to a time."""
        self._armed.pop(key, None)
        place, matches = self._matches.at(key)
        if matches is None:
            return ()
        found = self._matcher.advance(matches, time)
        self._keep(place, matches)
        return found

    def _begin(self, key: Any, time: int) -> None:
        """Sets the timer of a key whose only partial match began at a time."""
        within = self._matcher.within_ms
        assert within is not None
        self._arm(key, time + within)

    def _end(self, key: Any) -> None:
        """Removes a key that has no partial match any more."""
        self._matches.remove(key)
        self._disarm(key)

    def _arm(self, key: Any, due: int | None) -> None:
        """Sets the timer of a key, unless it has one that is early enough."""
        # No time reaches an end behind MAX_TIMESTAMP: a timer there would be due again and again.
        if due is None or due > MAX_TIMESTAMP:
            return
        former = self._armed.get(key)
        if former is not None:
            if former <= due:
                return
            self._timers.delete(former, key)
        self._armed[key] = due
        self._timers.register(due, key)

    def _disarm(self, key: Any) -> None:
        former = self._armed.pop(key, None)
        if former is not None:
            self._timers.delete(former, key)
