"""RecordMoves: what a record does to a partial match in each state, test by test.

Owner: the task thread, or the caller of `match`; pure. A state asks only the tests that it needs, in the order of its
edges. Each way from test to test is worked out once. Only for patterns whose tests look at the record alone, and whose
steps have no time limit of their own. Must not know records, partial matches or time.
"""

from __future__ import annotations

from typing import Final

from yarrow.cep.pattern_table import NOWHERE, Edge, EdgeAction, PatternTable, Tests

#: The test of a decision that needs no further one.
DECIDED: Final = -1

#: The edges that a partial match follows, none of them if it ends; None = it stays as it is.
Followed = tuple[Edge, ...] | None


class Decision:
    """A point on the way to what a record does in one state: the next test to ask, or the edges to follow."""

    __slots__ = ("behind", "followed", "results", "state", "test")

    def __init__(self, state: int, results: dict[int, bool], test: int, followed: Followed) -> None:
        self.state = state
        #: The results of the tests on the way to this point.
        self.results = results
        #: The test that is needed next, or DECIDED.
        self.test = test
        self.followed = followed
        #: The decisions behind the results False and True; None = not worked out yet.
        self.behind: list[Decision | None] = [None, None]


class RecordMoves:
    """The decisions of one pattern."""

    def __init__(self, table: PatternTable) -> None:
        self._table = table
        #: What each state decides on a record of which nothing is known. State 0 is the beginning of a match.
        self.first = [self._decision(state, {}) for state in range(len(table.states))]

    def behind(self, decision: Decision, result: bool) -> Decision:
        """The decision behind the result of the test that `decision` needs."""
        found = decision.behind[result]
        if found is None:
            results = {**decision.results, decision.test: result}
            found = decision.behind[result] = self._decision(decision.state, results)
        return found

    def _decision(self, state: int, results: dict[int, bool]) -> Decision:
        passed: list[Edge] = []
        for edge in self._table.states[state].edges:
            if state == 0 and edge.action is not EdgeAction.TAKE:
                continue
            test = self._needed(edge.tests, results)
            if test != DECIDED:
                return Decision(state, results, test, None)
            if self._passes(edge.tests, results):
                if edge.action is EdgeAction.STOP:
                    return Decision(state, results, DECIDED, ())
                passed.append(edge)
        is_idle = bool(passed) and all(stays(edge, state) for edge in passed)
        return Decision(state, results, DECIDED, None if is_idle else tuple(passed))

    def _needed(self, tests: Tests, results: dict[int, bool]) -> int:
        """The first test that decides whether a record passes all of `tests`; DECIDED if the results do."""
        for number, needed in tests:
            if not self._table.tests[number].parts:
                test = self._needed(self._joined(number), results)
                if test != DECIDED:
                    return test
            elif number not in results:
                return number
            if self._holds(number, results) is not needed:
                return DECIDED
        return DECIDED

    def _passes(self, tests: Tests, results: dict[int, bool]) -> bool:
        return all(self._holds(number, results) is needed for number, needed in tests)

    def _holds(self, number: int, results: dict[int, bool]) -> bool:
        if self._table.tests[number].parts:
            return results[number]
        return self._passes(self._joined(number), results)

    def _joined(self, number: int) -> Tests:
        """What a test without conditions asks of others."""
        _, taken, unless = self._table.tests[number]
        first: Tests = () if taken is None else ((taken, True),)
        return first if unless is None else (*first, (unless, False))


def stays(edge: Edge, number: int) -> bool:
    """True if a partial match in state `number` is the same behind the edge."""
    return (
        edge.action is EdgeAction.IGNORE
        and edge.target == number
        and edge.waits_in == NOWHERE
        and not edge.accepts
    )
