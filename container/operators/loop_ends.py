"""LoopEnd and LoopAccess: what tasks see of the ends of loops, and what these get from their worker.

Owner: none (interfaces).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from yarrow.runtime.data.elements import LoopMarker

if TYPE_CHECKING:
    from yarrow.container.network.feedback.feedback_channel import FeedbackChannel


class LoopEnd(Protocol):
    """The tail of a loop."""

    @property
    def closes_loop(self) -> int:
        """The number of its loop."""
        ...

    def return_marker(self, marker: LoopMarker) -> None:
        """Sends a marker back to the head, behind all rows."""
        ...


class LoopMarkerSender(Protocol):
    """Sends the markers of a head's loop."""

    @property
    def quiet_rounds(self) -> int:
        """Rounds in a row without feedback behind which the loop is over."""
        ...

    def send(self, marker: LoopMarker) -> None:
        """Sends a marker behind everything that was emitted so far."""
        ...


class LoopAccess(Protocol):
    """The feedback channels of a subtask."""

    def acquire(self, loop: int) -> FeedbackChannel:
        """The channel of a loop, for its head or its tail in this subtask. `release` it once."""
        ...

    def release(self, loop: int) -> None:
        """Gives the channel back."""
        ...


class NoLoops:
    """The LoopAccess of a task that belongs to no loop."""

    def acquire(self, loop: int) -> FeedbackChannel:
        """Raises LookupError."""
        raise LookupError(f"the task belongs to no loop {loop}")

    def release(self, loop: int) -> None:
        """Raises LookupError."""
        raise LookupError(f"the task belongs to no loop {loop}")
