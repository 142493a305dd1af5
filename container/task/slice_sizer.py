"""How many rows a chunk or a poll has, from the measured cost of calls, so that a slice keeps to its time.

Pure: told rows and seconds, answers rows. A function that has become slow is followed chunk by chunk. A call may cost
something however many rows it has (a request, a query): fewer rows would not make it shorter, more make each cheaper.
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
#: A record batch is cut where its rows would take longer than a slice, and never for the cache's sake: its columns are
#: worked on as wholes.
_SLICES_PER_BATCH = 1
_MAX_ROWS_PER_BATCH = 1 << 20
#: How much longer or shorter the next chunk may be at most. A thread that lost its core within a chunk measures twenty
#: times the cost: were the next chunks so much shorter, a busy machine would see tiny chunks only, and batched reads
#: of state nothing worth batching. A function that did become slower is followed within a third more time.
_CHANGE = 4
#: A source is asked for so many rows at least: what its poll costs says nothing about a row.
MIN_POLL_ROWS = 256
#: A source that gives record batches is asked for as many rows as it gives within so many slices: reading a block of a
#: file takes longer than one, and asking for fewer rows would not make it shorter.
_SLICES_PER_BATCH_POLL = 4
#: Rows are asked for until the fixed cost of a call is a tenth of the whole.
_ROWS_PER_FIXED_COST = 9
#: How much larger the next chunk may be for the sake of a fixed cost: the guess may be wrong.
_GUESSED_CHANGE = 2
#: Where all chunks have the same size, nothing tells a fixed cost from that of rows: behind the first, and then behind
#: one in so many, comes one of twice the rows. Each time there are twice as many between two, up to a limit.
_CHUNKS_PER_TRIAL = 32
_MAX_CHUNKS_PER_TRIAL = 1024
#: Weight of all former calls against the present one.
_MEMORY = 0.875
#: A call that took so many times what was expected is no noise: what was learned before does not hold.
_SURPRISE = 4


class CallCost:
    """What a call costs, as fixed + row x rows: least squares over the last calls."""

    def __init__(self) -> None:
        #: Seconds of a call without rows.
        self.fixed = 0.0
        #: Seconds of each row; None before the first call.
        self.row: float | None = None
        self._calls = self._rows = self._seconds = self._squares = self._products = 0.0

    def measured(self, rows: int, seconds: float) -> None:
        """A call with `rows`, more than none, took `seconds`."""
        if self.row is not None and seconds > _SURPRISE * (self.fixed + self.row * rows):
            self._calls = self._rows = self._seconds = self._squares = self._products = 0.0
            self.row = None
        self._calls = self._calls * _MEMORY + 1
        self._rows = self._rows * _MEMORY + rows
        self._seconds = self._seconds * _MEMORY + seconds
        self._squares = self._squares * _MEMORY + rows * rows
        self._products = self._products * _MEMORY + rows * seconds
        mean_rows, mean_seconds = self._rows / self._calls, self._seconds / self._calls
        variance = max(0.0, self._squares / self._calls - mean_rows * mean_rows)
        covariance = self._products / self._calls - mean_rows * mean_seconds
        # Calls of one size say nothing of the slope: it stays as it was, and all is the rows' until something is known.
        inertia = (mean_rows / 8) ** 2
        former = mean_seconds / mean_rows if self.row is None else self.row
        slope = (covariance + inertia * former) / (variance + inertia)
        self.row = max(0.0, min(slope, seconds / rows, mean_seconds / mean_rows))
        self.fixed = max(0.0, mean_seconds - self.row * mean_rows)

    def rows_worth(self, more_seconds: float = 0.0) -> float:
        """Rows over which the fixed cost is spread well; `more_seconds` is what a row costs beside the call."""
        if self.fixed <= 0:
            return 0.0
        row = (self.row or 0.0) + more_seconds
        return _ROWS_PER_FIXED_COST * self.fixed / row if row > 0 else float("inf")


class SliceSizer:
    """The chunk size of one task."""

    def __init__(self, slice_seconds: float, max_rows: int = MAX_CHUNK_ROWS) -> None:
        self._target = slice_seconds / _CHUNKS_PER_SLICE
        self._max_rows = max_rows
        #: What chunks have cost.
        self.cost = CallCost()
        self._trials = _Trials()
        #: Rows of the next chunk; one row first, since nothing is known of the function.
        self.rows = 1

    @classmethod
    def of_reads(cls, slice_seconds: float) -> SliceSizer:
        """For the rows that state is read for at once; `measured` is told what the reads alone took."""
        return cls(slice_seconds * _CHUNKS_PER_SLICE * _SLICES_AHEAD, _MAX_ROWS_AHEAD)

    @classmethod
    def of_batches(cls, slice_seconds: float) -> SliceSizer:
        """For the parts of a source's record batches."""
        return cls(slice_seconds * _CHUNKS_PER_SLICE * _SLICES_PER_BATCH, _MAX_ROWS_PER_BATCH)

    def measured(self, rows: int, seconds: float) -> None:
        """A chunk of `rows` took `seconds`."""
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
        """State is read for a chunk at once: chunks become larger. Called once, before the first."""
        self._target *= _CHUNKS_PER_SLICE * _SLICES_PER_READ
        self._max_rows = min(self._max_rows, MAX_ROWS_PER_READ)


class PollSizer:
    """How many rows a source is asked for: as many as a chunk has, and more where a poll costs something by itself.

    `blocking`: nobody else waits for the thread, so that every poll is as large as can be.
    """

    def __init__(self, slice_seconds: float, *, blocking: bool) -> None:
        self._slice_seconds = slice_seconds
        self._min_rows = MAX_CHUNK_ROWS if blocking else MIN_POLL_ROWS
        self._cost = CallCost()
        self._trials = _Trials()
        #: Rows of the next poll.
        self.rows = self._min_rows
        #: Rows of the largest record batch that a poll gives in time.
        self.batch_rows = self._min_rows

    def measured(self, rows: int, seconds: float, chunk: SliceSizer) -> None:
        """A poll gave `rows` and took `seconds`; `chunk` knows what they cost behind the source."""
        if rows <= 0:
            return
        self._cost.measured(rows, seconds)
        run_seconds = chunk.cost.row or 0.0
        in_time = _MAX_ROWS_PER_BATCH if seconds <= 0 else int(self._slice_seconds * rows / seconds)
        self.batch_rows = in_time * _SLICES_PER_BATCH_POLL
        worth = int(min(self._cost.rows_worth(run_seconds), self.rows * _GUESSED_CHANGE))
        wanted = max(min(chunk.rows, in_time), worth)
        weighs = seconds * _ROWS_PER_FIXED_COST > run_seconds * rows
        if weighs and wanted <= self.rows and self._trials.due():
            wanted = self.rows * 2
        self.rows = max(self._min_rows, min(wanted, self.rows * _CHANGE, MAX_CHUNK_ROWS))


class _Trials:
    """Says when calls of one size are followed by a larger one, to see what that costs."""

    def __init__(self) -> None:
        self._left = 1
        self._pause = _CHUNKS_PER_TRIAL

    def due(self) -> bool:
        """Another call had the size of the one before."""
        self._left -= 1
        if self._left:
            return False
        self._left = self._pause
        self._pause = min(2 * self._pause, _MAX_CHUNKS_PER_TRIAL)
        return True
