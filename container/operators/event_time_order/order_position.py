"""OrderPosition: how far the rows of a range of key groups have left in order of time, as it is stored and restored.

Owner: the task thread; pure. A row is late by what its own key group had come to, also when subtasks with other
watermarks share their key groups anew. Must not know state or rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import KeyGroupRange


class OrderPosition(NamedTuple):
    """The position of the subtask that has key groups `first` to `last`; stored as a tuple of 64-bit integers."""

    first: int
    last: int
    #: A row at or below it is late.
    watermark: int
    #: Time and number of the last row that has left: rows up to there may still be in state.
    taken_time: int
    taken_number: int
    #: The number of the next row that comes.
    next_number: int

    @property
    def taken(self) -> tuple[int, int]:
        """Time and number of the last row that has left."""
        return self.taken_time, self.taken_number


class RestoredPositions:
    """The positions of all subtasks that a subtask gets key groups from; none for a new job."""

    def __init__(self, stored: Iterable[tuple[int, ...]], own: KeyGroupRange) -> None:
        """`stored`: those of all subtasks. `own`: the key groups of the subtask that begins."""
        self._positions = [
            position
            for position in (OrderPosition(*each) for each in stored)
            if position.first <= own.end and own.start <= position.last
        ]

    @property
    def watermark(self) -> int:
        """Where event time begins: at the least watermark, so that no row is late that was not before."""
        return min((each.watermark for each in self._positions), default=MIN_TIMESTAMP)

    @property
    def last_watermark(self) -> int:
        """The greatest watermark: up to there rows of some key groups are late by `watermark_of`."""
        return max((each.watermark for each in self._positions), default=MIN_TIMESTAMP)

    @property
    def last_taken_time(self) -> int | None:
        """Rows behind that time have not left; None = none has left."""
        return max((each.taken_time for each in self._positions if each.taken_number >= 0), default=None)

    @property
    def next_number(self) -> int:
        """A number behind those of all rows in state."""
        return max((each.next_number for each in self._positions), default=0)

    def stored_at(self, position: OrderPosition) -> list[OrderPosition]:
        """What to store while the watermark has not passed those of all key groups: theirs first, then `position`."""
        return [
            position._replace(
                first=max(each.first, position.first),
                last=min(each.last, position.last),
                watermark=max(each.watermark, position.watermark),
            )
            for each in self._positions
            if each.first <= position.last and position.first <= each.last
        ] + [position]

    def watermark_of(self, key_group: int) -> int:
        """The watermark that a key group had come to."""
        position = self._of(key_group)
        return MIN_TIMESTAMP if position is None else position.watermark

    def has_left(self, key_group: int, time: int, number: int) -> bool:
        """Whether a row of a key group had left before it was restored."""
        position = self._of(key_group)
        return position is not None and (time, number) <= position.taken

    def _of(self, key_group: int) -> OrderPosition | None:
        return next((each for each in self._positions if each.first <= key_group <= each.last), None)


def stored_watermark(watermark: int) -> int:
    """The watermark to store.

    The greatest one says that the input has ended. A job that goes on from there begins event time anew.
    """
    return MIN_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark
