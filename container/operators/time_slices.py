"""TimeSlices: how windows of time are made of slices, so that each row is added once.

Owner: any thread; pure. Must not know state, keys or watermarks. A slice is as long as the greatest common step of a
window's size and slide. Windows of Flink are [start, end); all times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """The windows of one assigner, by their slices.

    Windows have `size` ms, and one starts every `slide` ms from `offset` on. `cumulative` windows of one start grow by
    `slide` ms up to `size`, and the next ones start there.
    """

    size: int
    slide: int
    offset: int = 0
    cumulative: bool = False

    @property
    def step(self) -> int:
        """The length of a slice in ms."""
        return gcd(self.size, self.slide)

    @property
    def is_single(self) -> bool:
        """True if each window is one slice."""
        return self.step == self.size

    @property
    def overlap(self) -> bool:
        """True if most slices of a window belong to the windows beside it as well."""
        return self.size > 2 * self.slide + (0 if self.cumulative else self.step)

    def block_of(self, time: int) -> int:
        """The start of the block that contains a time: blocks are as long as windows, from the offset on."""
        return time - (time - self.offset) % self.size

    def is_start(self, start: int) -> bool:
        """True if a window begins with the slice that has this start."""
        return not (start - self.offset) % (self.size if self.cumulative else self.slide)

    def slice_of(self, time: int) -> int:
        """The start of the slice that contains a time."""
        return time - (time - self.offset) % self.step

    def last_end(self, time: int) -> int:
        """The end of the last window that ends at a time or before."""
        return time - (time - self.offset - self.size) % self.slide

    def ends_of(self, start: int) -> Sequence[int]:
        """The ends of the windows that contain the slice with this start, ascending; none in a gap between windows."""
        if self.cumulative:
            first = start - (start - self.offset) % self.size
            return range(start + self.slide, first + self.size + 1, self.slide)
        # The last window that contains the slice has the latest start that is not behind the slice.
        latest = start - (start - self.offset) % self.slide
        behind = start + self.step - self.size
        earliest = latest - (latest - behind) // self.slide * self.slide
        return range(earliest + self.size, latest + self.size + 1, self.slide)

    def start_of(self, end: int) -> int:
        """The start of the window with this end."""
        if self.cumulative:
            return end - 1 - (end - 1 - self.offset) % self.size
        return end - self.size

    def slices_of(self, end: int) -> Iterator[int]:
        """The starts of the slices of the window with this end, ascending."""
        return iter(range(self.start_of(end), end, self.step))
