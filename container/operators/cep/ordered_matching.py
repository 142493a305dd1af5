"""OrderedMatching: runs the rows of all keys through a pattern in order of time, whatever their keys.

Owner: the task thread. The generated loop (`matching_code.py`) takes the common ways of a row itself, and comes here
for the others. A key with partial matches has a timer, at the end of the first one or earlier. A timer that has become
too early only looks at its key. Must not know user functions of matches. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternMatcher, PatternResult
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.operators.cep.matching_code import (
    LoopRows,
    MatchingLoop,
    generate_matching,
)
from yarrow.container.operators.cep.matching_state import KeptMatches, MatchingState
from yarrow.container.state.timers import TimerQueue
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: A result with the canonical key to which it belongs.
KeyedResult = tuple[Any, PatternResult]
#: Makes the error of a condition: canonical key, row and the condition's error.
Failure = Callable[[Any, Any, Exception], Exception]
#: Parts of the time limit whose ends timers have as times.
_GRAINS: Final = 64
#: Rows that run together, at least and at most. Between two pieces the task looks at its deadline.
_LEAST_PIECE: Final = 16
_MOST_PIECE: Final = 512
#: Seconds below which the next piece takes twice as many rows, and above which it takes half as many.
_SHORT: Final = 0.001
_LONG: Final = 0.003


class OrderedRows(Protocol):
    """The rows of all keys that wait."""

    @property
    def first_time(self) -> int | None:
        """The earliest time; None = no row waits."""
        ...

    def take_with_keys(self, last: int, most: int) -> Any:
        """Removes the first rows up to time `last`, at most `most` of them; see LoopRows for their form."""
        ...


class OrderedMatching:
    """The matcher of one operator with its rows, partial matches and timers."""

    def __init__(
        self,
        matcher: PatternMatcher,
        matches: MatchingState,
        rows: OrderedRows,
        timers: TimerQueue,
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
        #: Number of fired timers.
        self.fired = 0
        within = matcher.within_ms
        #: Timers have multiples of it as times where that is early enough, so that many keys share a time.
        self._grain = 1 if within is None else max(1, within // _GRAINS)
        #: The loop moves partial matches itself. It knows none that are complete and wait.
        self._moves = matcher.moves_by_one_test
        timers.clear()
        for key in matches.all_keys():
            _, found = matches.at(key)
            if found is not None:
                self._arm(key, matcher.deadline(found), MIN_TIMESTAMP)
                if found.complete:
                    self._moves = None

    def compile(self, form: LoopRows, *, inlines: bool) -> CompiledCode:
        """Makes the loop for rows of a form. `inlines`: small conditions are written into it.

        Conditions are open, unless nobody runs the loop.
        """
        begin = None if self._matcher.within_ms is None else self._begin
        loop = MatchingLoop(
            self._matches.table, self.take, begin, self._matches.remove, self._disarm, self._failure
        )
        code = CodeWriter(inlines=inlines)
        self._code = generate_matching(code, form, loop, self._matcher.table, self._moves)
        return self._code

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
        """Runs the rows up to `time` in their order, and lets time pass; a piece of work at a time.

        It stops behind `deadline` (perf_counter): then `is_due` tells whether something is left.
        """
        assert self._code is not None
        run: Callable[[Any], list[KeyedResult]] = self._code.function  # type: ignore[assignment]
        now = perf_counter()
        while self.is_due(time):
            first, due = self.rows.first_time, self._timers.first_timestamp()
            if first is None or first > time:
                found = self._fire(time)
            elif due is not None and due <= first:
                # Time passes before the rows of that time.
                found = self._fire(first)
            else:
                found = run(self.rows.take_with_keys(self._last_of_piece(first, due, time), self._piece))
            if found:
                yield found
            began, now = now, perf_counter()
            if now - began < _SHORT:
                self._piece = min(2 * self._piece, _MOST_PIECE)
            elif now - began > _LONG:
                self._piece = max(self._piece // 2, _LEAST_PIECE)
            if now >= deadline:
                return

    def is_due(self, time: int) -> bool:
        """True while rows up to `time` wait, or timers are due by then."""
        first, due = self.rows.first_time, self._timers.first_timestamp()
        return (first is not None and first <= time) or (due is not None and due <= time)

    def _last_of_piece(self, first: int, due: int | None, time: int) -> int:
        """The last time of rows that may run together. No time limit of a whole match ends up to it.

        Limits of single steps may: `take` lets them pass.
        """
        last = time if due is None else min(time, due - 1)
        within = self._matcher.within_ms
        return last if within is None else min(last, first + within - 1)

    def take(self, key: Any, row: Any, time: int) -> Sequence[KeyedResult]:
        """Runs one row of a canonical key; `run_until` comes here where the loop has no shorter way."""
        matcher = self._matcher
        place, matches = self._matches.at(key)
        if matches is None:
            matches = PartialMatches.none()
        found = [*matcher.advance(matches, time), *matcher.take(matches, row, time)]
        self._keep(place, matches, time)
        return [(key, result) for result in found]

    def _keep(self, place: KeptMatches, matches: PartialMatches, now: int) -> None:
        self._matches.keep(place, matches)
        if matches.is_empty:
            self._disarm(place[0])
        else:
            self._arm(place[0], self._matcher.deadline(matches), now)

    # ------------------------------------------------------------------ time

    def _fire(self, time: int) -> list[KeyedResult]:
        """Ends partial matches of some keys whose timers are due up to a time."""
        results: list[KeyedResult] = []
        for _ in range(self._piece):
            timer = self._timers.pop_any(time)
            if timer is None:
                break
            self.fired += 1
            key = timer[0]
            self._armed.pop(key, None)
            place, matches = self._matches.at(key)
            if matches is not None:
                results += [(key, result) for result in self._matcher.advance(matches, time)]
                self._keep(place, matches, time)
        return results

    def _begin(self, key: Any, time: int) -> None:
        """Sets the timer of a key whose only partial match began at a time."""
        within = self._matcher.within_ms
        assert within is not None
        due = time + within
        if due <= MAX_TIMESTAMP:
            self._armed[key] = due = max(due - due % self._grain, time + 1)
            self._timers.register(due, key)

    def _arm(self, key: Any, due: int | None, now: int) -> None:
        """Sets the timer of a key, unless it has one that is early enough."""
        # No time reaches an end behind MAX_TIMESTAMP: a timer there would be due again and again.
        if due is None or due > MAX_TIMESTAMP:
            return
        former = self._armed.get(key)
        if former is not None:
            if former <= due:
                return
            self._timers.delete(former, key)
        early = due - due % self._grain
        if early > now:
            due = early
        self._armed[key] = due
        self._timers.register(due, key)

    def _disarm(self, key: Any) -> None:
        former = self._armed.pop(key, None)
        if former is not None:
            self._timers.delete(former, key)
