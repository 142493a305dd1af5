"""How much one slice of a task does: its clock and length, the rows of a chunk, and the mails that cut it short.

Owner: the task thread; mails may be put and chunks cut by any. The task and the parts that run its rows share one
TaskSlices. It must not know what the rows are.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.container.task.mails import ChunkAtHand, Mailbox
from yarrow.container.task.slice_sizer import SliceSizer
from yarrow.runtime.common.clock import perf_counter


class TaskSlices:
    """What bounds the slices of one task; `length` is in seconds."""

    def __init__(self, length: float) -> None:
        self.length = length
        #: Reads the clock by which slices are measured; a test may drive it by hand.
        self.seconds: Callable[[], float] = perf_counter
        #: How many rows a chunk has.
        self.sizer = SliceSizer(length)
        #: The rows that a generated loop works on.
        self.chunk = ChunkAtHand()
        self.mailbox = Mailbox(self.chunk)
        #: True while outputs lack credit: until it comes there is nothing to do.
        self.blocked = False

    def over(self, deadline: float) -> bool:
        """Whether a slice that ends at `deadline` ends now: its time is over, or a mail waits."""
        return len(self.mailbox) > 0 or self.seconds() >= deadline
