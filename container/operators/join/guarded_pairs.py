"""GuardedPairs: calls the function of a join for pairs of rows, and leaves out a pair at which it fails, by `on_error`.

Owner: the task thread. Both rows of such a pair stay in the join, since others may meet them. Results leave only when
the function has finished the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yarrow.container.codegen.user_functions import results_of
from yarrow.container.operators.failed_records import FailedRecords
from yarrow.container.operators.join.pair_calls import PairContext, ProcessPair
from yarrow.datastream.connectors.dead_letters import PAIR_OF_INPUTS


class GuardedPairs:
    """The calls of one subtask."""

    def __init__(
        self, process: ProcessPair, failed: FailedRecords, copier: Callable[[Any], Any] | None
    ) -> None:
        """`copier` copies a result that could change; None = object reuse is on."""
        self._process = process
        self._failed = failed
        self._copier = copier

    def process(self, left: Any, right: Any, context: PairContext) -> Iterable[Any]:
        """The results of a pair; of one that fails its letter, if somebody reads letters."""
        failed, copier = self._failed, self._copier
        failed.seen[0] += 1
        try:
            # A generator may change an object after it has emitted it.
            made = results_of(self._process(left, right, context))
            return list(made) if copier is None else [copier(result) for result in made]
        except Exception as error:
            times = (context.left, context.right)
            found = failed.tagged_letters(error, PAIR_OF_INPUTS, (left, right), context.result)
            return [(tag, letter._replace(row_times=times)) for tag, letter in found]
