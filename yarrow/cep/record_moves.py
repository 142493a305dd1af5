"""RecordMoves: what a record does to a partial match in each state, by the results of the pattern's tests.

Owner: the task thread, or the caller of `match`; pure. A pattern has few combinations of results, and each is worked
out once. Only for patterns whose tests look at the record alone, and whose steps have no time limit of their own. Must
not know records, partial matches or time.
"""

from __future__ import annotations

from typing import NamedTuple

from yarrow.cep.pattern_table import NOWHERE, Edge, EdgeAction, PatternState, PatternTable, Tests


class Moves(NamedTuple):
    """What a record with certain results does."""

    #: The edges by which a match begins with it.
    begins: tuple[Edge, ...]
    #: For each state the edges that a partial match there follows, none of them if it ends; None = it stays as it is.
    by_state: tuple[tuple[Edge, ...] | None, ...]
    #: No match begins, and each partial match stays as it is.
    is_idle: bool


class RecordMoves:
    """The moves of one pattern."""

    def __init__(self, table: PatternTable) -> None:
        self._table = table
        self._known: dict[int, Moves] = {}

    def of(self, results: int) -> Moves:
        """The moves of a record: bit n of `results` is the result of test n, if that test has conditions."""
        moves = self._known.get(results)
        if moves is None:
            moves = self._known[results] = self._worked_out(results)
        return moves

    def _worked_out(self, results: int) -> Moves:
        first, *others = self._table.states
        begins = tuple(
            edge
            for edge in first.edges
            if edge.action is EdgeAction.TAKE and self._passes(edge.tests, results)
        )
        by_state = (None, *(self._followed(at, state, results) for at, state in enumerate(others, 1)))
        return Moves(begins, by_state, not begins and all(edges is None for edges in by_state))

    def _followed(self, number: int, state: PatternState, results: int) -> tuple[Edge, ...] | None:
        passed = [edge for edge in state.edges if self._passes(edge.tests, results)]
        if any(edge.action is EdgeAction.STOP for edge in passed):
            return ()
        stays = all(_stays(edge, number) for edge in passed)
        return None if passed and stays else tuple(passed)

    def _passes(self, tests: Tests, results: int) -> bool:
        return all(self._holds(number, results) is needed for number, needed in tests)

    def _holds(self, number: int, results: int) -> bool:
        test = self._table.tests[number]
        if test.parts:
            return bool(results >> number & 1)
        taken, unless = test.taken, test.unless
        return (taken is None or self._holds(taken, results)) and (
            unless is None or not self._holds(unless, results)
        )


def _stays(edge: Edge, number: int) -> bool:
    """True if a partial match in state `number` is the same behind the edge."""
    return (
        edge.action is EdgeAction.IGNORE
        and edge.target == number
        and edge.waits_in == NOWHERE
        and not edge.accepts
    )
