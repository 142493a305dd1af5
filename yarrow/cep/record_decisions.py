"""RecordDecisions: what a record does to the partial matches of a key, state by state.

Owner: the task thread, or the caller of `match`; pure. Partial matches in one state do the same with a record. Only for
patterns that `RecordMoves` describes. Must not know partial matches beyond their states, or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yarrow.cep.partial_matches import Run
from yarrow.cep.pattern_table import PatternTable
from yarrow.cep.record_moves import DECIDED, Followed, RecordMoves

#: A test of a record alone.
Call = Callable[[Any], bool]


class RecordDecisions:
    """Asks the tests of one pattern about a record, each of them once."""

    def __init__(self, table: PatternTable, calls: Sequence[Call]) -> None:
        """`calls`: the tests of the table by number."""
        self._moves = moves = RecordMoves(table)
        self._calls = calls
        #: See `RecordMoves.by_one_test`.
        self.moves = moves.by_one_test()
        #: By state: the test that alone decides there, and what follows where it holds and where it fails.
        self._by_one_test = [
            None if one is None else (calls[one.test], one.holds, one.fails) for one in self.moves
        ]
        #: No two partial matches ever have the same last cell.
        self.keeps_apart = moves.keeps_apart

    def on(self, runs: Sequence[Run], record: Any) -> tuple[dict[int, Followed] | None, Followed]:
        """What follows for the runs by their state, None if no run changes, and for the beginning of a match."""
        results: dict[int, bool] = {}
        by_state: dict[int, Followed] = {}
        is_idle, by_one_test = True, self._by_one_test
        for run in runs:
            state = run[0]
            if state not in by_state:
                one = by_one_test[state]
                if one is None:
                    followed = self._followed(state, record, results)
                else:
                    followed = one[1] if one[0](record) else one[2]
                by_state[state] = followed
                if followed is not None:
                    is_idle = False
        one = by_one_test[0]
        begins = self._followed(0, record, results) if one is None else one[1] if one[0](record) else one[2]
        return None if is_idle else by_state, begins

    def _followed(self, state: int, record: Any, results: dict[int, bool]) -> Followed:
        """What a record does in a state. `results`: what the tests said of the record so far, which grows here."""
        moves = self._moves
        decision = moves.first[state]
        while (test := decision.test) != DECIDED:
            result = results.get(test)
            if result is None:
                result = results[test] = bool(self._calls[test](record))
            decision = decision.behind[result] or moves.behind(decision, result)
        return decision.followed
