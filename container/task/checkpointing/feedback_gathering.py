"""FeedbackGathering: holds the part of a loop's head back until the barrier has been round the loop.

Owner: the task thread. The rows that came back until then are state of the head, which is frozen then. The state of
the other operators was frozen at the cut. Must not know channels.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot


class FeedbackGathering:
    """The parts of one task that wait for feedback, by checkpoint."""

    def __init__(
        self,
        chain: OperatorChain,
        deliver: Callable[[PendingSubtaskSnapshot], None],
        decline: Callable[[int, BaseException], None],
    ) -> None:
        self._chain = chain
        self._deliver = deliver
        self._decline = decline
        self._held: dict[int, PendingSubtaskSnapshot] = {}

    def hold(self, snapshot: PendingSubtaskSnapshot) -> None:
        """Takes a part without the head's state; delivers it when that is known."""
        self._held[snapshot.checkpoint_id] = snapshot
        self.proceed()

    def proceed(self) -> None:
        """Delivers the parts whose barriers have been round."""
        for number, snapshot in list(self._held.items()):
            if not self._chain.head.has_gathered(number):
                continue
            del self._held[number]
            try:
                snapshot.add_head(self._chain.snapshot_operator(0, number, snapshot.options))
            except Exception as error:
                _drop(snapshot)
                self._decline(number, error)
            else:
                self._deliver(snapshot)

    def drop(self, checkpoint_id: int | None = None) -> None:
        """Drops the part for a checkpoint; None = all."""
        for number in [n for n in self._held if checkpoint_id in (None, n)]:
            _drop(self._held.pop(number))


def _drop(snapshot: PendingSubtaskSnapshot) -> None:
    snapshot.discard()
    snapshot.settled()
