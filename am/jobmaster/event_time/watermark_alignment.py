"""AlignmentGroup: the readers of one group of aligned sources, and how far each of them may read.

Owner: none; pure, without clock or I/O. The least event time of the group's active readers is common. Each reader may
be ahead of it by its own drift. Idle readers, and readers without splits, do not count, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.runtime.common.ids import ExecutionAttemptID


class AlignedReader(NamedTuple):
    """The last report of one reader."""

    #: Epoch ms; None = it does not count.
    reached: int | None
    max_drift_ms: int
    interval_ms: int


class AlignmentGroup:
    """The readers of one group, by attempt."""

    def __init__(self) -> None:
        self._readers: dict[ExecutionAttemptID, AlignedReader] = {}

    def take(self, attempt: ExecutionAttemptID, reader: AlignedReader) -> None:
        """Takes a report; the last one of an attempt counts."""
        self._readers[attempt] = reader

    def forget_ended(self, is_live: Callable[[ExecutionAttemptID], bool]) -> None:
        """Forgets the readers whose attempts have ended: they hold nobody back."""
        self._readers = {attempt: reader for attempt, reader in self._readers.items() if is_live(attempt)}

    @property
    def interval_ms(self) -> int | None:
        """The shortest interval that a reader asks for; None = the group has no readers."""
        return min((reader.interval_ms for reader in self._readers.values()), default=None)

    @property
    def least(self) -> int | None:
        """The least event time of the readers that count; None = none does."""
        return min((r.reached for r in self._readers.values() if r.reached is not None), default=None)

    def bounds(self) -> dict[ExecutionAttemptID, int]:
        """The bound of each reader: the least event time and the reader's drift; without one, nobody waits."""
        least = self.least
        if least is None:
            return dict.fromkeys(self._readers, MAX_TIMESTAMP)
        return {
            attempt: min(least + reader.max_drift_ms, MAX_TIMESTAMP)
            for attempt, reader in self._readers.items()
        }
