"""RelevantRows: which rows of a record batch may begin a match, or change one that has begun.

Owner: the task thread; pure. Results of conditions over columns are known. A function of a row or of a match may give
either result, so each test has two bounds. A row that lies between is relevant. Must not know keys, times or rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern_table import Edge, EdgeAction, PatternTable, RecordTest, Tests
from yarrow.cep.record_moves import stays
from yarrow.container.operators.columnar_pattern.column_conditions import Truths
from yarrow.container.operators.columnar_pattern.possible_states import PossibleStates

Integer = TypeVar("Integer", bound=np.integer[Any])

#: Some of the rows: bool, shape (rows,).
Flags = npt.NDArray[np.bool_]
#: What each row may do: bool, shape (rows, 2), with the columns BEGINS and GOES_ON.
Marks = npt.NDArray[np.bool_]
#: The row may begin a match; it may change a partial match.
BEGINS: Final = 0
GOES_ON: Final = 1
#: With so many conditions the marks of all results are worked out in advance.
_FEW: Final = 8


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
        self._states = table.states
        reached = {edge.target for state in table.states for edge in state.edges}
        reached |= {edge.waits_in for state in table.states for edge in state.edges}
        ways = {_ways(number, state.edges) for number, state in enumerate(table.states) if number in reached}
        #: None = each row may change some partial match.
        self._ways = None if any(not each.idle for each in ways) else tuple(ways)
        #: The marks by the results of a row, read as a number of bits.
        self._known: Marks | None = None
        if len(conditions) <= _FEW:
            self._known = self._marks(_all_results(len(conditions)))

    @property
    def all_go_on(self) -> bool:
        """True if each row may change a partial match, as with strict steps."""
        return self._ways is None

    def of(self, truths: Truths) -> Marks:
        """What each row may do: bool, shape (rows, 2); see Marks."""
        return self._marks(truths) if self._known is None else self._known[bits_of(truths, np.uint8)]

    def that_matter(self, truths: Truths) -> Flags:
        """The rows that may begin a match or change one: bool, shape (rows,)."""
        if self._known is None:
            marks = self._marks(truths)
            return marks[:, BEGINS] | marks[:, GOES_ON]
        return (self._known[:, BEGINS] | self._known[:, GOES_ON])[bits_of(truths, np.uint8)]

    def possible_states(self) -> PossibleStates | None:
        """What the results of rows tell of a key's partial matches; None if there are many conditions."""
        if self._known is None:
            return None
        evaluation = _Evaluation(self._tests, self._numbers, _all_results(len(self._numbers)))
        return PossibleStates(
            [[(edge, evaluation.perhaps([edge.tests])) for edge in state.edges] for state in self._states]
        )

    def _marks(self, truths: Truths) -> Marks:
        evaluation = _Evaluation(self._tests, self._numbers, truths)
        begins, goes_on = evaluation.relevant(self._begins, self._ways)
        return np.column_stack([begins, goes_on])


def _all_results(conditions: int) -> Truths:
    """Each possible result of so many conditions, at the place of its number; see `bits_of`."""
    found: Truths = (np.arange(1 << conditions)[:, None] >> np.arange(conditions)) & 1 != 0
    return found


def bits_of(truths: Truths, dtype: type[Integer]) -> npt.NDArray[Integer]:
    """The results of conditions as a number, the first one as its lowest bit: `dtype`, shape (rows,).

    `dtype` must have a bit for each condition.
    """
    bits = np.zeros(len(truths), dtype)
    for number in range(truths.shape[1]):
        bits |= truths[:, number].astype(dtype) << dtype(number)
    return bits


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
        beginning = self.perhaps(begins)
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

    def perhaps(self, ways: Sequence[Tests]) -> Flags:
        """The rows that may pass one of the ways: bool, shape (rows,)."""
        found = self._none.copy()
        for tests in ways:
            found |= self._passing(tests).perhaps
        return found

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
