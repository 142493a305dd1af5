"""FineRows: the rows of one side of a narrow interval join in memory, by fine bucket of time and key.

Owner: the task thread; the snapshot thread makes the stored form of what `freeze` gives. A row is kept as it came, so
a key with one row in a bucket needs no list and no tuple. Rows are stored by coarse bucket and key at a cut, as
SideRows keeps them. Must not know watermarks, user functions or the other side. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter
from threading import Lock
from typing import Any, Final
from weakref import ref

from yarrow.container.operators.join.side_rows import Entry
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.join.time_buckets import bucket_at
from yarrow.container.state.frozen_windows import WindowContent
from yarrow.container.state.pacing import Pacing
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.clock import perf_counter

_TIME: Final = itemgetter(0)


#: The rows of a fine bucket by canonical key. In a bucket of one time: a row, or a list of several as they came; a row
#: that is a list or None stands in a list too. In a bucket of several times: a list of times and rows in turn.
Rows = dict[Any, Any]


class FineRows:
    """The rows of one side."""

    def __init__(
        self, tables: WindowTables[TimeWindow], length: int, stored_length: int, size: SideSize
    ) -> None:
        """Takes restored rows out of the tables, whose backend stores rows of others at a cut.

        `length`, `stored_length`: those of fine and of stored buckets, in milliseconds. `size` tells how many rows
        there are.
        """
        self._length = length
        self._stored_length = stored_length
        self._size = size
        #: The buckets that generated code may read and change, by their start. The others wait for `look`.
        self.live: dict[int, Rows] = {}
        self._all: dict[int, Rows] = {}
        #: Heap of the starts in `_all`.
        self._starts: list[int] = []
        #: By start: the rows of a bucket less its keys. A bucket of one time without an entry has no list.
        self.further: dict[int, int] = defaultdict(int)
        #: Cuts whose snapshots may be under way.
        self._cuts: list[ref[_FrozenRows]] = []
        size.count_by(self)
        for window in tables.windows():
            for keys, values in tables.rows(window):
                for key, entries in zip(keys, values, strict=True):
                    for time, _, row in entries:
                        self.add(key, time, row)
            tables.drop(window)
        tables.store_also(self)

    # ------------------------------------------------------------------ rows

    @property
    def length(self) -> int:
        """The length of fine buckets, in milliseconds."""
        return self._length

    @property
    def has_more(self) -> bool:
        """True while `look` finds buckets that are not live. It changes only between chunks, and from true to false."""
        return len(self.live) < len(self._all)

    def look(self, start: int) -> Rows | None:
        """The bucket of a start, live from now on; None = there is none."""
        found = self._all.get(start)
        if found is not None and start not in self.live:
            self._keep_for_snapshots(start, found)
            self.live[start] = found
        return found

    def begin(self, start: int, row: Any) -> Rows:
        """The bucket of a start that is not live, to which a row is added."""
        found = self.look(start)
        if found is None:
            found = self._all[start] = self.live[start] = {}
            heappush(self._starts, start)
            self._size.sample(row)
        return found

    def add(self, key: Any, time: int, row: Any) -> None:
        """Adds a row, as generated code does."""
        start = time - time % self._length
        rows = self.live.get(start)
        if rows is None:
            rows = self.begin(start, row)
        if key not in rows:
            rows[key] = [time, row] if self._length > 1 else [row]
            self.further[start] += 0
        else:
            self.further[start] += 1
            rows[key] += [time, row] if self._length > 1 else [row]

    def add_to_list(self, rows: Rows, start: int, key: Any, row: Any) -> None:
        """Adds a row to a live bucket of one time: the first one of its canonical key, in a list."""
        # The entry says that there are lists.
        self.further[start] += 0
        rows[key] = [row]

    # ------------------------------------------------------------------ buckets that end

    def has_until(self, position: int) -> bool:
        """True if there is a bucket whose last time is `position` or before it."""
        return bool(self._starts) and self._starts[0] + self._length - 1 <= position

    def drop_until(self, position: int, deadline: float) -> bool:
        """Removes the buckets whose last time is `position` or before it; False if the deadline has come before."""
        while self.has_until(position):
            start = heappop(self._starts)
            del self._all[start]
            self.live.pop(start, None)
            self.further.pop(start, None)
            if perf_counter() >= deadline:
                return not self.has_until(position)
        return True

    # ------------------------------------------------------------------ numbers

    def spans(self) -> dict[int, int]:
        """The number of rows by the start of their stored bucket. Any thread; a step a fine bucket."""
        length, further = self._stored_length, self.further
        found: dict[int, int] = defaultdict(int)
        for start, rows in list(self._all.items()):
            found[start - start % length] += len(rows) + further.get(start, 0)
        return found

    @property
    def entries(self) -> int:
        """See StoredAtCut."""
        return sum(map(len, list(self._all.values()))) + sum(list(self.further.values()))

    @property
    def oldest(self) -> int | None:
        """See CountsRows."""
        first = self._starts[:1]
        return first[0] - first[0] % self._stored_length if first else None

    # ------------------------------------------------------------------ stored

    def _keep_for_snapshots(self, start: int, rows: Rows) -> None:
        """Copies a bucket that is about to change for the snapshots that have not read it."""
        several = self._length > 1 or start in self.further
        copied: Rows | None = None
        for cut in self._cuts:
            frozen = cut()
            if frozen is not None:
                copied = frozen.keep(start, rows, several, copied)

    def freeze(self) -> Iterator[WindowContent[TimeWindow]]:
        """See StoredAtCut."""
        lists = None if self._length > 1 else frozenset(self.further)
        frozen = _FrozenRows(self._all.copy(), self._stored_length, lists)
        self._cuts = [cut for cut in self._cuts if cut() is not None]
        self._cuts.append(ref(frozen))
        self.live.clear()
        return frozen.by_window()


class _FrozenRows:
    """The rows of one side at a cut.

    A bucket belongs to the snapshot until a thread takes it. The task thread takes and copies it before a change, the
    snapshot thread takes it to read it. The other one waits meanwhile.
    """

    def __init__(
        self, untouched: dict[int, Rows], stored_length: int, with_lists: frozenset[int] | None
    ) -> None:
        """`untouched`: all buckets. `with_lists`: those of one time with lists; None = buckets have several times."""
        self._untouched = untouched
        self._with_lists = with_lists
        self._starts = list(untouched)
        self._stored_length = stored_length
        #: Copies that the task thread has made.
        self._kept: dict[int, Rows] = {}
        self._lock = Lock()

    def keep(self, start: int, rows: Rows, several: bool, copied: Rows | None) -> Rows | None:
        """Copies a bucket before it changes, unless that is not necessary or another cut has a copy. Task thread."""
        with self._lock:
            if self._untouched.pop(start, None) is not None:
                self._kept[start] = copied = _copy(rows, several) if copied is None else copied
        return copied

    def by_window(self) -> Iterator[WindowContent[TimeWindow]]:
        """The rows by stored bucket and key. Snapshot thread."""
        pacing, length = Pacing(), self._stored_length
        self._starts.sort()
        for stored, starts in groupby(self._starts, key=lambda start: start - start % length):
            by_key: dict[Any, list[Entry]] = defaultdict(list)
            for start in starts:
                with self._lock:
                    rows = self._untouched.pop(start, None)
                    if rows is None:
                        rows = self._kept.pop(start)
                    if self._with_lists is None:
                        for key, found in rows.items():
                            by_key[key] += timed_entries(found)
                    elif start not in self._with_lists:
                        for key, row in rows.items():
                            by_key[key].append((start, False, row))
                    else:
                        for key, found in rows.items():
                            entries = by_key[key]
                            for row in found if found.__class__ is list else (found,):
                                entries.append((start, False, row))
                pacing.step()
            yield bucket_at(stored, length), list(by_key), list(by_key.values())


def timed_entries(found: list[Any]) -> list[Entry]:
    """The entries of times and rows in turn, by time; equal times stand as they came."""
    turns = iter(found)
    entries = [(time, False, row) for time, row in zip(turns, turns, strict=True)]
    entries.sort(key=_TIME)
    return entries


def _copy(rows: Rows, several: bool) -> Rows:
    """A copy of a bucket. `several`: it may have lists."""
    if not several:
        return rows.copy()
    return {key: found.copy() if found.__class__ is list else found for key, found in rows.items()}
