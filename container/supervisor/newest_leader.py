"""NewestLeader: follows the ResourceManager's leader for a TaskExecutor, and ignores outdated leaders.

Owner: the TaskExecutor's loop. Must not know how leaders are found, nor what a TaskExecutor does with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from yarrow.runtime.ha.services import epoch_of_token
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderListener, LeaderRetrieval

_log = logging.getLogger(__name__)


class NewestLeader:
    """A LeaderRetrieval for one listener that leaves out leaders with an older epoch than a known one."""

    def __init__(self, retrieval: LeaderRetrieval, on_epoch: Callable[[int], None]) -> None:
        """`on_epoch` is called when a newer epoch has begun, before any listener hears of its leader."""
        self._retrieval = retrieval
        self._on_epoch = on_epoch
        self._listener: LeaderListener | None = None
        #: The highest known epoch; 0 = none.
        self.epoch = 0

    def start(self, listener: LeaderListener) -> None:
        """See LeaderRetrieval."""
        self._listener = listener
        self._retrieval.start(self._announced)

    def stop(self, listener: LeaderListener) -> None:
        """See LeaderRetrieval."""
        self._listener = None
        self._retrieval.stop(self._announced)

    def _announced(self, leader: LeaderInformation | None) -> None:
        if leader is not None:
            epoch = epoch_of_token(leader.leader_id)
            if epoch < self.epoch:
                _log.warning(
                    "the TaskExecutor ignores the ResourceManager %s of epoch %d: epoch %d has begun",
                    leader.address,
                    epoch,
                    self.epoch,
                )
                return
            if epoch > self.epoch:
                self.epoch = epoch
                self._on_epoch(epoch)
        if self._listener is not None:
            self._listener(leader)
