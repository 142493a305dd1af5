"""FineRows: the rows of one side of a narrow interval join in memory, by fine bucket of time.

Owner: the task thread; the snapshot thread makes the stored form of what `freeze` gives. Rows are stored by coarse
bucket and key at a cut, as SideRows keeps them. Must not know watermarks, user functions or the other side. See
docs/design/0033-joins.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import groupby
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from yarrow.container.operators.join.fine_buckets import (
    FineColumns,
    Rows,
    columns_by_key,
    columns_by_place,
    copy_of,
    joined_columns,
    place_of,
)
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.join.time_buckets import bucket_at
from yarrow.container.operators.pair_form import PairForm, waiting_in_order
from yarrow.container.operators.rows_by_key import (
    ids_of,
    keys_at,
    lists_of_keys,
    order_by_key_and_time,
)
from yarrow.container.state.frozen_windows import WindowContent
from yarrow.container.state.pacing import Pacing
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.clock import perf_counter

#: Rows of a key and stored bucket from which on, in the mean, columns cost less than a list of tuples.
_LEAST_ROWS: Final = 10


class FineForm(NamedTuple):
    """The forms in which FineRows keeps and stores rows."""

    #: The lengths of fine and of stored buckets, in milliseconds. The first divides the second.
    length: int
    stored_length: int
    #: Buckets are by place, see fine_buckets.py.
    by_place: bool
    #: The type of rows is declared: a snapshot may get lists of tuples as columns.
    typed: bool
    #: The form in which rows wait; None = as they are. Buckets by key have no other.
    pairs: PairForm | None = None

    def stored_start(self, number: int) -> int:
        """The start of the stored bucket in which a fine bucket lies."""
        start = number * self.length
        return start - start % self.stored_length


class FineRows:
    """The rows of one side."""

    def __init__(self, tables: WindowTables[TimeWindow], form: FineForm, size: SideSize) -> None:
        """Takes restored rows out of the tables, whose backend stores rows of others at a cut.

        `size` tells how many rows there are.
        """
        self._form = form
        self._size = size
        #: The buckets that generated code may read and change, by their number. The others wait for `look`.
        self.live: dict[int, Rows] = {}
        self._all: dict[int, Rows] = {}
        #: Heap of the numbers in `_all`.
        self._numbers: list[int] = []
        #: By number: the rows of a bucket less its places or keys. A bucket by place without an entry has no list.
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
        return self._form.length

    @property
    def by_place(self) -> bool:
        """True if buckets are by place, see fine_buckets.py."""
        return self._form.by_place

    @property
    def pairs(self) -> PairForm | None:
        """The form in which rows wait; None = as they are."""
        return self._form.pairs

    @property
    def has_more(self) -> bool:
        """True while `look` finds buckets that are not live. It changes only between chunks, and from true to false."""
        return len(self.live) < len(self._all)

    def look(self, number: int) -> Rows | None:
        """The bucket of a number, live from now on; None = there is none."""
        found = self._all.get(number)
        if found is not None and number not in self.live:
            self._keep_for_snapshots(number, found)
            self.live[number] = found
        return found

    def begin(self, number: int, row: Any) -> Rows:
        """The bucket of a number that is not live, to which a row is added."""
        found = self.look(number)
        if found is None:
            found = self._all[number] = self.live[number] = {}
            heappush(self._numbers, number)
            self._size.sample(row)
        return found

    def add(self, key: Any, time: int, row: Any) -> None:
        """Adds a row, as generated code does."""
        number = time // self._form.length
        rows = self.live.get(number)
        if rows is None:
            rows = self.begin(number, row)
        if not self._form.by_place:
            at, added = key, [time, row]
        else:
            row = row if self._form.pairs is None else self._form.pairs.kept(key, row)
            at, added = place_of(key, time, self._form.length), [row]
        if at not in rows:
            rows[at] = added
            self.further[number] += 0
        elif rows[at].__class__ is list:
            self.further[number] += 1
            rows[at] += added
        else:
            self.further[number] += 1
            rows[at] = [rows[at], row]

    def add_to_list(self, rows: Rows, number: int, place: Any, row: Any) -> None:
        """Adds a row's kept form to a live bucket by place: the first one of its place, in a list."""
        # The entry says that there are lists.
        self.further[number] += 0
        rows[place] = [row]

    # ------------------------------------------------------------------ buckets that end

    def has_until(self, position: int) -> bool:
        """True if there is a bucket whose last time is `position` or before it."""
        return bool(self._numbers) and (self._numbers[0] + 1) * self._form.length - 1 <= position

    def drop_until(self, position: int, deadline: float) -> bool:
        """Removes the buckets whose last time is `position` or before it; False if the deadline has come before."""
        while self.has_until(position):
            number = heappop(self._numbers)
            del self._all[number]
            self.live.pop(number, None)
            self.further.pop(number, None)
            if perf_counter() >= deadline:
                return not self.has_until(position)
        return True

    # ------------------------------------------------------------------ numbers

    def spans(self) -> dict[int, int]:
        """The number of rows by the start of their stored bucket. Any thread; a step a fine bucket."""
        stored_start, further = self._form.stored_start, self.further
        found: dict[int, int] = defaultdict(int)
        for number, rows in list(self._all.items()):
            found[stored_start(number)] += len(rows) + further.get(number, 0)
        return found

    @property
    def entries(self) -> int:
        """See StoredAtCut."""
        return sum(map(len, list(self._all.values()))) + sum(list(self.further.values()))

    @property
    def oldest(self) -> int | None:
        """See CountsRows."""
        first = self._numbers[:1]
        return self._form.stored_start(first[0]) if first else None

    # ------------------------------------------------------------------ stored

    def _keep_for_snapshots(self, number: int, rows: Rows) -> None:
        """Copies a bucket that is about to change for the snapshots that have not read it."""
        has_lists = not self._form.by_place or number in self.further
        copied: Rows | None = None
        for cut in self._cuts:
            frozen = cut()
            if frozen is not None:
                copied = frozen.keep(number, rows, copied, has_lists=has_lists)

    def freeze(self) -> Iterator[WindowContent[TimeWindow]]:
        """See StoredAtCut."""
        frozen = _FrozenRows(self._all.copy(), self._form, frozenset(self.further))
        self._cuts = [cut for cut in self._cuts if cut() is not None]
        self._cuts.append(ref(frozen))
        self.live.clear()
        return frozen.by_window()


class _FrozenRows:
    """The rows of one side at a cut.

    A bucket belongs to the snapshot until a thread takes it. The task thread takes and copies it before a change, the
    snapshot thread takes it to copy it. The other one waits meanwhile.
    """

    def __init__(self, untouched: dict[int, Rows], form: FineForm, with_lists: frozenset[int]) -> None:
        """`untouched`: all buckets by their number. `with_lists`: the numbers of those by place that may have lists."""
        self._untouched = untouched
        self._with_lists = with_lists
        self._numbers = list(untouched)
        self._form = form
        #: Copies that the task thread has made.
        self._kept: dict[int, Rows] = {}
        self._lock = Lock()

    def keep(self, number: int, rows: Rows, copied: Rows | None, *, has_lists: bool) -> Rows | None:
        """Copies a bucket before it changes, unless that is not necessary or another cut has a copy. Task thread."""
        with self._lock:
            if self._untouched.pop(number, None) is not None:
                if copied is None:
                    copied = copy_of(rows, has_lists=has_lists)
                self._kept[number] = copied
        return copied

    def _taken(self, number: int) -> FineColumns:
        """The rows of a bucket, which nobody needs any more. Snapshot thread."""
        by_place = self._form.by_place
        has_lists = not by_place or number in self._with_lists
        with self._lock:
            untouched = self._untouched.pop(number, None)
            rows = self._kept.pop(number) if untouched is None else copy_of(untouched, has_lists=has_lists)
        if by_place:
            return columns_by_place(rows, number, self._form.length, has_lists=has_lists)
        return columns_by_key(rows)

    def by_window(self) -> Iterator[WindowContent[TimeWindow]]:
        """The rows by stored bucket and key. Snapshot thread."""
        pacing, form = Pacing(), self._form
        # The first bucket decides for all, since lists of both forms cannot be written together.
        as_columns: bool | None = None
        self._numbers.sort()
        for stored, numbers in groupby(self._numbers, key=form.stored_start):
            parts = []
            for number in numbers:
                parts.append(self._taken(number))
                pacing.step()
            keys, times, rows = joined_columns(parts)
            ids = ids_of(keys)
            order = order_by_key_and_time(ids, times)
            has_met = np.zeros(len(order), dtype=np.bool_)
            if as_columns is None:
                number_of_keys = 1 + int(np.count_nonzero(np.diff(ids[order])))
                as_columns = form.typed and len(order) >= _LEAST_ROWS * number_of_keys
            in_order = waiting_in_order(form.pairs, keys, rows, order, pacing)
            columns = times[order], has_met, in_order
            # No reference here keeps the lists alive while the bucket is written.
            del parts, rows, in_order
            places, lists = lists_of_keys(ids, order, columns, as_columns=as_columns)
            yield bucket_at(stored, form.stored_length), keys_at(keys, places), lists
