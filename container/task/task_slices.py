"""TaskSlices: the limits of one task's slices: clock, length, rows of a chunk, and mails that cut it short.

Owner: the task thread; any thread may put mails and cut chunks. The task and the parts that run its rows
share one TaskSlices. It must not know the content of rows.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.container.sizing.slice_sizer import SliceSizer
from yarrow.container.task.mails import ChunkAtHand, Mailbox
from yarrow.runtime.common.clock import perf_counter


class TaskSlices:
    """The limits of one task's slices; `length` is in seconds."""

    def __init__(self, length: float) -> None:
        self.length = length
        #: The clock of slices, in seconds; a test may replace it.
        self.seconds: Callable[[], float] = perf_counter
        #: Number of rows of a chunk.
        self.sizer = SliceSizer(length)
        #: The rows on which a generated loop works.
        self.chunk = ChunkAtHand()
        self.mailbox = Mailbox(self.chunk)
        #: True while outputs lack credit: until it comes there is no work.
        self.blocked = False

    def over(self, deadline: float) -> bool:
        """Whether a slice that ends at `deadline` ends now: its time is over, or a mail waits."""
        return len(self.mailbox) > 0 or self.seconds() >= deadline
