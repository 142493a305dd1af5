"""PossibleStates: for which steps the partial matches of a key may wait, as rows tell by their results alone.

Owner: the task thread; pure. It never says less than the matcher would find. A state that was reached counts as
possible from then on: neither time nor the end of a partial match takes it away. Only for patterns whose tests are all
known from results over columns. Must not know rows, keys or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from yarrow.cep.pattern_table import NOWHERE, Edge, EdgeAction
from yarrow.cep.record_moves import stays

#: The edges of a state, each with the numbers of results that pass it: bool, shape (numbers,).
StateEdges = Sequence[tuple[Edge, npt.NDArray[np.bool_]]]


class StatesBehind(NamedTuple):
    """What a row may make of the partial matches of a key."""

    #: The states that are possible behind it, one bit each. State 0, the beginning, always is and has no bit.
    states: int
    #: It may change a partial match, or begin one.
    changes: bool
    #: It may make a match complete.
    completes: bool


class PossibleStates:
    """The steps of one pattern, each worked out once."""

    def __init__(self, states: Sequence[StateEdges]) -> None:
        self._edges = states
        #: By the states before a row and the number of its results.
        self._steps: dict[tuple[int, int], StatesBehind] = {}

    def step(self, states: int, results: int) -> StatesBehind:
        """What a row with these results, as a number of bits, may do where these states are possible."""
        found = self._steps.get((states, results))
        if found is None:
            found = self._steps[states, results] = self._step(states, results)
        return found

    def _step(self, states: int, results: int) -> StatesBehind:
        behind, changes, completes = states, False, False
        for state, edges in enumerate(self._edges):
            if state and not states >> state & 1:
                continue
            passed = [
                edge
                for edge, numbers in edges
                if numbers[results] and (state or edge.action is EdgeAction.TAKE)
            ]
            for edge in passed:
                completes |= edge.accepts
                for target in (edge.target, edge.waits_in):
                    if target != NOWHERE:
                        behind |= 1 << target
            # A row that passes no edge ends a partial match.
            changes |= any(not stays(edge, state) for edge in passed) if passed else state > 0
        return StatesBehind(behind, changes, completes)
