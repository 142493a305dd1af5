"""SortedRuns: the rows of one side of a columnar join, in runs of record batches sorted by slot and time.

Owner: the task thread; a frozen copy may be read by another. A batch becomes a run. Some runs of similar size become
one, so there are few. No Python object is made of a row. Must not know keys, watermarks or which rows meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar_join.row_words import Numbers, RowWords
from yarrow.runtime.data.column_rows import rows_of_batch, rows_where

#: Some of the rows: bool, shape (rows,).
Flags = npt.NDArray[np.bool_]
#: What a join notes of each row, such as whether it has met one: shape (rows,).
Marks = npt.NDArray[Any]
#: Most pairs that are found at once, so that a frequent key takes no more memory.
MOST_PAIRS: Final = 65_536
#: So many runs of similar size become one. A row is copied each time, and with fewer runs each search is shorter.
_SIMILAR: Final = 4


class SortedRun(NamedTuple):
    """Rows sorted by their words."""

    words: Numbers
    rows: pa.RecordBatch
    #: They change in place.
    marks: Marks
    first_time: int
    last_time: int

    @classmethod
    def of(cls, ordering: RowWords, words: Numbers, rows: pa.RecordBatch, marks: Marks) -> Self:
        """A run of rows in any order; equal words stand as they are.

        words: int64, marks: those of the side; shape (rows,) both.
        """
        order = np.argsort(words, kind="stable")
        return cls._of_sorted(ordering, words[order], rows_of_batch(rows, pa.array(order)), marks[order])

    @classmethod
    def _of_sorted(cls, ordering: RowWords, words: Numbers, rows: pa.RecordBatch, marks: Marks) -> Self:
        times = ordering.times(words)
        return cls(words, rows, marks, int(times.min()), int(times.max()))

    def chosen(self, ordering: RowWords, mask: Flags) -> Self | None:
        """The rows of a mask, bool, shape (rows,); None if there are none."""
        if not mask.any():
            return None
        rows = rows_where(self.rows, pa.array(mask))
        return self._of_sorted(ordering, self.words[mask], rows, self.marks[mask])

    def meeting(self, first: Numbers, last: Numbers) -> Iterator[MeetingRows]:
        """The rows between two words, both included, for each row of a batch: int64, shape (rows,) each.

        It is faster for words that rise, and for one array that is both.
        """
        words = self.words
        low = np.searchsorted(words, first, side="left")
        if last is first:
            # Most rows meet none, and need no second search.
            meeting = np.flatnonzero(words[np.minimum(low, len(words) - 1)] == first)
            high = np.searchsorted(words, last[meeting], side="right")
        else:
            high = np.searchsorted(words, last, side="right")
            meeting = np.flatnonzero(high > low)
            high = high[meeting]
        low = low[meeting]
        number = high - low
        ends = np.cumsum(number)
        total = int(ends[-1]) if len(ends) else 0
        if total == len(meeting):
            for start in range(0, total, MOST_PAIRS):
                part = slice(start, start + MOST_PAIRS)
                yield MeetingRows(meeting[part], self, low[part])
            return
        shift = low - (ends - number)
        for start in range(0, total, MOST_PAIRS):
            pairs = np.arange(start, min(start + MOST_PAIRS, total))
            own = np.searchsorted(ends, pairs, side="right")
            yield MeetingRows(meeting[own], self, pairs + shift[own])

    def at(self, ordering: RowWords, places: Numbers) -> Self:
        """The rows at some places, of which there is one at least: int64, shape (rows,), ascending."""
        rows = rows_of_batch(self.rows, pa.array(places))
        return self._of_sorted(ordering, self.words[places], rows, self.marks[places])

    def split(self, ordering: RowWords, at: int) -> tuple[Self, Self]:
        """The rows before a place and those from there on, which are no copies; there are rows on both sides."""
        return self._part(ordering, 0, at), self._part(ordering, at, len(self.words))

    def _part(self, ordering: RowWords, start: int, end: int) -> Self:
        part = slice(start, end)
        return self._of_sorted(
            ordering, self.words[part], self.rows.slice(start, end - start), self.marks[part]
        )


class MeetingRows(NamedTuple):
    """Rows of a batch, and rows of a run that they meet: positions, int64, shape (pairs,)."""

    own: Numbers
    run: SortedRun
    other: Numbers


class SortedRuns:
    """The rows of one side."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.runs: list[SortedRun] = []

    @property
    def size(self) -> int:
        """Number of rows. Any thread."""
        return sum(len(run.words) for run in list(self.runs))

    @property
    def bytes(self) -> int:
        """Bytes of their columns, words and marks. Any thread."""
        return sum(run.rows.nbytes + run.words.nbytes + run.marks.nbytes for run in list(self.runs))

    @property
    def oldest(self) -> int | None:
        """The time of the oldest row; None without rows. Any thread."""
        return min((run.first_time for run in list(self.runs)), default=None)

    def add(self, ordering: RowWords, words: Numbers, rows: pa.RecordBatch, marks: Marks) -> None:
        """Adds rows in any order. words: int64, marks: those of the side; shape (rows,) both."""
        if not len(words):
            return
        self.append(ordering, SortedRun.of(ordering, words, rows, marks))

    def append(self, ordering: RowWords, run: SortedRun) -> None:
        """Adds the rows of a run, which is not used any more."""
        runs = self.runs
        runs.append(run)
        while len(runs) >= _SIMILAR and len(runs[-_SIMILAR].words) < 2 * len(runs[-1].words):
            similar = runs[-_SIMILAR:]
            del runs[-_SIMILAR:]
            runs.append(merged(ordering, similar))

    def replace(self, run: SortedRun, *by: SortedRun | None) -> None:
        """Puts others in the place of a run; None = none."""
        at = next(at for at, each in enumerate(self.runs) if each is run)
        self.runs[at : at + 1] = [each for each in by if each is not None]

    def settle(self, ordering: RowWords) -> None:
        """Makes few runs of many again, behind `replace`."""
        runs, self.runs = self.runs, []
        for run in runs:
            self.append(ordering, run)

    def meeting(self, ordering: RowWords, first: Numbers, last: Numbers) -> Iterator[MeetingRows]:
        """As SortedRun.meeting, in all runs; `first` and `last`: int64, shape (rows,) each."""
        earliest, latest = ordering.times(first), ordering.times(last)
        for run in self.runs:
            # Rows of a run lie close in time, and most rows of another batch lie elsewhere.
            near = np.flatnonzero((latest >= run.first_time) & (earliest <= run.last_time))
            first_near = first[near]
            for pairs in run.meeting(first_near, first_near if last is first else last[near]):
                yield pairs._replace(own=near[pairs.own])


def merged(ordering: RowWords, runs: Iterable[SortedRun]) -> SortedRun:
    """One run of several, of which there is one at least; equal words stand in the order of the runs."""
    found = list(runs)
    if len(found) == 1:
        return found[0]
    table = pa.Table.from_batches([run.rows for run in found]).combine_chunks()
    return SortedRun.of(
        ordering,
        np.concatenate([run.words for run in found]),
        table.to_batches()[0],
        np.concatenate([run.marks for run in found]),
    )
