"""RelevantRows: which rows of a record batch may begin a match, or change one that has begun.

Owner: the task thread; pure. Results of conditions over columns are known. A function of a row or of a match may give
either result, so each test has two bounds. A row that lies between is relevant. Must not know keys, times or rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern_table import Edge, EdgeAction, PatternTable, RecordTest, Tests
from yarrow.cep.record_moves import stays
from yarrow.container.operators.columnar_pattern.column_conditions import Truths

#: Some of the rows: bool, shape (rows,).
Flags = npt.NDArray[np.bool_]


class _Bounds(NamedTuple):
    """What is known of a test for each row."""

    #: It holds, whatever the functions in it give.
    surely: Flags
    #: It may hold.
    perhaps: Flags


class _Ways(NamedTuple):
    """What a record may do to a partial match in a state."""

    #: Each of these changes it.
    changing: tuple[Tests, ...]
    #: Each of these leaves it as it is. A record without any way ends it.
    idle: tuple[Tests, ...]


class RelevantRows:
    """The rows of batches that may change the partial matches of one pattern."""

    def __init__(self, table: PatternTable, conditions: Sequence[ColumnCondition]) -> None:
        """`conditions`: those whose results are known, in the order of `Truths`."""
        self._tests = table.tests
        self._numbers = {id(condition): number for number, condition in enumerate(conditions)}
        self._begins = [edge.tests for edge in table.states[0].edges if edge.action is EdgeAction.TAKE]
        reached = {edge.target for state in table.states for edge in state.edges}
        reached |= {edge.waits_in for state in table.states for edge in state.edges}
        ways = {_ways(number, state.edges) for number, state in enumerate(table.states) if number in reached}
        #: None = each row may change some partial match.
        self._ways = None if any(not each.idle for each in ways) else tuple(ways)

    @property
    def all_go_on(self) -> bool:
        """True if each row may change a partial match, as with strict steps."""
        return self._ways is None

    def of(self, truths: Truths) -> tuple[Flags, Flags]:
        """The rows that may begin a match, and those that may change one: bool, shape (rows,) both."""
        return _Evaluation(self._tests, self._numbers, truths).relevant(self._begins, self._ways)


def _ways(number: int, edges: Sequence[Edge]) -> _Ways:
    # With a time limit an edge may be closed: the record would then end what it seems to leave as it is.
    idle = [edge for edge in edges if stays(edge, number) and edge.gap_ms is None]
    changing = dict.fromkeys(edge.tests for edge in edges if not stays(edge, number))
    return _Ways(tuple(changing), tuple(edge.tests for edge in idle))


class _Evaluation:
    """The bounds of all tests for one batch."""

    def __init__(self, tests: Sequence[RecordTest], numbers: dict[int, int], truths: Truths) -> None:
        self._tests = tests
        self._numbers = numbers
        self._truths = truths
        self._all = np.ones(len(truths), np.bool_)
        self._none = ~self._all
        self._bounds: dict[int, _Bounds] = {}
        self._joined: dict[Tests, _Bounds] = {}

    def relevant(self, begins: Sequence[Tests], ways: Sequence[_Ways] | None) -> tuple[Flags, Flags]:
        """The rows that may begin a match, and those that may change one: bool, shape (rows,) both."""
        beginning = self._none.copy()
        for tests in begins:
            beginning |= self._passing(tests).perhaps
        if ways is None:
            return beginning, self._all
        going_on = self._none.copy()
        for changing, idle in ways:
            for tests in changing:
                going_on |= self._passing(tests).perhaps
            left = self._none.copy()
            for tests in idle:
                left |= self._passing(tests).surely
            going_on |= ~left
        return beginning, going_on

    def _passing(self, tests: Tests) -> _Bounds:
        """The rows that pass all of the tests."""
        found = self._joined.get(tests)
        if found is None:
            surely, perhaps = self._all.copy(), self._all.copy()
            for number, needed in tests:
                bounds = self._bounds_of(number)
                surely &= bounds.surely if needed else ~bounds.perhaps
                perhaps &= bounds.perhaps if needed else ~bounds.surely
            found = self._joined[tests] = _Bounds(surely, perhaps)
        return found

    def _bounds_of(self, number: int) -> _Bounds:
        found = self._bounds.get(number)
        if found is None:
            test = self._tests[number]
            found = self._bounds[number] = (
                self._of_parts(test) if test.parts else self._passing(_joined_tests(test))
            )
        return found

    def _of_parts(self, test: RecordTest) -> _Bounds:
        surely = perhaps = self._all
        for at, (joined_by_or, condition) in enumerate(test.parts):
            column = self._numbers.get(id(condition))
            if column is None:
                least, most = self._none, self._all
            else:
                least = most = self._truths[:, column]
            if at and joined_by_or:
                surely, perhaps = surely | least, perhaps | most
            else:
                surely, perhaps = surely & least, perhaps & most
        return _Bounds(surely, perhaps)


def _joined_tests(test: RecordTest) -> Tests:
    """What a test without conditions asks of others."""
    taken: Tests = () if test.taken is None else ((test.taken, True),)
    return taken if test.unless is None else (*taken, (test.unless, False))
