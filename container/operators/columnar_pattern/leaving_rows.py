"""LeavingRows: the rows that the watermark has passed, key by key in order of time, as far as they may matter.

Owner: the task thread. A row matters if a match may begin with it. It also matters if it may change a partial match,
which its key has or an earlier row may begin. Of the others no object is made. Must not know state or the matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from yarrow.common.types import Row
from yarrow.container.operators.columnar_pattern.pending_batches import Numbers, WaitingColumns, groups_of
from yarrow.container.operators.columnar_pattern.relevant_rows import BEGINS, GOES_ON, Flags
from yarrow.container.operators.rows_by_key import order_by_key_and_time
from yarrow.runtime.data.column_rows import rows_of_batch

#: Rows of a key that leave at once, as a piece of work between two mails.
MOST_ROWS: Final = 4096
#: Rows of a key that become objects together, once one of them is needed.
_BLOCK: Final = 32


class LeavingByKey(NamedTuple):
    """The rows that leave, at least one, with their keys."""

    rows: WaitingColumns
    #: The watermark that has passed them.
    watermark: int
    #: Canonical keys by their numbers.
    keys: list[Any]
    #: The number of each row's key.
    codes: Numbers
    #: For each key, whether it has a partial match: bool, shape (keys,).
    live: Flags


class KeySpan(NamedTuple):
    """Rows of one key that run together."""

    #: The canonical key.
    key: Any
    start: int
    end: int
    #: The time of the key behind them: that of the last one if others come behind it, else the watermark.
    until: int


class LeavingRows:
    """The rows that may matter, sorted by key and time; they are numbered in this order."""

    def __init__(
        self, keyed: LeavingByKey, rows_of: Callable[[pa.RecordBatch], list[Row]], *, eager: bool
    ) -> None:
        """`rows_of` makes objects. `eager`: all rows are likely to be asked for."""
        rows = keyed.rows
        order = places_that_matter(rows, keyed.codes, keyed.live)
        codes, begins = keyed.codes[order], rows.marks[order, BEGINS]
        self._keyed = keyed
        #: Spans before this place have run; whoever runs them moves it on.
        self.reached = 0
        self._order = order
        self._rows = rows
        self._rows_of = rows_of
        self.codes: Numbers = codes
        self.times: list[int] = rows.times[self._order].tolist()
        self.begins: list[bool] = begins.tolist()
        self.truths: list[list[bool]] = rows.truths[self._order].tolist()
        self._objects: list[Row | None] = [None] * len(self._order)
        self._make_likely(begins, keyed.live[codes], eager=eager)
        #: The rows key by key. Of many rows of a key only thousands stand together, and all of one time do.
        self.spans = self._spans()

    def _make_likely(self, begins: Flags, live: Flags, *, eager: bool) -> None:
        """Makes the objects that are sure or likely to be needed, in one go."""
        if not len(begins):
            return
        first = np.diff(self.codes, prepend=-1) != 0
        behind = np.append(False, begins[:-1]) & ~first
        likely = np.ones(len(begins), np.bool_) if eager else begins | behind | (first & live)
        self._make(np.flatnonzero(likely))

    def _make(self, places: Numbers) -> None:
        """Makes the objects at some places: int64, shape (rows,)."""
        made = self._rows_of(rows_of_batch(self._rows.records, pa.array(self._order[places])))
        for place, row in zip(places.tolist(), made, strict=True):
            self._objects[place] = row

    def object_at(self, place: int, end: int) -> Row:
        """The object of a row; `end` is that of its span."""
        row = self._objects[place]
        if row is None:
            block = [at for at in range(place, min(place + _BLOCK, end)) if self._objects[at] is None]
            self._make(np.array(block, np.int64))
            row = self._objects[place]
            assert row is not None
        return row

    def _spans(self) -> Iterator[KeySpan]:
        times, keys = self.times, self._keyed.keys
        for code, start, end in groups_of(self.codes):
            while end - start > MOST_ROWS:
                cut = start + MOST_ROWS
                while cut < end and times[cut] == times[cut - 1]:
                    cut += 1
                if cut == end:
                    break
                yield KeySpan(keys[code], start, cut, times[cut - 1])
                start = cut
            yield KeySpan(keys[code], start, end, self._keyed.watermark)

    def left(self) -> WaitingColumns | None:
        """The rows that have not run, as they wait; None if there are none."""
        return self._rows.at(self._order[self.reached :])


def places_that_matter(rows: WaitingColumns, codes: Numbers, live: Flags) -> Numbers:
    """The places of the rows that may begin a match or change one, by key and time: int64, shape (rows,).

    `codes`: the number of each row's key. `live`: for each key, whether it has a partial match, bool, shape (keys,).
    """
    order = order_by_key_and_time(codes, rows.times)
    codes, marks = codes[order], rows.marks[order]
    begins = marks[:, BEGINS]
    is_first = np.diff(codes, prepend=-1) != 0
    begun = np.cumsum(begins)
    # The begins before the first row of each row's key.
    before: Numbers = (begun - begins)[is_first][np.cumsum(is_first) - 1]
    return order[begins | (marks[:, GOES_ON] & (live[codes] | (begun - begins > before)))]
