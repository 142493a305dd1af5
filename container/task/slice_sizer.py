"""How many rows a chunk has, from the measured cost of a row, so that a slice keeps to its time.

Pure: told rows and seconds, answers rows. A function that has become slow is followed chunk by chunk.
"""

from __future__ import annotations

#: Share of the slice time that one chunk aims at: the clock is read a few times a slice.
_CHUNKS_PER_SLICE = 4
#: More rows than a cache holds gain nothing.
MAX_CHUNK_ROWS = 2048
#: Where state is read for a chunk at once, a chunk aims at this many slices: what a read, a write and a chunk cost by
#: themselves is spread over hundreds of rows instead of tens. A mail cuts the chunk at its row all the same, and waits
#: for one such read or write at most.
_SLICES_PER_READ = 2
#: And has as many rows at most as a write to a database has entries.
MAX_ROWS_PER_READ = 1024
#: Rows that state is read for at once, in advance of their chunks, aim at so many slices: nothing cuts such a read, and
#: the more keys are sorted together the cheaper each is.
_SLICES_AHEAD = 4
#: And so many rows at most.
_MAX_ROWS_AHEAD = 4096
#: How much longer or shorter the next chunk may be at most. A thread that lost its core within a chunk measures twenty
#: times the cost: were the next chunks so much shorter, a busy machine would see tiny chunks only, and batched reads
#: of state nothing worth batching. A function that did become slower is followed within a third more time.
_CHANGE = 4


class SliceSizer:
    """The chunk size of one task."""

    def __init__(self, slice_seconds: float, max_rows: int = MAX_CHUNK_ROWS) -> None:
        self._target = slice_seconds / _CHUNKS_PER_SLICE
        self._max_rows = max_rows
        #: Rows of the next chunk; one row first, since nothing is known of the function.
        self.rows = 1

    @classmethod
    def of_reads(cls, slice_seconds: float) -> SliceSizer:
        """For the rows that state is read for at once; `measured` is told what the reads alone took."""
        return cls(slice_seconds * _CHUNKS_PER_SLICE * _SLICES_AHEAD, _MAX_ROWS_AHEAD)

    def measured(self, rows: int, seconds: float) -> None:
        """A chunk of `rows` took `seconds`."""
        if rows <= 0:
            return
        wanted = self._max_rows if seconds <= 0 else int(self._target * rows / seconds)
        self.rows = max(1, self.rows // _CHANGE, min(wanted, self.rows * _CHANGE, self._max_rows))

    def read_ahead(self) -> None:
        """State is read for a chunk at once: chunks become larger. Called once, before the first."""
        self._target *= _CHUNKS_PER_SLICE * _SLICES_PER_READ
        self._max_rows = min(self._max_rows, MAX_ROWS_PER_READ)
