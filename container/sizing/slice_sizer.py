"""SliceSizer: the number of rows of a chunk or a poll, from the measured cost of calls, so that slices keep their time.

Pure: takes rows and seconds, returns rows. It follows a function that becomes slower, chunk by chunk. A call
may have a fixed cost (a request, a query). Fewer rows would not make such a call shorter, and more rows make
each cheaper.
"""

from __future__ import annotations

from yarrow.container.sizing.call_cost import ROWS_PER_FIXED_COST, CallCost, Trials

#: Chunks in a slice: one chunk aims at this share of the slice time, so that the clock is read a few times.
_CHUNKS_PER_SLICE = 4
#: More rows than fit into a cache gain nothing.
MAX_CHUNK_ROWS = 2048
#: If state is read for a whole chunk at once, a chunk aims at this many slices. The fixed costs of a read, a
#: write and a chunk then spread over hundreds of rows instead of tens. A mail still cuts the chunk at its
#: row, and waits for at most one such read or write.
_SLICES_PER_READ = 2
#: Most rows of such a chunk: as many as a database write has entries.
MAX_ROWS_PER_READ = 1024
#: State that is read in advance of its chunks aims at this many slices. Nothing cuts such a read, and the
#: more keys are sorted together, the cheaper is each.
_SLICES_AHEAD = 4
#: Most rows of such a read.
_MAX_ROWS_AHEAD = 4096
#: A record batch is cut if its rows would take longer than this many slices. It is never cut to fit a cache,
#: because its columns are processed as wholes.
_SLICES_PER_BATCH = 1
_MAX_ROWS_PER_BATCH = 1 << 20
#: Largest factor between two consecutive chunks. A thread that lost its core within a chunk measures twenty
#: times the cost. Without this limit, a busy machine would see only tiny chunks, and batched reads of state
#: would have nothing to batch. A function that did become slower is followed within a third more time.
_CHANGE = 4
#: Least rows that a source is asked for: the cost of a poll says nothing about a row.
MIN_POLL_ROWS = 256
#: A source of record batches is asked for as many rows as it gives within this many slices. Reading a block
#: of a file takes longer than one slice, and asking for fewer rows would not make it shorter.
_SLICES_PER_BATCH_POLL = 4
#: Largest growth of a chunk for the sake of a fixed cost, because the estimate may be wrong.
_GUESSED_CHANGE = 2


class SliceSizer:
    """The chunk size of one task."""

    def __init__(self, slice_seconds: float, max_rows: int = MAX_CHUNK_ROWS) -> None:
        self._target = slice_seconds / _CHUNKS_PER_SLICE
        self._max_rows = max_rows
        #: The measured cost of chunks.
        self.cost = CallCost()
        self._trials = Trials()
        #: Rows of the next chunk; the first has one row, because the function's cost is unknown.
        self.rows = 1

    @classmethod
    def of_reads(cls, slice_seconds: float) -> SliceSizer:
        """A sizer for rows whose state is read at once; `measured` gets the time of the reads alone."""
        return cls(slice_seconds * _CHUNKS_PER_SLICE * _SLICES_AHEAD, _MAX_ROWS_AHEAD)

    @classmethod
    def of_batches(cls, slice_seconds: float) -> SliceSizer:
        """A sizer for the parts of a source's record batches."""
        return cls(slice_seconds * _CHUNKS_PER_SLICE * _SLICES_PER_BATCH, _MAX_ROWS_PER_BATCH)

    def measured(self, rows: int, seconds: float) -> None:
        """Takes a measurement: a chunk of `rows` took `seconds`."""
        if rows <= 0:
            return
        self.cost.measured(rows, seconds)
        wanted = self._max_rows if seconds <= 0 else int(self._target * rows / seconds)
        if wanted < self._max_rows:
            wanted = max(wanted, int(min(self.cost.rows_worth(), self.rows * _GUESSED_CHANGE)))
            if self.rows // 2 < max(wanted, 1) <= self.rows and self._trials.due():
                wanted = self.rows * 2
        self.rows = max(1, self.rows // _CHANGE, min(wanted, self.rows * _CHANGE, self._max_rows))

    def read_ahead(self) -> None:
        """Makes chunks larger, because state is read for a whole chunk at once. Called once, before the first."""
        self._target *= _CHUNKS_PER_SLICE * _SLICES_PER_READ
        self._max_rows = min(self._max_rows, MAX_ROWS_PER_READ)


class PollSizer:
    """The number of rows that a source is asked for: a chunk, and more if a poll has a fixed cost.

    `blocking`: no other task waits for the thread, so polls are as large as possible.
    """

    def __init__(self, slice_seconds: float, *, blocking: bool) -> None:
        self._slice_seconds = slice_seconds
        self._min_rows = MAX_CHUNK_ROWS if blocking else MIN_POLL_ROWS
        self._cost = CallCost()
        self._trials = Trials()
        #: Rows of the next poll.
        self.rows = self._min_rows
        #: Rows of the largest record batch that a poll gives in time.
        self.batch_rows = self._min_rows

    def measured(self, rows: int, seconds: float, chunk: SliceSizer) -> None:
        """Takes a measurement: a poll gave `rows` in `seconds`. `chunk` knows their cost behind the source."""
        if rows <= 0:
            return
        self._cost.measured(rows, seconds)
        run_seconds = chunk.cost.row or 0.0
        in_time = _MAX_ROWS_PER_BATCH if seconds <= 0 else int(self._slice_seconds * rows / seconds)
        self.batch_rows = in_time * _SLICES_PER_BATCH_POLL
        worth = int(min(self._cost.rows_worth(run_seconds), self.rows * _GUESSED_CHANGE))
        wanted = max(min(chunk.rows, in_time), worth)
        weighs = seconds * ROWS_PER_FIXED_COST > run_seconds * rows
        if weighs and wanted <= self.rows and self._trials.due():
            wanted = self.rows * 2
        self.rows = max(self._min_rows, min(wanted, self.rows * _CHANGE, MAX_CHUNK_ROWS))
