"""RecordMoves: what a record does to a partial match in each state, test by test.

Owner: the task thread, or the caller of `match`; pure. A state asks only the tests that it needs, in the order of its
edges. Each way from test to test is worked out once. Only for patterns whose tests look at the record alone, and whose
steps have no time limit of their own. Must not know records, partial matches or time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

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


class OneTest(NamedTuple):
    """What a record does in a state with one test, if no other state asks that test."""

    test: int
    holds: Followed
    fails: Followed


class RecordMoves:
    """The decisions of one pattern."""

    def __init__(self, table: PatternTable) -> None:
        self._table = table
        #: What each state decides on a record of which nothing is known. State 0 is the beginning of a match.
        self.first = [self._decision(state, {}) for state in range(len(table.states))]
        #: No two partial matches ever have the same last cell.
        self.keeps_apart = all(_keeps_apart(state.edges) for state in table.states)

    def by_one_test(self) -> list[OneTest | None]:
        """For each state what its only test decides; None = it asks others, too, or shares the test."""
        asked = Counter(test for state in self._table.states for test in self._asked(state.edges))
        found: list[OneTest | None] = []
        for first in self.first:
            ways = [] if first.test == DECIDED else [self.behind(first, result) for result in (True, False)]
            if ways and all(way.test == DECIDED for way in ways) and asked[first.test] == 1:
                found.append(OneTest(first.test, ways[0].followed, ways[1].followed))
            else:
                found.append(None)
        return found

    def _asked(self, edges: Sequence[Edge]) -> set[int]:
        """The tests with conditions that may be asked to follow some edges."""
        asked: set[int] = set()
        waiting = [number for edge in edges for number, _ in edge.tests]
        while waiting:
            number = waiting.pop()
            if self._table.tests[number].parts:
                asked.add(number)
            else:
                waiting += [joined for joined, _ in self._joined(number)]
        return asked

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


def _keeps_apart(edges: Sequence[Edge]) -> bool:
    """True if a partial match has a cell of its own behind these edges, whichever of them it follows together."""
    steps = [edge.step for edge in edges if edge.action is EdgeAction.TAKE]
    ignoring = sum(edge.action is EdgeAction.IGNORE for edge in edges)
    return len(set(steps)) == len(steps) and ignoring < 2 and all(edge.waits_in == NOWHERE for edge in edges)


def stays(edge: Edge, number: int) -> bool:
    """True if a partial match in state `number` is the same behind the edge."""
    return (
        edge.action is EdgeAction.IGNORE
        and edge.target == number
        and edge.waits_in == NOWHERE
        and not edge.accepts
    )
